"""Lengths of prompts and outputs drawn from a `LengthSpec`."""

from __future__ import annotations

import math

import numpy as np

from simkv.spec.workload import LengthSpec, LognormalLen

# The 99th percentile of the standard normal distribution.
_Z99 = 2.3263478740408408


def sample_lengths(spec: LengthSpec, n: int, rng: np.random.Generator) -> list[int]:
    """Return `n` lengths in tokens, each at least 1; a fixed length draws nothing from `rng`."""
    if spec.fixed is not None:
        return [spec.fixed] * n
    if spec.uniform is not None:
        lengths: list[int] = rng.integers(spec.uniform.min, spec.uniform.max, size=n, endpoint=True).tolist()
        return lengths
    assert spec.lognormal is not None, "a LengthSpec has exactly one distribution"
    return _lognormal(spec.lognormal, n, rng)


def _lognormal(spec: LognormalLen, n: int, rng: np.random.Generator) -> list[int]:
    """Lognormal with ``mu = ln(median)`` and ``sigma = ln(p99 / median) / z99``, rounded and cut."""
    sigma = math.log(spec.p99 / spec.median) / _Z99
    drawn = rng.lognormal(math.log(spec.median), sigma, size=n)
    cut = np.clip(np.rint(drawn), 1, spec.max)
    return [int(length) for length in cut]
