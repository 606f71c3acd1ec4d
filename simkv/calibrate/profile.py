"""`simkv calibrate`: measured kernels in, a calibration for hardware profiles and its reduced table out."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simkv.calibrate.collectives import CollectiveCalibration, groups_of
from simkv.calibrate.families import GROUPS, Group
from simkv.calibrate.fit import Calibration
from simkv.calibrate.measurements import PROVENANCE_COLUMNS, Measurements, held_out, validate
from simkv.calibrate.readers.silicon import Tables
from simkv.calibrate.report import ErrorTable
from simkv.calibrate.tables import reduce
from simkv.errors import TraceError
from simkv.spec.calibration import CalibrationSpec, KernelFit
from simkv.spec.hardware import HardwareSpec

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


def calibrate(hardware: HardwareSpec, tables: Tables, source: str, date: str) -> Calibrated:
    """Fit everything that the tables have: once without the held-out points for errors, then with all.

    Fits look at the reduced table as it is saved, so that they can be repeated from it. A family with too few
    points is left out and noted. Raises TraceError if nothing is left.
    """
    groups, notes = _usable(hardware, tables.kernels)
    points = reduce_all(Calibration(hardware, groups), tables)
    reduced = Tables(*(Measurements(points.frame[mask]) for mask in _parts(points)))
    errors = held_out_errors(hardware, reduced, held_out, groups)
    kernels = Calibration(hardware, groups)
    kernels.fit(reduced.kernels)
    between = collective_calibration(hardware).fit(reduced.collectives)
    fits = {
        name: _fit_of(name, parameters, errors, source, date, owner.num_rows_[name])
        for owner in (kernels, between)
        for name, parameters in owner.parameters_.items()
    }
    first = reduced.kernels.frame.iloc[0]
    spec = CalibrationSpec(
        device=str(first["device"]),
        engine=_text(first["engine"]),
        engine_version=_text(first["engine_version"]),
        families=fits,
    )
    return Calibrated(spec, points, errors, tuple(notes))


def held_out_errors(
    hardware: HardwareSpec, tables: Tables, split: Split, groups: tuple[Group, ...] = GROUPS
) -> ErrorTable:
    """Fit kernels and collectives to what `split` leaves, and compare with the rest."""
    kernels = Calibration(hardware, groups).fit(tables.kernels, split=split).score(tables.kernels)
    collectives = collective_calibration(hardware).fit(tables.collectives, split=split)
    between = collectives.score(tables.collectives)
    return ErrorTable(kernels.rows + between.rows, kernels.points | between.points)


def collective_calibration(hardware: HardwareSpec) -> CollectiveCalibration:
    """A fit of collectives for this fabric."""
    return CollectiveCalibration(has_switch=hardware.node.fabric == "nvswitch")


def reduce_all(calibration: Calibration, tables: Tables) -> Measurements:
    """One row a point of every group of kernels and collectives, seconds as they are stored."""
    import pandas as pd

    parts = [reduce(calibration, tables.kernels).frame]
    for name, rows in groups_of(tables.collectives).items():
        op = next(op for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all") if op in name)
        backend = name.removeprefix(f"{op}_")
        first = tables.collectives.of(op, backend=backend).iloc[0]
        provenance = {column: first[column] for column in ("dtype", *PROVENANCE_COLUMNS)}
        parts.append(rows.assign(op=op, backend=backend, **provenance))
    frame = pd.concat([part.dropna(axis="columns", how="all") for part in parts], ignore_index=True)
    seconds = frame["seconds"].to_numpy(np.float32).astype(float)
    return validate(frame.assign(seconds=seconds), "reduced table")


def _usable(hardware: HardwareSpec, kernels: Measurements) -> tuple[tuple[Group, ...], list[str]]:
    usable, notes = [], []
    for group in GROUPS:
        rows = Calibration(hardware, (group,)).groups[group.name].rows(kernels)
        if rows.empty:
            continue
        seen = rows[group.seen(rows) & ~held_out(rows, group.op)]
        if group.dtype not in hardware.gpu.peak_flops_per_s:
            notes.append(f"{group.name}: left out, {hardware.name} has no peak_flops_per_s in {group.dtype}")
        elif len(seen) < 2 * len(group.bounds):
            notes.append(
                f"{group.name}: left out, {len(seen)} points are too few for {len(group.bounds)} parameters"
            )
        else:
            usable.append(group)
    if not usable:
        raise TraceError(["measurements: nothing to calibrate", *notes])
    return tuple(usable), notes


def _parts(points: Measurements) -> tuple[Any, Any]:
    between_gpus = points.frame["world_size"].notna()
    return ~between_gpus, between_gpus


def _fit_of(
    name: str, parameters: Any, errors: ErrorTable, source: str, date: str, num_points: int
) -> KernelFit:
    try:
        error = errors.row(_SCORED_AS.get(name, name.replace("/nccl", "_nccl")), "physical").median
    except KeyError:
        error = None
    return KernelFit(
        parameters={field: _plain(value) for field, value in asdict(parameters).items()},
        source=source,
        date=date,
        num_points=num_points,
        error=None if error is None else round(error, 4),
    )


def _plain(value: Any) -> Any:
    """Without infinities and numpy's types."""
    return {key: _plain(each) for key, each in value.items()} if isinstance(value, dict) else value


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
