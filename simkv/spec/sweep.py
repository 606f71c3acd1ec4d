"""What a sweep asks: a grid over fields of the scenario, what to find at each point, under which limits."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from simkv.errors import did_you_mean
from simkv.spec.base import PositiveFloat, Spec

_STATISTICS = ("mean", "median", "p50", "p90", "p95", "p99")
LATENCY_METRICS = tuple(
    f"{latency}_{statistic}_ms" for latency in ("ttft", "tpot", "itl", "e2el") for statistic in _STATISTICS
)
GOODPUT = "goodput"  # the share of requests within the scenario's own `slo`


class FindSpec(Spec):
    """The largest or the smallest value of a numeric field that meets the limits.

    low, high   values beyond these are not tried
    start       the first value tried; the scenario's own unless given
    tolerance   relative: `max` meets the limits, max · (1 + tolerance) was seen not to
    """

    max: str | None = None
    min: str | None = None
    low: PositiveFloat | None = None
    high: PositiveFloat | None = None
    start: PositiveFloat | None = None
    tolerance: Annotated[float, Field(ge=0.001, le=0.5)] = 0.025

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.max is None) == (self.min is None):
            raise ValueError("expected exactly one of max: FIELD and min: FIELD")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low: {self.low:g} is above high {self.high:g}")
        if self.start is not None and not (self.low or 0) <= self.start <= (self.high or self.start):
            raise ValueError(f"start: {self.start:g} is not between low and high")
        return self

    @property
    def field(self) -> str:
        """The field whose value is looked for."""
        return self.max or self.min or ""

    @property
    def is_max(self) -> bool:
        """True: the largest value is looked for; larger values are harder to serve."""
        return self.max is not None

    def __str__(self) -> str:
        return f"{'max' if self.is_max else 'min'} {self.field}"


class SweepSpec(Spec):
    """The ``sweep:`` section of a scenario file; what follows on the command line adds to it or replaces it.

    grid   for each field its values: a list, or text as after ``--set`` (``0.5:4:0.5``)
    slo    limits on metrics of a run: at most so many milliseconds, at least that goodput
    """

    grid: dict[str, Any] = Field(default_factory=dict)
    find: FindSpec | None = None
    slo: dict[str, PositiveFloat] = Field(default_factory=dict)

    @field_validator("slo")
    @classmethod
    def _check_slo(cls, slo: dict[str, float]) -> dict[str, float]:
        for name, limit in slo.items():
            if name not in (*LATENCY_METRICS, GOODPUT):
                swapped = "_".join(
                    sorted(name.split("_"), key=lambda word: word[:1] == "p" or word == "mean")
                )
                hint = did_you_mean(name, LATENCY_METRICS) or did_you_mean(swapped, LATENCY_METRICS)
                raise ValueError(
                    f"{name}: unknown metric{hint}; known: {GOODPUT} and ttft, tpot, itl, e2el with "
                    f"_{', _'.join(_STATISTICS)} and _ms, such as ttft_p99_ms"
                )
            if name == GOODPUT and limit > 1:
                raise ValueError(f"{name}: wanted a share of the requests, 0 to 1, got {limit:g}")
        return slo
