"""What physics leaves over: measured time over the physical model's, interpolated on the table's own grid.

At a measured point the ratio is the measured one, so time comes out exactly, real dips included. Between grid
values it is linear in the size itself on every axis (not in its logarithm: real kernels step). Where the table
has a hole, the ratio is estimated along each axis from the nearest measured points on both sides, and the axes
are averaged with the inverse square of the error that the same estimate makes at measured points with the
same coordinate: an axis that predicts well counts more. A hole with neighbours on one side only takes the
nearest one's ratio, as does a point outside the grid; both are marked *extrapolated*.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import product
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from simkv.step import Provenance

Grid: TypeAlias = npt.NDArray[np.float64]

# A point is a spike if it is at least this much above every neighbour on every axis, of which at least two must
# have neighbours on both sides. Interference lengthens single measurements; a real dip or step goes on along
# some axis. Examples in public tables: a product of 991 µs between neighbours of about 310 µs.
SPIKE_FACTOR = 1.5

MEASURED, INTERPOLATED, EXTRAPOLATED = range(3)
PROVENANCES = (Provenance.MEASURED, Provenance.INTERPOLATED, Provenance.EXTRAPOLATED)
_PRIOR_POINTS = (
    3.0  # an axis' error at one coordinate is averaged with its overall error, as if of so many points
)


class Residual:
    """Ratios on a grid of named axes, complete after construction.

    `axes` maps each name to its ascending grid values; `ratios` has one dimension an axis and NaN where
    nothing was measured.
    """

    def __init__(self, axes: dict[str, Sequence[float]], ratios: Grid):
        values = [np.asarray(axis, dtype=float) for axis in axes.values()]
        if np.isnan(ratios).all():
            raise ValueError("a residual needs at least one measured point")
        filled, marks = fill(values, ratios)
        self._set(dict(zip(axes, values, strict=True)), filled, marks)

    @classmethod
    def from_points(
        cls, axes: Sequence[str], shapes: Sequence[npt.ArrayLike], ratios: npt.ArrayLike
    ) -> Residual:
        """Build the grid of scattered points, one array of coordinates an axis; spikes are left out."""
        columns = [np.asarray(column, dtype=float) for column in shapes]
        values = [np.unique(column) for column in columns]
        grid = np.full([len(axis) for axis in values], np.nan)
        where = tuple(np.searchsorted(axis, column) for axis, column in zip(values, columns, strict=True))
        grid[where] = np.asarray(ratios, dtype=float)
        grid[spikes(grid)] = np.nan
        return cls({name: axis.tolist() for name, axis in zip(axes, values, strict=True)}, grid)

    def _set(self, axes: dict[str, Grid], ratios: Grid, marks: npt.NDArray[np.int8]) -> None:
        self.axes = axes
        self.ratios = ratios
        self.marks = marks
        # plain lists: indexing them is several times faster than indexing arrays
        self._values = [axis.tolist() for axis in axes.values()]
        self._strides = [int(np.prod(ratios.shape[index + 1 :])) for index in range(ratios.ndim)]
        self._flat_ratios = ratios.ravel().tolist()
        self._flat_marks = marks.ravel().tolist()

    def __call__(self, *shape: float) -> tuple[float, Provenance]:
        """The ratio at one shape, in the order of the axes, and where it comes from."""
        ratio, mark = self._at(shape)
        return ratio, PROVENANCES[mark]

    def _at(self, shape: Sequence[float]) -> tuple[float, int]:
        base = 0
        mark = MEASURED
        between: list[tuple[int, float]] = []  # step to the upper neighbour, its weight
        for values, stride, size in zip(self._values, self._strides, shape, strict=True):
            upper = bisect_right(values, size)
            if upper == 0:
                mark = EXTRAPOLATED
            elif values[upper - 1] == size:
                base += (upper - 1) * stride
            elif upper == len(values):
                base += (upper - 1) * stride
                mark = EXTRAPOLATED
            else:
                low = values[upper - 1]
                base += (upper - 1) * stride
                between.append((stride, (size - low) / (values[upper] - low)))
        if not between:
            return self._flat_ratios[base], max(mark, self._flat_marks[base])
        corners = [(base, 1.0)]
        for stride, weight in between:
            corners = [
                corner
                for index, share in corners
                for corner in ((index, share * (1.0 - weight)), (index + stride, share * weight))
            ]
        ratio = 0.0
        mark = max(mark, INTERPOLATED)
        for index, share in corners:
            ratio += share * self._flat_ratios[index]
            mark = max(mark, self._flat_marks[index])
        return ratio, mark

    def fixed(self, **sizes: float) -> Residual:
        """The residual of fewer axes: those named are held at a size (a layer's n and k, a rank's heads)."""
        held = {name: (sizes[name],) for name in self.axes if name in sizes}
        free = {name: axis for name, axis in self.axes.items() if name not in sizes}
        if len(held) != len(sizes):
            raise ValueError(f"axes are {', '.join(self.axes)}; got {', '.join(sizes)}")
        points = [
            self._at(shape) for shape in product(*(held.get(name, axis) for name, axis in self.axes.items()))
        ]
        shape = [len(axis) for axis in free.values()]
        ratios, marks = zip(*points, strict=True)
        part = object.__new__(Residual)
        part._set(free, np.array(ratios).reshape(shape), np.array(marks, np.int8).reshape(shape))
        return part

    def predict(self, *shapes: npt.ArrayLike) -> tuple[Grid, npt.NDArray[np.int8]]:
        """Ratios and marks (indices into `PROVENANCES`) at many shapes, one array an axis."""
        columns = [np.asarray(column, dtype=float).tolist() for column in shapes]
        points = [self._at(shape) for shape in zip(*columns, strict=True)]
        return np.array([ratio for ratio, _ in points]), np.array([mark for _, mark in points], np.int8)


def spikes(ratios: Grid) -> npt.NDArray[np.bool_]:
    """True for the measured points that stick out upwards on every axis; see `SPIKE_FACTOR`."""
    num_axes = np.zeros(ratios.shape, int)
    num_above = np.zeros(ratios.shape, int)
    for axis in range(ratios.ndim):
        low, high, _ = _neighbours(ratios, axis, np.arange(ratios.shape[axis], dtype=float))
        with np.errstate(invalid="ignore"):
            num_axes += ~np.isnan(low) & ~np.isnan(high)
            num_above += ratios > SPIKE_FACTOR * np.maximum(low, high)
    spiky: npt.NDArray[np.bool_] = (num_axes >= 2) & (num_above == num_axes) & ~np.isnan(ratios)
    return spiky


def fill(axes: Sequence[Grid], ratios: Grid) -> tuple[Grid, npt.NDArray[np.int8]]:
    """Fill every hole of a grid; returns the complete grid and the mark of every cell."""
    grid = ratios.astype(float)
    marks = np.full(grid.shape, MEASURED, np.int8)
    mark = INTERPOLATED
    while np.isnan(grid).any():
        holes = np.isnan(grid)
        both, one = _estimates(axes, grid)
        # first everything that lies between measured points; only then beyond their edges
        estimate = both
        if np.isnan(both[holes]).all():
            estimate, mark = one, EXTRAPOLATED
        filled = holes & ~np.isnan(estimate)
        grid[filled] = estimate[filled]
        marks[filled] = mark
    return grid, marks


def _estimates(axes: Sequence[Grid], grid: Grid) -> tuple[Grid, Grid]:
    """Estimate every cell from its neighbours on both sides of each axis, and from those on either side."""
    sums = [np.zeros(grid.shape) for _ in range(4)]
    for axis, values in enumerate(axes):
        low, high, weight = _neighbours(grid, axis, values)
        both = low * (1.0 - weight) + high * weight
        one = np.where(np.isnan(low), high, np.where(np.isnan(high), low, both))
        trust = _trust(grid, both, axis)
        for index, estimate in ((0, both), (2, one)):
            known = ~np.isnan(estimate)
            sums[index] += np.where(known, estimate * trust, 0.0)
            sums[index + 1] += np.where(known, trust, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums[0] / sums[1], sums[2] / sums[3]


def _trust(grid: Grid, estimate: Grid, axis: int) -> Grid:
    """Inverse square of the mean relative error of an axis' estimates, at each of its coordinates."""
    with np.errstate(invalid="ignore"):
        errors = np.moveaxis(np.abs(estimate / grid - 1.0), axis, 0).reshape(grid.shape[axis], -1)
    counts = np.sum(~np.isnan(errors), axis=1)
    sums = np.nansum(errors, axis=1)
    overall = sums.sum() / max(counts.sum(), 1) if counts.any() else 1.0
    error = (sums + _PRIOR_POINTS * overall) / (counts + _PRIOR_POINTS)
    shape = [1] * grid.ndim
    shape[axis] = -1
    trust: Grid = (1.0 / (error**2 + 1e-6)).reshape(shape)
    return trust


def _neighbours(grid: Grid, axis: int, values: Grid) -> tuple[Grid, Grid, Grid]:
    """Nearest known cells below and above on one axis (NaN if none), and the weight of the upper one."""
    cells = np.moveaxis(grid, axis, 0)
    count = cells.shape[0]
    index = np.arange(count).reshape(-1, *[1] * (cells.ndim - 1))
    known = ~np.isnan(cells)
    edge = np.zeros((1, *cells.shape[1:]), int)
    below = np.maximum.accumulate(np.where(known, index, -1), axis=0)
    below = np.concatenate([edge - 1, below[:-1]])
    above = np.minimum.accumulate(np.where(known, index, count)[::-1], axis=0)[::-1]
    above = np.concatenate([above[1:], edge + count])
    low_index, high_index = np.maximum(below, 0), np.minimum(above, count - 1)
    low = np.where(below >= 0, np.take_along_axis(cells, low_index, 0), np.nan)
    high = np.where(above < count, np.take_along_axis(cells, high_index, 0), np.nan)
    gap = values[high_index] - values[low_index]
    weight = (values.reshape(index.shape) - values[low_index]) / np.where(gap > 0, gap, 1.0)
    return tuple(np.moveaxis(part, 0, axis) for part in (low, high, weight))  # type: ignore[return-value]
