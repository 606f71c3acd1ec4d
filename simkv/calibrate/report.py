"""Error tables: how far predictions are from measured points, by group and by range of shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simkv.calibrate.collectives import groups_of
from simkv.calibrate.measurements import Measurements
from simkv.calibrate.readers.silicon import split_tables

if TYPE_CHECKING:
    import pandas as pd

    from simkv.calibrate.fit import Calibration

METRICS = ("physical", "residual")
# by which column a group's errors are broken down, and the lower ends of the ranges
RANGES: dict[str, tuple[str, tuple[int, ...]]] = {
    "gemm": ("m", (1, 17, 65, 129, 257, 1025, 4353)),
    "decode_attention": ("context", (1, 129, 1025, 8193, 65537)),
    "prefill_attention": ("chunk", (1, 1025, 4097, 12289)),
    "chunked_attention": ("context", (1, 4097, 32769, 131073)),
    "elementwise": ("tokens", (1, 65, 513)),
    "sampler": ("tokens", (1, 17, 129)),
}
_MESSAGES = ("num_bytes", (1, 65_536, 1_048_576, 16_777_216))


@dataclass(frozen=True)
class ErrorRow:
    """Relative errors |predicted / measured - 1| over `num_points` points, as fractions."""

    group: str
    range: str  # of a shape column, or "all"
    metric: str  # physical: the form alone; residual: with the interpolated residual
    num_points: int
    median: float
    p90: float
    mape: float


@dataclass(frozen=True)
class ErrorTable:
    """Error rows of every group, the whole group first, and the points behind them.

    `points` has, for each group, shape columns, measured seconds and both predictions.
    """

    rows: tuple[ErrorRow, ...]
    points: dict[str, pd.DataFrame]

    def row(self, group: str, metric: str, range_: str = "all") -> ErrorRow:
        """The row of a group, a metric and a range; KeyError if there is none."""
        for row in self.rows:
            if (row.group, row.metric, row.range) == (group, metric, range_):
                return row
        raise KeyError((group, metric, range_))

    def size_of(self, group: str) -> str:
        """The column by which a group's errors are broken down; KeyError if there is no such group."""
        for row in self.rows:
            if row.group == group and row.range != "all":
                return row.range.split()[0]
        raise KeyError(group)

    def frame(self) -> pd.DataFrame:
        """The rows as a table."""
        import pandas as pd

        return pd.DataFrame([asdict(row) for row in self.rows])

    def to_text(self) -> str:
        """The rows as aligned text, errors in percent."""
        lines = [f"{'group':<28} {'range':<18} {'':<9} {'n':>6} {'median':>7} {'p90':>7} {'MAPE':>7}"]
        lines += [
            f"{row.group:<28} {row.range:<18} {row.metric:<9} {row.num_points:>6} "
            f"{row.median:>7.1%} {row.p90:>7.1%} {row.mape:>7.1%}"
            for row in self.rows
        ]
        return "\n".join(lines)


def error_table(calibration: Calibration, measurements: Measurements) -> ErrorTable:
    """Compare a fitted calibration with the reported points of a table that it has not seen."""
    rows: list[ErrorRow] = []
    points: dict[str, pd.DataFrame] = {}
    for name, frame in _unseen(calibration, measurements):
        if frame.empty or name not in calibration.residuals_:
            continue
        physical = calibration.physical(frame, name)
        ratio, mark = calibration.ratios(frame, name)
        points[name] = frame.assign(physical=physical, residual=physical * ratio, mark=mark)
        rows += rows_of(name, points[name], *_ranges(name))
    return ErrorTable(tuple(rows), points)


def _unseen(calibration: Calibration, measurements: Measurements) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the reported points of every group that `fit` did not look at; all if it looked at all."""
    kernels, between = split_tables(measurements)
    split = calibration.split
    for name, group in calibration.groups.items():
        if name not in calibration.parameters_:
            continue
        rows = calibration.rows(kernels, name)
        if split is not None and not rows.empty:
            rows = rows[split(rows, group.op)]
        yield name, rows[group.reported(rows)]
    for name, rows in groups_of(between).items():
        yield name, rows if split is None else rows[split(rows, "all_reduce")]


def _ranges(name: str) -> tuple[str, tuple[int, ...]]:
    return RANGES.get(name.split("/", maxsplit=1)[0], _MESSAGES)


def rows_of(name: str, points: pd.DataFrame, column: str, starts: tuple[int, ...]) -> list[ErrorRow]:
    """Errors of a group's points, all of them and in ranges of a column."""
    sizes = points[column].to_numpy()
    selections: list[tuple[str, Any]] = [("all", np.ones(len(points), bool))]
    for start, end in zip(starts, (*starts[1:], None), strict=True):
        label = f"{column} ≥ {start}" if end is None else f"{column} {start}-{end - 1}"
        selections.append((label, (sizes >= start) & (True if end is None else sizes < end)))
    measured = points["seconds"].to_numpy(dtype=float)
    rows = []
    for label, chosen in selections:
        if not chosen.any():
            continue
        for metric in METRICS:
            errors = np.abs(points[metric].to_numpy(dtype=float)[chosen] / measured[chosen] - 1.0)
            quantiles = (float(np.median(errors)), float(np.quantile(errors, 0.9)), float(errors.mean()))
            rows.append(ErrorRow(name, label, metric, int(chosen.sum()), *quantiles))
    return rows
