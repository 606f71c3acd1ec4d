"""What vLLM's ``/metrics`` would show at the end of a run, in Prometheus' text format.

Names, help texts, labels and buckets are those of vLLM (``v1/metrics/loggers.py``), with two older names
that dashboards still ask for; an engine is a data-parallel replica. Times count from when a client sent the
request: some milliseconds before the server's own, as `client_round_trip_s` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simkv.results.log import RequestOutcome
from simkv.results.results import Results
from simkv.results.series import Ints
from simkv.units import NS_PER_S

if TYPE_CHECKING:
    import pandas as pd

_FINISHED_REASONS = ("stop", "length", "abort", "error", "repetition")
_TOKENS_OF_A_STEP = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_FIRST_TOKEN_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
_BETWEEN_TOKENS_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_REQUEST_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip


class _Sample(NamedTuple):
    """Observations of a histogram: `values` of `unit` = 1, each counted `weights` times (None = once)."""

    values: Ints
    unit: int = 1
    weights: Ints | None = None


class _Engine:
    """One replica's share of a run, as its own engine would have counted it."""

    def __init__(self, results: Results, replica: int):
        self.replica = replica
        requests, steps, itls = results.requests, results.steps, results.itls
        self.requests = requests[requests["replica"] == replica]
        self.finished = self.requests[self.requests["outcome"] == RequestOutcome.FINISHED]
        self.seen = self.requests[self.requests["first_scheduled_ns"].notna()]
        self.begun = self.requests[self.requests["first_token_ns"].notna()]
        self.steps = steps[steps["replica"] == replica]
        self.itls = itls[itls["step"].isin(self.steps.index)]
        self.engine: dict[str, Any] = results.scenario.get("engine") or {}
        self.ignores_eos: bool = (results.scenario.get("workload") or {}).get("ignore_eos", True)

    @cached_property
    def state(self) -> tuple[int, int, float]:
        """Requests running and waiting and the share of blocks in use; nothing once all are served."""
        on_their_way = self.requests["sent_ns"].notna() & (
            self.requests["outcome"] == RequestOutcome.UNFINISHED
        )
        if not on_their_way.any() or self.steps.empty:
            return 0, 0, 0.0
        last = self.steps.iloc[-1]
        return int(last["num_running"]), int(last["num_waiting"]), float(last["kv_cache_usage_perc"])

    @property
    def cache_lookups(self) -> tuple[int, int]:
        """Tokens looked up in the prefix cache and found there; without the cache nothing is looked up."""
        if not self.engine.get("enable_prefix_caching", True):
            return 0, 0
        return int(self.seen["num_prompt_tokens"].sum()), int(self.seen["num_cached_tokens"].sum())

    @property
    def num_prompt_tokens(self) -> int:
        """Prompt tokens of requests with a first token, cached ones included, as vLLM counts."""
        return int(self.begun["num_prompt_tokens"].sum())

    @property
    def num_generation_tokens(self) -> int:
        """Tokens generated."""
        return len(self.begun) + int(self.itls["num_tokens"].sum())

    def num_finished(self, reason: str) -> int:
        """Return how many requests ended so: all at their length, or at a stop token if they may."""
        has_length = self.finished["num_output_tokens"] < self.finished["max_tokens"]  # cut by max_model_len
        if self.ignores_eos:
            has_length[:] = True
        return {"length": int(has_length.sum()), "stop": int((~has_length).sum())}.get(reason, 0)

    def between(self, start: str, end: str) -> _Sample:
        """Return for each finished request the time from one of its events to another."""
        return _times(self.finished, start, end)

    @property
    def times_per_output_token(self) -> _Sample:
        """Mean time between tokens of each finished request; 0 for a single one, as in vLLM."""
        durations_ns = self.between("first_token", "last_token").values
        gaps = np.maximum(self.finished["num_output_tokens"].to_numpy() - 1, 1)
        return _Sample(np.rint(durations_ns / gaps).astype(np.int64), NS_PER_S)

    @property
    def tokens_of_steps(self) -> _Sample:
        """vLLM's idea of a step's tokens: those generated, and a whole prompt where its first one is."""
        tokens = np.zeros(len(self.steps), dtype=np.int64)
        rows = np.searchsorted(self.steps.index.to_numpy(), self.itls["step"].to_numpy())
        np.add.at(tokens, rows, self.itls["num_tokens"].to_numpy())
        # Tokens are known at the end of their batch or, if the CPU is busy then, a little later.
        first_ns = self.begun["first_token_ns"].to_numpy(dtype=np.int64)
        rows = np.searchsorted(self.steps["end_ns"].to_numpy(), first_ns, side="right") - 1
        np.add.at(tokens, np.maximum(rows, 0), self.begun["num_prompt_tokens"].to_numpy() + 1)
        return _Sample(tokens[tokens > 0])


def _times(requests: pd.DataFrame, start: str, end: str) -> _Sample:
    starts, ends = (requests[f"{event}_ns"].to_numpy(dtype=np.int64) for event in (start, end))
    return _Sample(ends - starts, NS_PER_S)


def exposition(results: Results) -> str:
    """Return the text of ``/metrics`` when the run ended, of a fresh or a loaded run."""
    return "\n".join([*_lines(results), ""])


def _lines(results: Results) -> Iterator[str]:
    model = (results.scenario.get("model") or {}).get("name", "")
    engines = [_Engine(results, replica) for replica in range(results.summary["num_replicas"])]
    longest = max([*results.requests["num_prompt_tokens"], *results.requests["max_tokens"]], default=1)
    max_model_len = (results.scenario.get("engine") or {}).get("max_model_len", longest)
    for name, kind, help_text, values in _FAMILIES:
        yield f"# HELP {name} {help_text}"
        yield f"# TYPE {name} {kind}"
        for engine in engines:
            labels = {"engine": str(engine.replica), "model_name": str(model)}
            yield f"{name}{_labels(labels)} {_number(values(engine))}"
    name = "vllm:request_success_total"
    yield f"# HELP {name} Count of successfully processed requests."
    yield f"# TYPE {name} counter"
    for engine in engines:
        for reason in _FINISHED_REASONS:
            labels = {"engine": str(engine.replica), "finished_reason": reason, "model_name": str(model)}
            yield f"{name}{_labels(labels)} {_number(engine.num_finished(reason))}"
    for name, help_text, bounds, sample in _HISTOGRAMS:
        yield f"# HELP {name} {help_text}"
        yield f"# TYPE {name} histogram"
        for engine in engines:
            labels = {"engine": str(engine.replica), "model_name": str(model)}
            yield from _histogram(name, labels, bounds or one_two_five(max_model_len), sample(engine))


def _histogram(name: str, labels: dict[str, str], bounds: Sequence[float], sample: _Sample) -> Iterator[str]:
    """Yield cumulative buckets, sum and count; a bound belongs to its bucket."""
    values, unit, weights = sample
    order = np.argsort(values, kind="stable")
    counts = np.ones(len(values), dtype=np.int64) if weights is None else weights[order]
    below = np.concatenate(([0], np.cumsum(counts)))
    limits = [round(bound * unit) for bound in bounds]
    for bound, rank in zip(bounds, np.searchsorted(values[order], limits, side="right"), strict=True):
        yield f"{name}_bucket{_labels({**labels, 'le': _number(bound)})} {_number(below[rank])}"
    yield f"{name}_bucket{_labels({**labels, 'le': '+Inf'})} {_number(below[-1])}"
    yield f"{name}_count{_labels(labels)} {_number(below[-1])}"
    yield f"{name}_sum{_labels(labels)} {_number(int(values[order] @ counts) / unit)}"


def one_two_five(largest: int) -> list[int]:
    """Return 1, 2, 5, 10, 20, … up to `largest`: vLLM's buckets for tokens of a request.

    >>> one_two_five(100)
    [1, 2, 5, 10, 20, 50, 100]
    """
    bounds = (digit * 10**power for power in range(len(str(largest))) for digit in (1, 2, 5))
    return [bound for bound in bounds if bound <= largest]


def _labels(labels: dict[str, str]) -> str:
    escaped = {
        name: text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        for name, text in labels.items()
    }
    return "{" + ",".join(f'{name}="{text}"' for name, text in sorted(escaped.items())) + "}"


def _number(value: float) -> str:
    """A number as Prometheus' own client writes it: that of Go, always a float.

    >>> _number(3), _number(0.25), _number(1_000_000), _number(12_345_678)
    ('3.0', '0.25', '1e+06', '1.2345678e+07')
    """
    text = repr(float(value))
    dot = text.find(".")
    if dot <= 6 or "e" in text:
        return text
    mantissa = f"{text[0]}.{text[1:dot]}{text[dot + 1 :]}".rstrip("0.")
    return f"{mantissa}e+{dot - 1:02}"


_FAMILIES: tuple[tuple[str, str, str, Any], ...] = (
    (
        "vllm:num_requests_running", "gauge", "Number of requests in model execution batches.",
        lambda engine: engine.state[0],
    ),
    (
        "vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.",
        lambda engine: engine.state[1],
    ),
    (
        "vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.",
        lambda engine: engine.state[2],
    ),
    (
        "vllm:gpu_cache_usage_perc", "gauge", "The name of vllm:kv_cache_usage_perc before vLLM 0.9.",
        lambda engine: engine.state[2],
    ),
    (
        "vllm:prefix_cache_queries_total", "counter",
        "Prefix cache queries, in terms of number of queried tokens.", lambda engine: engine.cache_lookups[0],
    ),
    (
        "vllm:prefix_cache_hits_total", "counter",
        "Prefix cache hits, in terms of number of cached tokens.", lambda engine: engine.cache_lookups[1],
    ),
    (
        "vllm:num_preemptions_total", "counter", "Cumulative number of preemption from the engine.",
        lambda engine: engine.steps["num_preempted"].sum(),
    ),
    (
        "vllm:prompt_tokens_total", "counter", "Number of prefill tokens processed.",
        lambda engine: engine.num_prompt_tokens,
    ),
    (
        "vllm:generation_tokens_total", "counter", "Number of generation tokens processed.",
        lambda engine: engine.num_generation_tokens,
    ),
)  # fmt: skip


def _inter_token_latencies(engine: _Engine) -> _Sample:
    return _Sample(engine.itls["gap_ns"].to_numpy(), NS_PER_S, engine.itls["num_tokens"].to_numpy())


_HISTOGRAMS: tuple[tuple[str, str, Sequence[float] | None, Any], ...] = (  # bounds None = one_two_five
    (
        "vllm:request_prompt_tokens", "Number of prefill tokens processed.", None,
        lambda engine: _Sample(engine.finished["num_prompt_tokens"].to_numpy()),
    ),
    (
        "vllm:request_generation_tokens", "Number of generation tokens processed.", None,
        lambda engine: _Sample(engine.finished["num_output_tokens"].to_numpy()),
    ),
    (
        "vllm:iteration_tokens_total", "Histogram of number of tokens per engine_step.", _TOKENS_OF_A_STEP,
        lambda engine: engine.tokens_of_steps,
    ),
    (
        "vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", _FIRST_TOKEN_S,
        lambda engine: _times(engine.begun, "sent", "first_token"),
    ),
    (
        "vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", _BETWEEN_TOKENS_S,
        _inter_token_latencies,
    ),
    (
        "vllm:time_per_output_token_seconds", "The name of vllm:inter_token_latency_seconds before vLLM 0.11.",
        _BETWEEN_TOKENS_S, _inter_token_latencies,
    ),
    (
        "vllm:request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds per request.",
        _BETWEEN_TOKENS_S, lambda engine: engine.times_per_output_token,
    ),
    (
        "vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", _REQUEST_S,
        lambda engine: engine.between("sent", "finished"),
    ),
    (
        "vllm:request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", _REQUEST_S,
        lambda engine: engine.between("sent", "first_scheduled"),
    ),
    (
        "vllm:request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.",
        _REQUEST_S, lambda engine: engine.between("first_scheduled", "last_token"),
    ),
    (
        "vllm:request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.",
        _REQUEST_S, lambda engine: engine.between("first_scheduled", "first_token"),
    ),
    (
        "vllm:request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", _REQUEST_S,
        lambda engine: engine.between("first_token", "last_token"),
    ),
)  # fmt: skip
