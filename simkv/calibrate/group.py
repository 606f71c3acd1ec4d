"""What a kernel family is to a fit: which rows of a table it takes, which form, and from where to start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simkv.calibrate.measurements import SHAPE_COLUMNS, Measurements

if TYPE_CHECKING:
    import pandas as pd

# op of the measurements, where a group's name does not say it
_OPS = {"chunked_attention": "prefill_attention"}
HEAD_DIM = 128  # of the tables that are fitted: nearly every dense model has it

Bounds = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Gpu:
    """The three figures of a GPU that every form takes."""

    peak_flops_per_s: float
    bandwidth_bytes_per_s: float
    num_sms: int


@dataclass(frozen=True)
class Group:
    """One family and dtype.

    variant    columns of the measurements, with the values that they must have
    dtype      whose peak is the roof
    axes       shape columns that form takes and the residual's grid has
    seconds    the form, called with parameters, the three figures of `Gpu` and the axes
    starts     where fits start, the best is kept; fields without bounds keep their values, so starts may be
               structural alternatives
    kept       rows that are used at all, of its shape columns: the residual's grid and the shipped table
    seen       rows that a fit of the parameters looks at
    reported   rows that an error table counts
    """

    name: str
    variant: Mapping[str, str]
    dtype: str
    axes: tuple[str, ...]
    seconds: Callable[..., Any]
    starts: tuple[Any, ...]
    bounds: Bounds
    kept: Callable[[pd.DataFrame], pd.Series]
    seen: Callable[[pd.DataFrame], pd.Series]
    reported: Callable[[pd.DataFrame], pd.Series]

    @property
    def op(self) -> str:
        """The op of the measurements."""
        kind = self.name.split("/")[0]
        return _OPS.get(kind, kind)

    def rows(self, measurements: Measurements) -> pd.DataFrame:
        """Return this group's rows, one a point: the median of its measurements."""
        shape = list(SHAPE_COLUMNS[self.op])
        rows = self.taken(measurements)
        medians: pd.DataFrame = rows.groupby(shape, sort=True)[["seconds"]].median().reset_index()
        return medians

    def taken(self, measurements: Measurements) -> pd.DataFrame:
        """Return the rows of a table that this group uses, as they are."""
        shape = list(SHAPE_COLUMNS[self.op])
        rows = measurements.of(self.op, **self.variant)
        if "head_dim" in shape:
            rows = rows[rows["head_dim"] == HEAD_DIM]
        rows = rows.astype({column: "int64" for column in shape if column != "kernel"})
        return rows[self.kept(rows)]

    def shape(self, frame: pd.DataFrame) -> list[Any]:
        """Return the columns of the axes, as arrays of floats."""
        return [frame[axis].to_numpy(dtype=float) for axis in self.axes]
