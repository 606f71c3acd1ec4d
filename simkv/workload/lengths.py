"""Lengths of prompts and outputs drawn from a `LengthSpec`, and times from a `TimeSpec`."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from simkv.spec.lengths import LengthSpec, LognormalLen, TimeSpec
from simkv.units import to_ns
from simkv.workload.presets import Side, preset_quantiles

# The 99th percentile of the standard normal distribution.
_Z99 = 2.3263478740408408


def sample_lengths(spec: LengthSpec, n: int, rng: np.random.Generator, side: Side = "prompt") -> list[int]:
    """Return `n` lengths in tokens, each at least 1; a fixed length draws nothing from `rng`.

    side   of which lengths of a trace a preset means
    """
    if spec.fixed is not None:
        return [spec.fixed] * n
    if spec.uniform is not None:
        lengths: list[int] = rng.integers(spec.uniform.min, spec.uniform.max, size=n, endpoint=True).tolist()
        return lengths
    if spec.lognormal is not None:
        return _lognormal(spec.lognormal, n, rng)
    if spec.quantiles is not None:
        return _quantiles(spec.quantiles, n, rng)
    assert spec.preset is not None, "a LengthSpec has exactly one distribution"
    return _quantiles(preset_quantiles(spec.preset, side), n, rng)


def sample_times_ns(spec: TimeSpec | None, n: int, rng: np.random.Generator) -> list[int]:
    """Return `n` durations in nanoseconds; None means 0 and, like a fixed time, draws nothing from `rng`."""
    if spec is None or spec.exponential is None:
        return [to_ns(spec.fixed or 0.0) if spec is not None else 0] * n
    return [to_ns(time_s) for time_s in rng.exponential(spec.exponential.mean, size=n).tolist()]


def _lognormal(spec: LognormalLen, n: int, rng: np.random.Generator) -> list[int]:
    """Lognormal with ``mu = ln(median)`` and ``sigma = ln(p99 / median) / z99``, rounded and cut."""
    sigma = math.log(spec.p99 / spec.median) / _Z99
    drawn = rng.lognormal(math.log(spec.median), sigma, size=n)
    cut = np.clip(np.rint(drawn), 1, spec.max)
    return [int(length) for length in cut]


def _quantiles(quantiles: Mapping[float, int], n: int, rng: np.random.Generator) -> list[int]:
    """The inverse of a distribution function that is linear between the points, rounded."""
    drawn = np.interp(rng.random(n), list(quantiles), list(quantiles.values()))
    return [int(length) for length in np.rint(drawn)]
