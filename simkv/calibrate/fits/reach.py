"""How far a measured deviation of a collective reaches along its messages: chosen by leaving out one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt

import numpy as np

from simkv.cost.message_residual import MessageResidual, Ratios

# Doublings of the message, to choose from. The last is a line between neighbours; below the first, a gap of one
# missing doubling forgets nearly all: the form alone.
OCTAVES = (0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 64.0)
_OUTLIER = 0.05  # as in the fits: errors beyond count linearly


def choose_octaves(tables: Sequence[tuple[Ratios, Sequence[float]]]) -> float:
    """Return the reach with which messages are predicted best by the others of their group size.

    `tables` has ratios with the sizes at which the kernel changes, one pair for each group size and op.
    """
    costs = [sum(_cost(ratios, changes, octaves) for ratios, changes in tables) for octaves in OCTAVES]
    return OCTAVES[int(np.argmin(costs))]


def _cost(ratios: Ratios, changes: Sequence[float], octaves: float) -> float:
    cost = 0.0
    for index, (size, ratio) in enumerate(zip(*(column.tolist() for column in ratios), strict=True)):
        others = Ratios(np.delete(ratios.num_bytes, index), np.delete(ratios.ratios, index))
        if len(others.num_bytes):
            guess, _ = MessageResidual(others, octaves, changes).at(size)
            cost += sqrt(1.0 + ((guess - log(ratio)) / _OUTLIER) ** 2)
    return cost
