"""Distributions of lengths in tokens and of times in seconds, as a scenario writes them."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from simkv.spec.base import Spec

# Bounds against slips of the keyboard.
MAX_LEN_TOKENS = 100_000_000  # ten times the longest context that any model claims
MAX_P99_OVER_MEDIAN = 10_000
MAX_TIME_S = 1e5  # more than a day

NumTokens = Annotated[int, Field(gt=0, le=MAX_LEN_TOKENS)]


class UniformLen(Spec):
    """Integers between `min` and `max`, both included."""

    min: NumTokens
    max: NumTokens

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min: {self.min} is above max {self.max}")
        return self


class LognormalLen(Spec):
    """Lognormal lengths by their median and 99th percentile, cut at `max` if given, at least 1."""

    median: Annotated[float, Field(gt=0, le=MAX_LEN_TOKENS)]
    p99: Annotated[float, Field(gt=0, le=MAX_LEN_TOKENS)]
    max: NumTokens | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.p99 < self.median:
            raise ValueError(f"p99: {self.p99:g} is below the median {self.median:g}")
        if self.p99 / MAX_P99_OVER_MEDIAN > self.median:
            raise ValueError(
                f"p99: {self.p99:g} is more than {MAX_P99_OVER_MEDIAN:,} times the median {self.median:g}"
            )
        return self


def _as_quantiles(raw: Any) -> Any:
    """Probabilities are numbers, whatever a YAML reader makes of keys."""
    if not isinstance(raw, dict):
        return raw
    quantiles = {_as_number(key): value for key, value in raw.items()}
    if len(quantiles) < len(raw):
        raise ValueError("expected every probability once, got one twice")
    return quantiles


def _as_number(key: Any) -> Any:
    try:
        return float(key) if isinstance(key, str) else key
    except ValueError:
        return key


def _in_order(quantiles: dict[float, int]) -> dict[float, int]:
    if not {0.0, 1.0} <= set(quantiles):
        raise ValueError("expected lengths at 0 and 1 at least, such as {0: 10, 0.5: 200, 1: 4000}")
    ordered = sorted(quantiles.items())
    for (low, shorter), (high, longer) in pairwise(ordered):
        if longer < shorter:
            raise ValueError(f"expected lengths that grow, got {shorter} at {low:g} and {longer} at {high:g}")
    return dict(ordered)


Probability = Annotated[float, Field(ge=0, le=1)]
Quantiles = Annotated[dict[Probability, NumTokens], BeforeValidator(_as_quantiles), AfterValidator(_in_order)]


class LengthSpec(Spec):
    """A distribution of lengths in tokens: a number in the file means `fixed`.

    quantiles   lengths by probability, 0 and 1 among them; linear in between
    preset      quantiles of a public trace: of its prompts or of its outputs, as the field asks
    """

    fixed: NumTokens | None = None
    uniform: UniformLen | None = None
    lognormal: LognormalLen | None = None
    quantiles: Quantiles | None = None
    preset: Literal["azure_conv_2023", "azure_code_2023", "mooncake_conversation"] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        kinds = (self.fixed, self.uniform, self.lognormal, self.quantiles, self.preset)
        if sum(given is not None for given in kinds) != 1:
            raise ValueError(
                "expected exactly one of a number, uniform: {min, max}, lognormal: {median, p99}, "
                "quantiles: {0: …, …, 1: …} or preset"
            )
        return self

    @property
    def max(self) -> int | None:
        """The largest length that can be drawn, None where the fields do not say."""
        if self.uniform is not None:
            return self.uniform.max
        if self.lognormal is not None:
            return self.lognormal.max
        return self.fixed if self.quantiles is None else self.quantiles[1.0]


def _as_length(value: Any) -> Any:
    return {"fixed": value} if isinstance(value, int) and not isinstance(value, bool) else value


Length = Annotated[LengthSpec, BeforeValidator(_as_length)]


class ExponentialTime(Spec):
    """Exponentially distributed seconds by their mean."""

    mean: Annotated[float, Field(gt=0, le=MAX_TIME_S)]


class TimeSpec(Spec):
    """A distribution of seconds: a number in the file means `fixed`."""

    fixed: Annotated[float, Field(ge=0, le=MAX_TIME_S)] | None = None
    exponential: ExponentialTime | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.fixed is None) == (self.exponential is None):
            raise ValueError("expected exactly one of a number of seconds or exponential: {mean}")
        return self


def _as_time(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {"fixed": value} if is_number else value


Time = Annotated[TimeSpec, BeforeValidator(_as_time)]
