"""What the clients send: when requests arrive, how long prompts and outputs are."""

from __future__ import annotations

from math import floor
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from simkv.spec.base import PositiveInt, Spec, as_tuple
from simkv.spec.lengths import MAX_LEN_TOKENS, Length, NumTokens, Time

# Bounds against slips of the keyboard: within them a run ends, its memory suffices, and its nanoseconds fit
# into 64 bits.
MAX_NUM_PROMPTS = 10_000_000  # some 10 GB of requests
MAX_DURATION_S = 1e9  # 32 years
MAX_NUM_TURNS = 10_000  # with as many of the longest times to think a session ends within MAX_DURATION_S

TRACES = ("azure", "mooncake", "burstgpt", "jsonl", "vllm_bench")
# Fields that only some data sets have: elsewhere they would silently do nothing.
_ONLY_IN: dict[str, tuple[str, ...]] = {
    "dataset_path": TRACES,
    "request_rate_scale": (*TRACES, "requests"),
    "system_prompt_len": ("lengths", "sessions"),
    **dict.fromkeys(("num_sessions", "num_turns", "turn_len", "think_time_s"), ("sessions",)),
}


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
                     (`random_*`); ``sessions``: conversations of `num_turns` turns; ``requests``: those
                     written out in `requests`; the others: a trace at `dataset_path`
    ignore_eos       True: the engine knows that outputs end at their length; False: they end with a stop
                     token, which a scheduler that runs ahead of its tokens cannot foresee

    Sessions start by the arrival process. `prompt_len` are the user's tokens of a first turn, `turn_len`
    (None = as `prompt_len`) those of a later one, which comes `think_time_s` after the answer before it and
    quotes all that was said. `system_prompt_len` tokens, the same for all, come before those of `prompt_len`.
    """

    arrival: Literal["poisson", "gamma", "constant", "inf"] | None = None
    request_rate: Annotated[float, Field(gt=0, le=1e9)] | None = None  # one a tick of the clock at most
    request_rate_scale: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0
    burstiness: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0
    max_concurrency: PositiveInt | None = None
    num_prompts: Annotated[int, Field(gt=0, le=MAX_NUM_PROMPTS)] | None = None
    dataset_name: Literal[
        "lengths", "random", "sessions", "requests", "azure", "mooncake", "burstgpt", "jsonl", "vllm_bench"
    ] = "lengths"
    dataset_path: str | None = None
    requests: Annotated[tuple[GivenRequest, ...], BeforeValidator(as_tuple)] = ()
    ignore_eos: bool = True
    prompt_len: Length | None = None
    output_len: Length | None = None
    system_prompt_len: Annotated[int, Field(ge=0, le=MAX_LEN_TOKENS)] = 0
    num_sessions: Annotated[int, Field(gt=0, le=MAX_NUM_PROMPTS)] | None = None
    num_turns: Length | None = None
    turn_len: Length | None = None
    think_time_s: Time | None = None
    random_input_len: NumTokens = 1024
    random_output_len: NumTokens = 128
    random_range_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.0
    random_prefix_len: Annotated[int, Field(ge=0, le=MAX_LEN_TOKENS)] = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_data_set()
        self._check_arrivals()
        if self.dataset_name == "sessions":
            self._check_sessions()
        if self.dataset_name == "random":
            shortest = floor(self.random_input_len * (1 - self.random_range_ratio))
            if shortest + self.random_prefix_len < 1:
                raise ValueError(
                    f"random_input_len: with random_range_ratio {self.random_range_ratio:g} the shortest "
                    "prompt has 0 tokens; raise random_input_len or random_prefix_len, or lower the ratio"
                )
        return self

    def _check_data_set(self) -> None:
        for name, data_sets in _ONLY_IN.items():
            default = type(self).model_fields[name].default
            if getattr(self, name) != default and self.dataset_name not in data_sets:
                raise ValueError(
                    f"{name}: dataset_name: {self.dataset_name} has none (only {', '.join(data_sets)})"
                )
        if self.dataset_name in ("lengths", "sessions"):
            for name in ("prompt_len", "output_len"):
                if getattr(self, name) is None:
                    raise ValueError(f"{name}: missing; wanted a length (or another dataset_name)")
        if bool(self.requests) != (self.dataset_name == "requests"):
            raise ValueError("requests: belong to dataset_name: requests, which needs at least one")
        if self.dataset_name in TRACES and self.dataset_path is None:
            raise ValueError("dataset_path: expected the path of the trace, got nothing")

    def _check_arrivals(self) -> None:
        if self.dataset_name in (*TRACES, "requests"):
            if self.arrival is not None or self.request_rate is not None:
                raise ValueError(
                    "arrival: a trace brings its own arrival times; remove arrival and request_rate"
                    " (request_rate_scale makes it faster)"
                )
        elif self.resolved_arrival != "inf" and self.request_rate is None:
            raise ValueError(
                f"request_rate: expected requests per second for arrival {self.arrival}, got nothing"
            )
        num_arrivals = self.num_sessions or self.resolved_num_prompts
        if self.request_rate is not None and num_arrivals > self.request_rate * MAX_DURATION_S:
            raise ValueError(
                f"request_rate: {num_arrivals} requests at {self.request_rate:g} a second take "
                f"more than {MAX_DURATION_S:g} seconds; raise it or lower num_prompts"
            )
        if self.burstiness != 1 and self.arrival not in (None, "gamma"):
            raise ValueError(f"burstiness: only arrival: gamma has it; remove it or arrival: {self.arrival}")

    def _check_sessions(self) -> None:
        for name in ("num_sessions", "num_turns"):
            if getattr(self, name) is None:
                raise ValueError(f"{name}: missing; dataset_name: sessions needs it")
        assert self.num_sessions is not None, "checked above"
        assert self.num_turns is not None, "checked above"
        most = self.num_turns.max
        if most is None:
            raise ValueError("num_turns: expected a number, uniform, quantiles, or lognormal with a max")
        if most > MAX_NUM_TURNS:
            raise ValueError(f"num_turns: expected at most {MAX_NUM_TURNS:,}, got {most}")
        if most * self.num_sessions > MAX_NUM_PROMPTS:
            raise ValueError(
                f"num_sessions: {self.num_sessions} of up to {most} turns are more than "
                f"{MAX_NUM_PROMPTS:,} requests; lower it or num_turns"
            )

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
        """Number of requests of a data set that makes as many as asked; 1,000 as in ``vllm bench serve``."""
        return self.num_prompts or len(self.requests) or 1000
