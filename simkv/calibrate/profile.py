"""`simkv calibrate`: measured kernels in, a calibration for hardware profiles and its reduced table out."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simkv.calibrate.collectives import OPS, groups_of
from simkv.calibrate.families import GROUPS
from simkv.calibrate.fit import Calibration
from simkv.calibrate.group import Group
from simkv.calibrate.measurements import PROVENANCE_COLUMNS, Measurements, held_out, validate
from simkv.calibrate.readers.silicon import split_tables
from simkv.calibrate.report import ErrorTable
from simkv.calibrate.tables import reduce, write_measurements
from simkv.calibrate.usable import left_out, usable
from simkv.cost.fitted_batch import CHUNKED, MIXED
from simkv.cost.fitted_collectives import parameters_from
from simkv.cost.kernels.collectives import CustomParameters, RingParameters
from simkv.errors import TraceError
from simkv.spec.calibration import CalibrationSpec, KernelFit
from simkv.spec.hardware import GpuSpec, HardwareSpec

if TYPE_CHECKING:
    from simkv.calibrate.fit import Split

# the row of an error table that speaks for the parameters of two groups
_SCORED_AS = {"all_reduce/custom": "all_reduce_custom_graph"}


class Calibrated(NamedTuple):
    """A calibration, the points it was fitted to, its errors on held-out points, and what was left out."""

    spec: CalibrationSpec
    points: Measurements
    errors: ErrorTable
    notes: tuple[str, ...]


def calibrate(hardware: HardwareSpec, table: Measurements, source: str, date: str) -> Calibrated:
    """Fit everything that the table has: once without the held-out points for errors, then with all.

    Fits look at the reduced table as it is saved, so that they can be repeated from it. A family with too few
    points is left out and noted. Raises TraceError if nothing is left.
    """
    groups, notes = usable(hardware, table)
    points = reduced(hardware, table, groups)
    errors = held_out_errors(hardware, points, held_out, groups)
    fitted = Calibration(hardware, groups).fit(points)
    notes += fitted.collectives_.notes_ + left_out(table)
    return Calibrated(spec_of(fitted, source, date, errors), points, errors, tuple(notes))


def held_out_errors(
    hardware: HardwareSpec, points: Measurements, split: Split, groups: tuple[Group, ...] = GROUPS
) -> ErrorTable:
    """Fit kernels and collectives to what `split` leaves, and compare with the rest."""
    return Calibration(hardware, groups).fit(points, split=split).score(points)


def spec_of(
    fitted: Calibration, source: str, date: str | None = None, errors: ErrorTable | None = None
) -> CalibrationSpec:
    """Return what was fitted as a profile takes it; `errors` are those of a like fit on held-out points."""
    measurements = fitted.measurements_
    assert measurements is not None
    kernels = split_tables(measurements).kernels.frame
    first = (kernels if len(kernels) else measurements.frame).iloc[0]
    families = {
        name: KernelFit(
            parameters=asdict(parameters),
            source=source,
            date=date,
            num_points=fitted.num_rows_.get(name),
            error=None if errors is None else _error_of(name, errors),
            residual_octaves=fitted.collectives_.octaves_.get(name),
        )
        for name, parameters in fitted.parameters_.items()
    }
    return CalibrationSpec(
        device=str(first["device"]),
        engine=_text(first["engine"]),
        engine_version=_text(first["engine_version"]),
        families=families,
    )


def parameters_of(spec: CalibrationSpec) -> dict[str, Any]:
    """Return the parameters of a calibration as their forms take them, by family; others are left out."""
    kinds: dict[str, type] = {group.name: type(group.starts[0]) for group in GROUPS}
    if MIXED in spec.families:  # then chunks are a part of its form, not of one of their own
        del kinds[CHUNKED]
    kinds |= {name: RingParameters for name in spec.families if name.endswith("/nccl")}
    kinds["all_reduce/custom"] = CustomParameters
    return {
        name: parameters_from(kinds[name], fit.parameters)
        for name, fit in spec.families.items()
        if name in kinds
    }


def applied(fitted: Calibration, profile: HardwareSpec, points: Path | None) -> HardwareSpec:
    """Return `profile` with what was fitted; see `Calibration.apply`."""
    assert fitted.measurements_ is not None
    sources = fitted.measurements_.frame["source"].dropna().unique()
    spec = spec_of(fitted, ", ".join(map(str, sources[:3])) or "measurements")
    if points is not None:
        if points.suffix != ".parquet":
            raise TraceError(f"points: wanted a file that ends in .parquet, got {points}")
        write_measurements(
            reduced(fitted.hardware, fitted.measurements_, tuple(fitted.groups.values())), points
        )
        spec = spec.replace(points=str(points))
    is_transferred = _speed(profile.gpu) != _speed(fitted.hardware.gpu)
    return profile.replace(calibration=spec.replace(is_transferred=is_transferred), other_calibrations=())


def _speed(gpu: GpuSpec) -> tuple[float, ...]:
    """What makes it another GPU than the one whose kernels were measured."""
    peaks = [gpu.peak_flops_per_s[dtype].value for dtype in sorted(gpu.peak_flops_per_s)]
    return (gpu.hbm_bandwidth_bytes_per_s.value, gpu.num_sms.value, *peaks)


def reduced(hardware: HardwareSpec, table: Measurements, groups: tuple[Group, ...] = GROUPS) -> Measurements:
    """One row a point of every group of kernels and collectives, seconds as they are stored."""
    import pandas as pd

    kernels, between = split_tables(table)
    parts = [reduce(Calibration(hardware, groups), kernels)]
    for name, rows in groups_of(between).items():
        op = next(op for op in OPS if op in name)
        backend = name.removeprefix(f"{op}_")
        first = between.of(op, backend=backend).iloc[0]
        provenance = {column: first[column] for column in ("dtype", *PROVENANCE_COLUMNS)}
        parts.append(rows.assign(op=op, backend=backend, **provenance))
    kept = [part.dropna(axis="columns", how="all") for part in parts if not part.empty]
    if not kept:
        raise TraceError("measurements: none of the groups has a row to keep")
    frame = pd.concat(kept, ignore_index=True)
    seconds = frame["seconds"].to_numpy(np.float32).astype(float)
    return validate(frame.assign(seconds=seconds), "reduced table")


def _error_of(name: str, errors: ErrorTable) -> float | None:
    try:
        return round(errors.row(_SCORED_AS.get(name, name.replace("/nccl", "_nccl")), "physical").median, 4)
    except KeyError:
        return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
