"""Physical units: prefixes parsed once at the edge, integer nanoseconds inside.

>>> parse_quantity("3.35 TB/s", "bytes_per_s")
3350000000000.0
>>> parse_quantity("79.2 GiB", "bytes")
85040352460.8
>>> to_ns(0.0012)
1200000
"""

from __future__ import annotations

import re

GIB = 2**30
MIB = 2**20
NS_PER_S = 1_000_000_000

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_SUBUNIT = {"": 1.0, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9}

# dimension -> {written unit: factor to SI}
_UNITS: dict[str, dict[str, float]] = {
    "bytes": {p + "B": f for p, f in (_DECIMAL | _BINARY).items()},
    "bytes_per_s": {p + "B/s": f for p, f in (_DECIMAL | _BINARY).items()}
    | {p + "b/s": f / 8 for p, f in _DECIMAL.items()},
    "flops": {p + u: f for p, f in _DECIMAL.items() for u in ("FLOP/s", "FLOPS", "OP/s")},
    "s": {p + "s": f for p, f in _SUBUNIT.items()},
}
_NUMBER_AND_UNIT = re.compile(r"\s*([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*([^\s0-9].*?)\s*")


def parse_quantity(text: str, dimension: str) -> float:
    """Return the SI value of a number with a unit; raise ValueError naming the units known.

    `dimension` is one of ``bytes``, ``bytes_per_s``, ``flops``, ``s``.
    """
    units = _UNITS[dimension]
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None or match[2] not in units:
        raise ValueError(f"expected a number with a unit such as {_example(dimension)}, got {text!r}")
    try:
        return float(match[1]) * units[match[2]]
    except ValueError:
        raise ValueError(f"expected a number before the unit, got {text!r}") from None


def _example(dimension: str) -> str:
    return {"bytes": "'80 GB'", "bytes_per_s": "'3.35 TB/s'", "flops": "'989 TFLOP/s'", "s": "'5.6 us'"}[
        dimension
    ]


def to_ns(seconds: float) -> int:
    """Round a duration to the simulated clock's unit, the nanosecond."""
    return round(seconds * NS_PER_S)


def to_s(nanoseconds: int) -> float:
    """Return a duration of the simulated clock in seconds."""
    return nanoseconds / NS_PER_S


def ceil_div(numerator: int, denominator: int) -> int:
    """Divide integers, rounding up.

    >>> ceil_div(17, 16)
    2
    """
    return -(-numerator // denominator)
