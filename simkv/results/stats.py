"""Statistics of weighted samples, equal to numpy's on the expanded sample and to the same bit everywhere.

Sums are correctly rounded (`math.fsum`), so that they do not depend on how wide the processor adds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Sample = npt.NDArray[np.int64] | npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

PERCENTILES = (50, 90, 95, 99)
_NS_PER_MS = 1_000_000


def weighted_percentiles(values: Sample, counts: Counts, percentiles: Sequence[float]) -> list[float]:
    """Return percentiles of `values`, value i repeated counts[i] times, as ``numpy.percentile`` gives them.

    Nothing is repeated in memory. An empty sample gives zeros, as in ``vllm bench serve``.

    >>> weighted_percentiles(np.array([30, 10]), np.array([1, 3]), [50, 75])
    [10.0, 15.0]
    """
    num_samples = int(counts.sum())
    if num_samples == 0:
        return [0.0] * len(percentiles)
    order = np.argsort(values, kind="stable")
    ends = np.cumsum(counts[order])  # sorted value i fills the ranks ends[i-1] to ends[i] - 1

    def at_rank(rank: int) -> float:
        return float(values[order[int(np.searchsorted(ends, rank, side="right"))]])

    found = []
    for percentile in percentiles:
        position = (num_samples - 1) * (percentile / 100)
        rank = min(math.floor(position), num_samples - 1)
        low, high = at_rank(rank), at_rank(min(rank + 1, num_samples - 1))
        found.append(_between(low, high, position - rank))
    return found


def _between(low: float, high: float, share: float) -> float:
    # from the nearer end, as numpy does: then the result is monotonic in `share` and stays within [low, high]
    return high - (high - low) * (1 - share) if share >= 0.5 else low + (high - low) * share


def describe_ms(name: str, values_ns: Sample, counts: Counts | None = None) -> dict[str, float]:
    """Return mean, median, standard deviation (of the population) and percentiles, keyed as vLLM keys them.

    `values_ns` are nanoseconds, the results milliseconds; an empty sample gives zeros.
    """
    if counts is None:
        counts = np.ones(len(values_ns), dtype=np.int64)
    mean_ns, std_ns = _mean_and_std(values_ns, counts)
    found = dict(zip(PERCENTILES, weighted_percentiles(values_ns, counts, PERCENTILES), strict=True))
    return {
        f"mean_{name}_ms": mean_ns / _NS_PER_MS,
        f"median_{name}_ms": found[50] / _NS_PER_MS,
        f"std_{name}_ms": std_ns / _NS_PER_MS,
    } | {f"p{percentile}_{name}_ms": value_ns / _NS_PER_MS for percentile, value_ns in found.items()}


def _mean_and_std(values: Sample, counts: Counts) -> tuple[float, float]:
    num_samples = int(counts.sum())
    if num_samples == 0:
        return 0.0, 0.0
    mean = math.fsum((values * counts).tolist()) / num_samples
    variance = math.fsum((counts * (values - mean) ** 2).tolist()) / num_samples
    return mean, math.sqrt(variance)
