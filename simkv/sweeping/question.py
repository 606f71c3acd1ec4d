"""What a sweep asks beside its grid, as given on the command line or in Python: a search and its limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from simkv.errors import ScenarioError
from simkv.load.document import parse_scalar
from simkv.load.faults import faults_of, shown
from simkv.spec.sweep import FindSpec, SweepSpec


def parse_find(find: str | Mapping[str, Any]) -> FindSpec:
    """Read ``max FIELD`` or ``min FIELD``, perhaps with ``LOW:HIGH`` behind it, or the fields of a `FindSpec`.

    >>> parse_find("max workload.request_rate 0.1:").low
    0.1
    """
    if isinstance(find, str):
        words = find.split()
        if len(words) not in (2, 3) or words[0] not in ("max", "min"):
            raise ScenarioError(
                f"--find: wanted max FIELD or min FIELD, such as 'max workload.request_rate', got {shown(find)}"
            )
        find = {words[0]: words[1]} | (_bounds(words[2]) if len(words) == 3 else {})
    try:
        return FindSpec.model_validate(dict(find))
    except ValidationError as error:
        raise ScenarioError(faults_of(error, FindSpec, (), lambda _: "--find")) from None


def _bounds(text: str) -> dict[str, float]:
    low, colon, high = text.partition(":")
    bounds = {"low": parse_scalar(low), "high": parse_scalar(high)}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    if not colon or not given or not all(_is_number(bound) for bound in given.values()):
        raise ScenarioError(f"--find: wanted LOW:HIGH, such as 0.1:10, got {shown(text)}")
    return given


def parse_limits(options: Sequence[str]) -> dict[str, float]:
    """Read the limits of ``--slo``; of two for one metric the later holds.

    >>> parse_limits(["ttft_p99_ms=3000,tpot_mean_ms=50", "goodput=0.95"])
    {'ttft_p99_ms': 3000, 'tpot_mean_ms': 50, 'goodput': 0.95}
    """
    limits: dict[str, float] = {}
    for item in (item.strip() for option in options for item in option.split(",")):
        name, _, number = item.partition("=")
        limit = parse_scalar(number.strip())
        if not _is_number(limit):
            raise ScenarioError(f"--slo: wanted METRIC=NUMBER, such as ttft_p99_ms=3000, got {shown(item)}")
        limits[name.strip()] = limit
    return limits


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def with_limits(spec: SweepSpec, slo: Mapping[str, float]) -> SweepSpec:
    """Return the question with further limits, which replace those on the same metrics."""
    try:
        return spec.replace(slo=spec.slo | dict(slo))
    except ValidationError as error:
        faults = faults_of(error, SweepSpec, (), lambda _: "--slo")
        raise ScenarioError([fault.replace("--slo: slo", "--slo", 1) for fault in faults]) from None
