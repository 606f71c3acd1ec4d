"""``simkv validate kernels``: how far calibrated kernels are from measured points that no fit has seen.

Two ways to hold out: three points in ten, drawn by their shapes (`held_out`), and whole weight matrices of
matrix products (`held_out_weights`), because real models sit off a table's grid of n and k.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from simkv.calibrate.families import GROUPS
from simkv.calibrate.fit import Calibration
from simkv.calibrate.measurements import held_out, held_out_weights
from simkv.calibrate.profile import held_out_errors
from simkv.calibrate.readers.silicon import read_silicon
from simkv.calibrate.report import ErrorTable
from simkv.load.hardware import find_hardware


class KernelErrors(NamedTuple):
    """Errors over held-out points, and over products whose whole weight matrix was held out."""

    points: ErrorTable
    weights: ErrorTable

    def as_dict(self, with_points: bool = False) -> dict[str, Any]:
        """Plain data, for JSON; `rows` has the held-out points if asked for."""
        return {
            "rows": _points_of(self.points) if with_points else [],
            "groups": _groups_of(self.points),
            "held_out_weights": _groups_of(self.weights),
        }

    def to_text(self, with_points: bool = False) -> str:
        """Both tables, errors in percent."""
        parts = [
            "Held out: three points in ten",
            self.points.to_text(),
            "",
            "Held out: three weight matrices (n, k) in ten",
            self.weights.to_text(),
        ]
        if with_points:
            parts += ["", *(f"{name}\n{frame.to_string()}" for name, frame in self.points.points.items())]
        return "\n".join(parts)


def compare_kernels(system: str, engine: str, version: str, root: Path | None = None) -> KernelErrors:
    """Fit the other part of the tables of `system` and compare; `root` as in `read_silicon`."""
    hardware = find_hardware(system, with_calibration=False)
    tables = read_silicon(system, version, engine, root)
    errors = held_out_errors(hardware, tables, held_out)
    gemms = tuple(group for group in GROUPS if group.op == "gemm")
    by_weights = Calibration(hardware, gemms)
    by_weights.fit(tables.kernels, split=lambda rows, _: held_out_weights(rows))
    return KernelErrors(errors, by_weights.score(tables.kernels))


def _groups_of(table: ErrorTable) -> list[dict[str, Any]]:
    return [
        {
            "group": row.group,
            "metric": row.metric,
            "n": row.num_points,
            "mape": row.mape,
            "median": row.median,
            "p90": row.p90,
        }
        for row in table.rows
        if row.range == "all"
    ]


def _points_of(table: ErrorTable) -> list[dict[str, Any]]:
    marks = ("measured", "interpolated", "extrapolated")
    return [
        {"group": name, **{str(key): value for key, value in row.items()}, "mark": marks[row["mark"]]}
        for name, frame in table.points.items()
        for row in frame.to_dict("records")
    ]
