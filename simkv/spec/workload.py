"""What the clients send: when requests arrive, how long prompts and outputs are."""

from __future__ import annotations

from math import floor
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from simkv.spec.base import PositiveInt, Spec, as_tuple

# Bounds against slips of the keyboard: within them a run ends, its memory suffices, and its nanoseconds fit
# into 64 bits.
MAX_LEN_TOKENS = 100_000_000  # ten times the longest context that any model claims
MAX_NUM_PROMPTS = 10_000_000  # some 10 GB of requests
MAX_DURATION_S = 1e9  # 32 years
MAX_P99_OVER_MEDIAN = 10_000

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


class LengthSpec(Spec):
    """A distribution of lengths in tokens: a number in the file means `fixed`."""

    fixed: NumTokens | None = None
    uniform: UniformLen | None = None
    lognormal: LognormalLen | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if sum(given is not None for given in (self.fixed, self.uniform, self.lognormal)) != 1:
            raise ValueError(
                "expected exactly one of a number, uniform: {min, max} or lognormal: {median, p99}"
            )
        return self


def _as_length(value: Any) -> Any:
    return {"fixed": value} if isinstance(value, int) and not isinstance(value, bool) else value


Length = Annotated[LengthSpec, BeforeValidator(_as_length)]


class GivenRequest(Spec):
    """One request written out in the scenario; its first `prefix_len` tokens are those of all others'."""

    arrival_s: Annotated[float, Field(ge=0, le=MAX_DURATION_S)] = 0.0
    prompt_len: NumTokens
    output_len: NumTokens
    prefix_len: Annotated[int, Field(ge=0, le=MAX_LEN_TOKENS)] = 0
    priority: int = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.prefix_len > self.prompt_len:
            raise ValueError(f"prefix_len: {self.prefix_len} is above prompt_len {self.prompt_len}")
        return self


class WorkloadSpec(Spec):
    """Requests of one run; names are those of ``vllm bench serve``.

    arrival          ``poisson``, ``gamma`` (with `burstiness`), ``constant`` or ``inf`` (all at once)
    max_concurrency  requests on their way at most; further ones wait at the client, first in first out
    dataset_name     ``lengths``: `prompt_len` and `output_len`; ``random``: vLLM's random data set
                     (`random_*`); ``azure``: the CSV of the Azure LLM inference trace 2023 at `dataset_path`;
                     ``requests``: those written out in `requests`
    ignore_eos       True: the engine knows that outputs end at their length; False: they end with a stop
                     token, which a scheduler that runs ahead of its tokens cannot foresee
    """

    arrival: Literal["poisson", "gamma", "constant", "inf"] | None = None
    request_rate: Annotated[float, Field(gt=0, le=1e9)] | None = None  # one a tick of the clock at most
    burstiness: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0
    max_concurrency: PositiveInt | None = None
    num_prompts: Annotated[int, Field(gt=0, le=MAX_NUM_PROMPTS)] | None = None
    dataset_name: Literal["lengths", "random", "azure", "requests"] = "lengths"
    requests: Annotated[tuple[GivenRequest, ...], BeforeValidator(as_tuple)] = ()
    ignore_eos: bool = True
    prompt_len: Length | None = None
    output_len: Length | None = None
    random_input_len: NumTokens = 1024
    random_output_len: NumTokens = 128
    random_range_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.0
    random_prefix_len: Annotated[int, Field(ge=0, le=MAX_LEN_TOKENS)] = 0
    dataset_path: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.dataset_name == "lengths":
            for name in ("prompt_len", "output_len"):
                if getattr(self, name) is None:
                    raise ValueError(f"{name}: missing; wanted a length (or another dataset_name)")
        if bool(self.requests) != (self.dataset_name == "requests"):
            raise ValueError("requests: belong to dataset_name: requests, which needs at least one")
        if self.dataset_name in ("azure", "requests"):
            if self.dataset_name == "azure" and self.dataset_path is None:
                raise ValueError("dataset_path: expected the path of the trace, got nothing")
            if self.arrival is not None or self.request_rate is not None:
                raise ValueError(
                    "arrival: a trace brings its own arrival times; remove arrival and request_rate"
                )
        elif self.resolved_arrival != "inf" and self.request_rate is None:
            raise ValueError(
                f"request_rate: expected requests per second for arrival {self.arrival}, got nothing"
            )
        if self.request_rate is not None and self.resolved_num_prompts > self.request_rate * MAX_DURATION_S:
            raise ValueError(
                f"request_rate: {self.resolved_num_prompts} requests at {self.request_rate:g} a second take "
                f"more than {MAX_DURATION_S:g} seconds; raise it or lower num_prompts"
            )
        if self.burstiness != 1 and self.arrival not in (None, "gamma"):
            raise ValueError(f"burstiness: only arrival: gamma has it; remove it or arrival: {self.arrival}")
        if self.dataset_name == "random":
            shortest = floor(self.random_input_len * (1 - self.random_range_ratio))
            if shortest + self.random_prefix_len < 1:
                raise ValueError(
                    f"random_input_len: with random_range_ratio {self.random_range_ratio:g} the shortest "
                    "prompt has 0 tokens; raise random_input_len or random_prefix_len, or lower the ratio"
                )
        return self

    @property
    def resolved_arrival(self) -> str:
        """The arrival process; without one, as ``vllm bench serve``: all at once unless there is a rate."""
        if self.arrival is not None:
            return self.arrival
        if self.request_rate is None:
            return "inf"
        return "poisson" if self.burstiness == 1 else "gamma"

    @property
    def resolved_num_prompts(self) -> int:
        """Number of requests; 1,000 as in ``vllm bench serve`` if not given."""
        return self.num_prompts or len(self.requests) or 1000
