"""Collectives in a calibration: fits and residuals of vLLM's custom all-reduce, of NCCL's rings and hand-offs.

A group is one op and backend: ``all_reduce_custom_graph``, ``all_reduce_custom_eager``, ``all_reduce_nccl``.
The first two share one set of parameters, ``all_reduce/custom``. Groups whose kernels work alike share the reach
of their residual (`simkv.cost.message_residual`): both custom ones, and NCCL's rings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from simkv.calibrate.fits.collectives import (
    NUM_SEND_RECV_UNKNOWNS,
    fit_custom,
    fit_ring,
    fit_send_recv,
    lacks,
    ring_unknowns,
)
from simkv.calibrate.fits.reach import choose_octaves
from simkv.calibrate.fits.solve import medians, rounded
from simkv.calibrate.measurements import Measurements
from simkv.cost.kernels.collectives import custom_seconds, kernel_changes, ring_seconds, send_recv_seconds
from simkv.cost.message_residual import GroupResidual, MessageResidual, Ratios, measured_ratios

if TYPE_CHECKING:
    import pandas as pd

    from simkv.calibrate.fit import Split

AXES = ("world_size", "num_bytes")
_CUSTOM = {"all_reduce_custom_graph": "custom_graph", "all_reduce_custom_eager": "custom_eager"}
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
_RINGS = {
    f"{op}_nccl": (f"{op}/nccl", op) for op in OPS
}  # all that NCCL does, the last being one hop of a ring
GROUP_NAMES = (*_CUSTOM, *_RINGS)
_KINDS = (  # groups that share the reach of their residual
    tuple(_CUSTOM),
    ("all_reduce_nccl", "all_gather_nccl", "reduce_scatter_nccl"),  # rings
    ("all_to_all_nccl",),  # pairs
    ("send_recv_nccl",),
)


@dataclass
class CollectiveCalibration:
    """Fits every collective that a table has; `parameters_` and `residuals_` as in `Calibration`.

    `octaves_` has the reach of the residuals, in doublings of the message, by the names of parameters.
    """

    has_switch: bool = True  # NCCL changes protocols as on NVLink
    split: Split | None = None
    parameters_: dict[str, Any] = field(default_factory=dict)
    residuals_: dict[str, GroupResidual] = field(default_factory=dict)
    octaves_: dict[str, float] = field(default_factory=dict)
    num_rows_: dict[str, int] = field(default_factory=dict)
    notes_: list[str] = field(default_factory=list)

    def fit(self, measurements: Measurements, split: Split | None = None) -> CollectiveCalibration:
        """Fit parameters and residuals; rows for which `split(rows, op)` is True are not looked at."""
        self.split = split
        self.parameters_, self.residuals_, self.octaves_, self.num_rows_ = {}, {}, {}, {}
        self.notes_ = []
        seen = {name: self._seen(rows) for name, rows in groups_of(measurements).items()}
        graph, eager = (seen.get(name) for name in _CUSTOM)
        if graph is not None and (missing := lacks(graph, eager)):
            self.notes_.append(f"all_reduce/custom: left out, it needs {missing}")
        elif graph is not None:
            self.parameters_["all_reduce/custom"] = rounded(fit_custom(graph, eager))
            self.num_rows_["all_reduce/custom"] = len(graph) + (0 if eager is None else len(eager))
        for name, (key, op) in _RINGS.items():
            if name not in seen:
                continue
            is_ring = op != "send_recv"
            num_unknowns = ring_unknowns(seen[name], self.has_switch) if is_ring else NUM_SEND_RECV_UNKNOWNS
            if len(seen[name]) <= num_unknowns:
                self.notes_.append(
                    f"{key}: left out, {len(seen[name])} points are too few for {num_unknowns} parameters"
                )
            else:
                found = fit_ring(seen[name], op, self.has_switch) if is_ring else fit_send_recv(seen[name])
                self.parameters_[key] = rounded(found)
                self.num_rows_[key] = len(seen[name])
        fitted = {name: rows for name, rows in seen.items() if key_of(name) in self.parameters_}
        for kind in _KINDS:
            own = {name: self._ratios(fitted[name], name) for name in kind if name in fitted}
            if own:
                octaves = choose_octaves([pair for name in own for pair in _with_changes(name, own[name])])
                self._set_residuals(own, octaves)
        return self

    def take(
        self, parameters: Mapping[str, Any], octaves: Mapping[str, float | None], points: Measurements
    ) -> CollectiveCalibration:
        """Take over what an earlier fit found, with residuals of the points it looked at."""
        rows = groups_of(points)
        keys = {key_of(name) for name in GROUP_NAMES}
        self.parameters_ = {key: value for key, value in parameters.items() if key in keys}
        for name in [name for name in rows if key_of(name) in self.parameters_]:
            reach = octaves.get(key_of(name))
            self._set_residuals({name: self._ratios(rows[name], name)}, inf if reach is None else reach)
        return self

    def _set_residuals(self, ratios: Mapping[str, dict[int, Ratios]], octaves: float) -> None:
        for name, own in ratios.items():
            self.residuals_[name] = _residual(name, own, octaves)
            self.octaves_[key_of(name)] = octaves

    def _ratios(self, rows: pd.DataFrame, name: str) -> dict[int, Ratios]:
        """Measured over physical seconds of `rows`, by group size."""
        physical, sizes = self.physical(rows, name), rows["world_size"].to_numpy(int)
        found = {}
        for size in sorted(set(sizes.tolist())):
            own = sizes == size
            found[size] = measured_ratios(rows["num_bytes"][own], rows["seconds"][own], physical[own])
        return found

    def physical(self, rows: pd.DataFrame, name: str) -> np.ndarray:
        """Seconds by the form alone."""
        return physical_seconds(self.parameters_[key_of(name)], name, rows)

    def _seen(self, rows: pd.DataFrame) -> pd.DataFrame:
        return rows if self.split is None else rows[~self.split(rows, "all_reduce")]


def _with_changes(name: str, ratios: dict[int, Ratios]) -> list[tuple[Ratios, tuple[float, ...]]]:
    """Each group size's ratios with the messages at which its kernel changes."""
    return [(own, kernel_changes(_CUSTOM.get(name, "nccl"), size)) for size, own in ratios.items()]


def _residual(name: str, ratios: dict[int, Ratios], octaves: float) -> GroupResidual:
    pairs = zip(ratios, _with_changes(name, ratios), strict=True)
    return GroupResidual({size: MessageResidual(own, octaves, changes) for size, (own, changes) in pairs})


def groups_of(measurements: Measurements) -> dict[str, pd.DataFrame]:
    """Return the points of every group of a table, one row a shape."""
    found = {}
    for name in GROUP_NAMES:
        op, backend = ("all_reduce", _CUSTOM[name]) if name in _CUSTOM else (_RINGS[name][1], "nccl")
        rows = measurements.of(op, backend=backend)
        rows = rows[(rows["world_size"] >= 2) & (rows["num_bytes"] >= 1)]
        if not rows.empty:
            found[name] = medians(rows.astype(dict.fromkeys(AXES, "int64")), op)
    return found


def key_of(name: str) -> str:
    """The name of the parameters of a group."""
    return "all_reduce/custom" if name in _CUSTOM else _RINGS[name][0]


def physical_seconds(parameters: Any, name: str, rows: pd.DataFrame) -> np.ndarray:
    """Seconds of a group's form for rows of `AXES`."""
    sizes, num_bytes = (rows[axis].to_numpy(float) for axis in AXES)
    if name == "send_recv_nccl":
        return np.asarray(send_recv_seconds(parameters, num_bytes), float)
    if name not in _CUSTOM:
        return np.asarray(ring_seconds(parameters, _RINGS[name][1], sizes, num_bytes), float)
    in_graph = name == "all_reduce_custom_graph"
    seconds = [
        float(custom_seconds(parameters, int(size), message, in_graph))
        for size, message in zip(sizes, num_bytes.tolist(), strict=True)
    ]
    return np.array(seconds)
