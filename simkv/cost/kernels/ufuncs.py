"""Minimum, maximum and logarithm that take scalars quickly and arrays elementwise.

Fits evaluate a family on a whole table at once; a simulation evaluates one shape at a time, where a numpy
function on a float costs more than the arithmetic around it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Values: TypeAlias = Any  # an int, a float or a numpy array of them; results have the shape of the arguments


class Timing(NamedTuple):
    """Seconds of a kernel, and whether memory rather than arithmetic binds it."""

    seconds: Values
    is_memory_bound: Values


def larger(a: Values, b: Values) -> Values:
    """The larger of two values, elementwise."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.maximum(a, b)
    return a if a > b else b


def smaller(a: Values, b: Values) -> Values:
    """The smaller of two values, elementwise."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.minimum(a, b)
    return a if a < b else b


def log2(a: Values) -> Values:
    """The binary logarithm, elementwise."""
    return np.log2(a) if isinstance(a, np.ndarray) else math.log2(a)


def where(condition: Values, a: Values, b: Values) -> Values:
    """`a` where the condition holds, `b` elsewhere."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, a, b)
    return a if condition else b


def smooth_max(a: Values, b: Values, sharpness: float) -> Values:
    """(aᵖ + bᵖ)^(1/p): the sum for p = 1, the larger for p → ∞; increasing in both."""
    # divided by the larger: seconds to the power of 10 underflow
    top = larger(larger(a, b), 1e-30)
    return top * ((a / top) ** sharpness + (b / top) ** sharpness) ** (1.0 / sharpness)
