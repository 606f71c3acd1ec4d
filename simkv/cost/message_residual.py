"""What the form of a collective leaves over: measured over physical seconds by size of the message.

Tables of collectives have one message per doubling, so a neighbour says less than in the dense tables of products
(`simkv.cost.residual`). Group sizes are apart: each has its own rate in the form. Between two measured messages the
logarithm of the ratio is that of an Ornstein-Uhlenbeck process through both, with mean 0:

    log r(x) = (sinh((b - x)/L)·log r(a) + sinh((x - a)/L)·log r(b)) / sinh((b - a)/L),    x = log2(bytes)

It passes through the measured points, is linear in log size for a long L, and returns to the form alone in a gap
that is wide against L, the doublings over which a deviation lasts. `simkv.calibrate` chooses L by leaving out each
point that it fits. Nothing is carried over a size at which the engine changes its kernel, nor is it there that the
form has no kernel of its own. Beyond the outermost points their ratio holds, marked *extrapolated*: latency and
bandwidth do not change any more.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from math import exp, inf, log2, sinh
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simkv.cost.residual import EXTRAPOLATED, INTERPOLATED, MEASURED, PROVENANCES, SPIKE_FACTOR
from simkv.step import Provenance

# A gap of so many L has forgotten both its ends; sinh would overflow.
_FORGOTTEN = 50.0


class Ratios(NamedTuple):
    """Measured messages of one group size, ascending: bytes, measured over physical seconds."""

    num_bytes: npt.NDArray[np.float64]
    ratios: npt.NDArray[np.float64]


class MessageResidual:
    """Ratios of one collective and group size.

    octaves   L, doublings of the message; infinite for lines in log size
    changes   sizes in bytes from which the engine takes another kernel
    """

    def __init__(self, points: Ratios, octaves: float = inf, changes: Sequence[float] = ()):
        if not len(points.num_bytes):
            raise ValueError("a residual needs at least one measured point")
        self.octaves = octaves
        self._changes = sorted(changes)
        self._num_bytes: list[float] = points.num_bytes.tolist()
        self._places: list[float] = np.log2(points.num_bytes).tolist()
        self._logs: list[float] = np.log(points.ratios).tolist()
        self._kernels = [bisect_right(self._changes, size) for size in self._num_bytes]

    def __call__(self, num_bytes: float) -> tuple[float, Provenance]:
        """The ratio at one size, and where it comes from."""
        log, mark = self.at(num_bytes)
        return exp(log), PROVENANCES[mark]

    def at(self, num_bytes: float) -> tuple[float, int]:
        """The logarithm of the ratio at one size, and its mark (an index into `PROVENANCES`)."""
        upper = bisect_left(self._num_bytes, num_bytes)
        if upper < len(self._num_bytes) and self._num_bytes[upper] == num_bytes:
            return self._logs[upper], MEASURED
        kernel = bisect_right(self._changes, num_bytes)
        has_lower = upper > 0 and self._kernels[upper - 1] == kernel
        has_upper = upper < len(self._num_bytes) and self._kernels[upper] == kernel
        if has_lower and has_upper:
            return self._between(upper, log2(num_bytes)), INTERPOLATED
        is_inside = 0 < upper < len(self._num_bytes)
        mark = INTERPOLATED if is_inside else EXTRAPOLATED
        if has_lower or has_upper:
            return self._logs[upper - 1 if has_lower else upper], mark
        return 0.0, mark

    def _between(self, upper: int, place: float) -> float:
        low, high = self._places[upper - 1], self._places[upper]
        gap = (high - low) / self.octaves
        if gap > _FORGOTTEN:
            return 0.0
        weight = (place - low) / (high - low)
        first, second = (1 - weight, weight) if gap < 1e-6 else _bridge(gap, weight)
        return first * self._logs[upper - 1] + second * self._logs[upper]


def _bridge(gap: float, weight: float) -> tuple[float, float]:
    return sinh(gap * (1 - weight)) / sinh(gap), sinh(gap * weight) / sinh(gap)


class GroupResidual:
    """Ratios of one collective at every group size that was measured."""

    def __init__(self, by_size: Mapping[int, MessageResidual]):
        self.by_size = dict(by_size)

    def predict(
        self, world_size: npt.ArrayLike, num_bytes: npt.ArrayLike
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int8]]:
        """Ratios and marks at many points; 1 for a group size that was not measured."""
        sizes, messages = (np.asarray(column, float).tolist() for column in (world_size, num_bytes))
        alone = (0.0, EXTRAPOLATED)
        found = [
            self.by_size[int(size)].at(message) if size in self.by_size else alone
            for size, message in zip(sizes, messages, strict=True)
        ]
        return np.exp([log for log, _ in found]), np.array([mark for _, mark in found], np.int8)


def measured_ratios(num_bytes: npt.ArrayLike, seconds: npt.ArrayLike, physical: npt.ArrayLike) -> Ratios:
    """Ratios by ascending size, without spikes: what takes `SPIKE_FACTOR` times the next larger message."""
    sizes, measured, form = (np.asarray(column, float) for column in (num_bytes, seconds, physical))
    order = np.argsort(sizes, kind="stable")
    sizes, measured, form = sizes[order], measured[order], form[order]
    kept = np.append(measured[:-1] <= SPIKE_FACTOR * measured[1:], True)
    return Ratios(sizes[kept], (measured / form)[kept])
