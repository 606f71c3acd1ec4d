"""The largest (or smallest) value that meets the limits, in few runs: bracket exponentially, then bisect.

Pure: takes a function that says of a value whether it meets them. The function need not be monotonic for the
search to end, nor for its result to meet the limits; only then is the result *the* limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

_MAX_EXPANSIONS = 5  # by 2, 4, 8, 16, 32: to 32,768 times the start
MAX_RUNS = 14  # the start, 5 expansions, and 8 bisections of a factor of 32 to 2.5 %; mostly 7 to 11 are made
_SIGNIFICANT_DIGITS = 5


@dataclass(frozen=True)
class Range:
    """What may be tried.

    start     the first value
    low       the smallest value that is tried
    high      the largest value that is tried
    ceiling   a value that is known not to be served, and so nothing from it on is tried (`max` only)
    is_int    True: whole numbers only
    """

    start: float
    low: float | None = None
    high: float | None = None
    ceiling: float | None = None
    is_int: bool = False

    def tidy(self, value: float) -> float:
        """Return the value within the bounds, as a whole number or with few digits."""
        tidied = max(1, round(value)) if self.is_int else float(f"{value:.{_SIGNIFICANT_DIGITS}g}")
        if self.low is not None:
            tidied = max(tidied, math.ceil(self.low) if self.is_int else self.low)
        if self.high is not None:
            tidied = min(tidied, math.floor(self.high) if self.is_int else self.high)
        return tidied


@dataclass(frozen=True)
class Found:
    """What a search came to.

    value      the best value that meets the limits; None if none did
    fails_at   the nearest value beyond it that does not; None if all that was tried does
    num_runs   how many values were tried
    """

    value: float | None
    fails_at: float | None
    num_runs: int


def find_limit(
    meets: Callable[[float], bool],
    values: Range,
    *,
    is_max: bool = True,
    tolerance: float = 0.025,
    max_runs: int = MAX_RUNS,
) -> Found:
    """Return the limit to within `tolerance`: ``fails_at / value ≤ 1 + tolerance`` (or neighbouring integers).

    >>> find_limit(lambda value: value <= 11.8, Range(start=1.0))
    Found(value=11.624, fails_at=11.815, num_runs=11)
    """
    good: float | None = None
    has_ceiling = is_max and values.ceiling is not None and values.ceiling <= (values.high or math.inf)
    bad = values.ceiling if has_ceiling else None
    value = values.tidy(values.start if bad is None else min(values.start, bad / 2))
    num_runs = num_expansions = 0
    while num_runs < max_runs:
        num_runs += 1
        if meets(value):
            good = value
        else:
            bad = value
        if good is not None and bad is not None:
            following = _between(good, bad, tolerance, values)
        elif num_expansions == _MAX_EXPANSIONS:
            break
        else:
            num_expansions += 1
            factor = 2.0**num_expansions
            is_upwards = (good is not None) == is_max
            following = values.tidy(value * factor if is_upwards else value / factor)
        if following is None or following == value:  # close enough, or at the end of the range
            break
        value = following
    return Found(good, bad, num_runs)


def _between(good: float, bad: float, tolerance: float, values: Range) -> float | None:
    """The next value to try, None if the two are close enough."""
    low, high = sorted((good, bad))
    if high <= low * (1 + tolerance) or (values.is_int and high - low <= 1):
        return None
    middle = values.tidy(math.sqrt(low * high))
    if values.is_int:
        middle = min(max(middle, math.floor(low) + 1), math.ceil(high) - 1)
    return middle if low < middle < high else None
