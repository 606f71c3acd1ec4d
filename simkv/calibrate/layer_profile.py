"""A calibration of per-layer profiles: products, decodes, and the rest by `simkv.calibrate.layer_groups`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from simkv.calibrate.families import GROUPS
from simkv.calibrate.fit import Calibration
from simkv.calibrate.layer_groups import OPS, LayerCalibration, groups_of
from simkv.calibrate.measurements import PROVENANCE_COLUMNS, Measurements, held_out, validate
from simkv.calibrate.profile import Calibrated, calibrate, spec_of
from simkv.calibrate.report import ErrorTable
from simkv.calibrate.tables import reduce
from simkv.cost.fitted_batch import DECODE
from simkv.spec.calibration import KernelFit
from simkv.spec.hardware import HardwareSpec

if TYPE_CHECKING:
    from simkv.calibrate.fit import Split

# chunks without a prefix are the kernel's that takes chunks over a prefix: no family of their own
_GROUPS = tuple(group for group in GROUPS if group.name in ("gemm/bfloat16", DECODE))


def has_layers(table: Measurements) -> bool:
    """True if a table has batches of chunks and decodes, which make it a per-layer profile."""
    return bool((table.frame["op"] == "mixed_attention").any())


def calibrate_any(hardware: HardwareSpec, table: Measurements, source: str, date: str) -> Calibrated:
    """Fit everything that a table has, a per-layer profile or kernels measured one by one."""
    return (calibrate_layers if has_layers(table) else calibrate)(hardware, table, source, date)


def calibrate_layers(hardware: HardwareSpec, table: Measurements, source: str, date: str) -> Calibrated:
    """Fit everything that the table has: once without the held-out points for errors, then with all.

    Fits look at the reduced table as it is saved, so that they can be repeated from it.
    """
    points = reduced_layers(hardware, table)
    errors = held_out_errors(hardware, points, held_out)
    kernels, layers = fit_layers(hardware, points)
    spec = spec_of(kernels, source, date, errors)
    families = {
        name: KernelFit(
            parameters=asdict(parameters),
            source=source,
            date=date,
            num_points=layers.num_rows_[name],
            error=round(errors.row(name, "physical").median, 4),
        )
        for name, parameters in layers.parameters_.items()
    }
    return Calibrated(spec.replace(families=spec.families | families), points, errors, ())


def fit_layers(
    hardware: HardwareSpec, points: Measurements, split: Split | None = None
) -> tuple[Calibration, LayerCalibration]:
    """Fit products and decodes, then all that leans on them."""
    kernels = Calibration(hardware, _GROUPS).fit(points, split=split)
    return kernels, LayerCalibration(hardware).fit(points, kernels, split=split)


def held_out_errors(hardware: HardwareSpec, points: Measurements, split: Split) -> ErrorTable:
    """Fit what `split` leaves, and compare with the rest."""
    first, second = (fitted.score(points) for fitted in fit_layers(hardware, points, split))
    return ErrorTable(first.rows + second.rows, first.points | second.points)


def reduced_layers(hardware: HardwareSpec, table: Measurements) -> Measurements:
    """One row a point of every group, seconds as they are stored."""
    import pandas as pd

    parts = [reduce(Calibration(hardware, _GROUPS), table)]
    for name, rows in groups_of(table).items():
        op = OPS.get(name, name.split("/")[0])
        first = table.of(op).iloc[0]
        same = {column: first[column] for column in ("dtype", "kv_dtype", *PROVENANCE_COLUMNS)}
        parts.append(rows.assign(op=op, **same))
    frame = pd.concat([part.dropna(axis="columns", how="all") for part in parts], ignore_index=True)
    seconds = frame["seconds"].to_numpy(np.float32).astype(float)
    return validate(frame.assign(seconds=seconds), "reduced table")
