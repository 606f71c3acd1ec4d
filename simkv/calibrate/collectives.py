"""Collectives in a calibration: fits and residuals of vLLM's custom all-reduce and of NCCL's rings.

A group is one op and backend: ``all_reduce_custom_graph``, ``all_reduce_custom_eager``, ``all_reduce_nccl``.
The first two share one set of parameters, ``all_reduce/custom``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from simkv.calibrate.fits.collectives import fit_custom, fit_ring
from simkv.calibrate.fits.solve import medians
from simkv.calibrate.measurements import Measurements
from simkv.calibrate.report import ErrorTable, rows_of
from simkv.cost.kernels.collectives import custom_seconds, ring_seconds
from simkv.cost.residual import Residual

if TYPE_CHECKING:
    import pandas as pd

    from simkv.calibrate.fit import Split

AXES = ("world_size", "num_bytes")
_CUSTOM = {"all_reduce_custom_graph": "custom_graph", "all_reduce_custom_eager": "custom_eager"}
_RINGS = {
    f"{op}_nccl": (f"{op}/nccl", op) for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
}
_SIGNIFICANT_DIGITS = 4


@dataclass
class CollectiveCalibration:
    """Fits every collective that a table has; `parameters_` and `residuals_` as in `Calibration`."""

    has_switch: bool = True  # NCCL changes protocols as on NVLink
    split: Split | None = None
    parameters_: dict[str, Any] = field(default_factory=dict)
    residuals_: dict[str, Residual] = field(default_factory=dict)
    num_rows_: dict[str, int] = field(default_factory=dict)

    def fit(self, measurements: Measurements, split: Split | None = None) -> CollectiveCalibration:
        """Fit parameters and residuals; rows for which `split(rows, op)` is True are not looked at."""
        self.split = split
        seen = {name: self._seen(rows) for name, rows in groups_of(measurements).items()}
        graph, eager = (seen.get(name) for name in _CUSTOM)
        if graph is not None:
            self.parameters_["all_reduce/custom"] = _rounded(fit_custom(graph, eager))
            self.num_rows_["all_reduce/custom"] = len(graph) + (0 if eager is None else len(eager))
        for name, (key, op) in _RINGS.items():
            if name in seen:
                self.parameters_[key] = _rounded(fit_ring(seen[name], op, self.has_switch))
                self.num_rows_[key] = len(seen[name])
        for name, rows in seen.items():
            if key_of(name) in self.parameters_:
                ratios = rows["seconds"].to_numpy(float) / self.physical(rows, name)
                shape = [rows[axis].to_numpy(float) for axis in AXES]
                self.residuals_[name] = Residual.from_points(AXES, shape, ratios)
        return self

    def physical(self, rows: pd.DataFrame, name: str) -> np.ndarray:
        """Seconds by the form alone."""
        return physical_seconds(self.parameters_[key_of(name)], name, rows)

    def score(self, measurements: Measurements) -> ErrorTable:
        """Errors over the points that `fit` did not look at (over all if it looked at all)."""
        table, points = [], {}
        for name, rows in groups_of(measurements).items():
            if name not in self.residuals_:
                continue
            own = rows if self.split is None else rows[self.split(rows, "all_reduce")]
            physical = self.physical(own, name)
            ratio, mark = self.residuals_[name].predict(*(own[axis] for axis in AXES))
            points[name] = own.assign(physical=physical, residual=physical * ratio, mark=mark)
            table += rows_of(name, points[name], "num_bytes", (1, 65_536, 1_048_576, 16_777_216))
        return ErrorTable(tuple(table), points)

    def _seen(self, rows: pd.DataFrame) -> pd.DataFrame:
        return rows if self.split is None else rows[~self.split(rows, "all_reduce")]


def groups_of(measurements: Measurements) -> dict[str, pd.DataFrame]:
    """Return the points of every group of a table, one row a shape."""
    found = {}
    for name in (*_CUSTOM, *_RINGS):
        op, backend = ("all_reduce", _CUSTOM[name]) if name in _CUSTOM else (_RINGS[name][1], "nccl")
        rows = measurements.of(op, backend=backend)
        if not rows.empty:
            found[name] = medians(rows.astype(dict.fromkeys(AXES, "int64")), op)
    return found


def key_of(name: str) -> str:
    """The name of the parameters of a group."""
    return "all_reduce/custom" if name in _CUSTOM else _RINGS[name][0]


def physical_seconds(parameters: Any, name: str, rows: pd.DataFrame) -> np.ndarray:
    """Seconds of a group's form for rows of `AXES`."""
    sizes, num_bytes = (rows[axis].to_numpy(float) for axis in AXES)
    if name not in _CUSTOM:
        return np.asarray(ring_seconds(parameters, _RINGS[name][1], sizes, num_bytes), float)
    in_graph = name == "all_reduce_custom_graph"
    seconds = [
        float(custom_seconds(parameters, int(size), message, in_graph))
        for size, message in zip(sizes, num_bytes.tolist(), strict=True)
    ]
    return np.array(seconds)


def _rounded(parameters: Any) -> Any:
    """The same to four significant digits: below the noise, above the differences between machines."""
    from dataclasses import fields, is_dataclass, replace

    changes: dict[str, Any] = {}
    for each in fields(parameters):
        value = getattr(parameters, each.name)
        if is_dataclass(value):
            changes[each.name] = _rounded(value)
        elif isinstance(value, dict):
            changes[each.name] = {size: _round(number) for size, number in value.items()}
        else:
            changes[each.name] = _round(value)
    return replace(parameters, **changes)


def _round(value: float) -> float:
    return float(f"{value:.{_SIGNIFICANT_DIGITS}g}")
