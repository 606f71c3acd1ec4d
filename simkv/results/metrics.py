"""From the log of a run to one flat mapping, keyed as ``vllm bench serve --save-result`` keys it.

Latencies are a client's: TTFT and E2EL count from when a request was sent (it had its slot), so they include
queueing in the engine. As in vLLM they cover the requests that finished, and a metric of nothing is 0.
Keys that vLLM does not have come after its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from simkv.results.log import RequestOutcome, RequestRecord, RunLog
from simkv.results.series import BUSY_PARTS, Columns, Ints, arrays, busy_ns, state_series
from simkv.results.stats import describe_ms
from simkv.units import NS_PER_S, to_s

INPUT_KINDS = ("measured", "interpolated", "extrapolated", "assumed")

Slo = Mapping[str, float | None]


def summarize(log: RunLog, slo: Slo | None = None) -> dict[str, Any]:
    """Return the metrics of a run; `slo` may limit ``ttft_ms``, ``tpot_ms`` and ``e2el_ms`` for goodput."""
    steps, stages, itls = arrays(log.steps), arrays(log.stages), arrays(log.itls)
    finished = [record for record in log.requests if record.outcome is RequestOutcome.FINISHED]
    return (
        _throughput(log, finished, slo)
        | _peaks(finished, steps, itls)
        | describe_ms("ttft", _ints([ttft_ns(record) for record in finished]))
        | describe_ms(
            "tpot", np.array([tpot_ns(r) for r in finished if r.num_output_tokens > 1], dtype=float)
        )
        | describe_ms("itl", itls["gap_ns"], itls["num_tokens"])
        | describe_ms("e2el", _ints([e2el_ns(record) for record in finished]))
        | _counts(log, steps)
        | _state(log, steps)
        | _time(log, steps, stages)
    )


def ttft_ns(record: RequestRecord) -> int:
    """Return the time to first token of a finished request, from sending, in nanoseconds."""
    assert record.first_token_ns is not None
    assert record.sent_ns is not None
    return record.first_token_ns - record.sent_ns


def e2el_ns(record: RequestRecord) -> int:
    """Return the end-to-end latency of a finished request, from sending, in nanoseconds."""
    assert record.finished_ns is not None
    assert record.sent_ns is not None
    return record.finished_ns - record.sent_ns


def tpot_ns(record: RequestRecord) -> float:
    """Return the mean time per output token after the first, in nanoseconds; 0 if there is only one."""
    if record.num_output_tokens <= 1:
        return 0.0
    return (e2el_ns(record) - ttft_ns(record)) / (record.num_output_tokens - 1)


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def _throughput(log: RunLog, finished: Sequence[RequestRecord], slo: Slo | None) -> dict[str, Any]:
    duration_s = to_s(_last_return_ns(log) - _first_sent_ns(log))
    num_input_tokens = sum(record.num_prompt_tokens for record in finished)
    num_output_tokens = sum(record.num_output_tokens for record in finished)
    limits = {name: limit for name, limit in (slo or {}).items() if limit is not None}
    num_good = sum(_is_good(record, limits) for record in finished)
    return {
        "duration": duration_s,
        "completed": len(finished),
        "failed": sum(record.outcome is RequestOutcome.REJECTED for record in log.requests),
        "total_input_tokens": num_input_tokens,
        "total_output_tokens": num_output_tokens,
        "request_throughput": _ratio(len(finished), duration_s),
        "request_goodput": _ratio(num_good, duration_s) if limits else None,
        "output_throughput": _ratio(num_output_tokens, duration_s),
        "total_token_throughput": _ratio(num_input_tokens + num_output_tokens, duration_s),
    }


def _first_sent_ns(log: RunLog) -> int:
    return min((record.sent_ns for record in log.requests if record.sent_ns is not None), default=0)


def _last_return_ns(log: RunLog) -> int:
    """When the last request came back; one that was refused came back at once."""
    returned = [record.finished_ns for record in log.requests if record.finished_ns is not None]
    refused = [
        r.sent_ns for r in log.requests if r.outcome is RequestOutcome.REJECTED and r.sent_ns is not None
    ]
    return max([*returned, *refused], default=_first_sent_ns(log))


def _is_good(record: RequestRecord, limits: Mapping[str, float]) -> bool:
    # An output of one token has no TPOT and meets any limit on it, as in vLLM.
    reached_ns = {"ttft_ms": ttft_ns(record), "tpot_ms": tpot_ns(record), "e2el_ms": e2el_ns(record)}
    return all(reached_ns[name] <= limit_ms * 1e6 for name, limit_ms in limits.items())


def _ratio(amount: float, base: float) -> float:
    return amount / base if base else 0.0


def _peaks(finished: Sequence[RequestRecord], steps: Columns, itls: Columns) -> dict[str, float]:
    """The most tokens in a second, by whole seconds from the first request on, and requests on their way."""
    if not finished:
        return {"max_output_tokens_per_s": 0.0, "max_concurrent_requests": 0}
    first_sent_ns = min(record.sent_ns for record in finished if record.sent_ns is not None)
    first_tokens_ns = _ints([r.first_token_ns for r in finished if r.first_token_ns is not None])
    times_ns = np.concatenate((first_tokens_ns, steps["end_ns"][itls["step"]])) - first_sent_ns
    counts = np.concatenate((np.ones_like(first_tokens_ns), itls["num_tokens"]))
    is_inside = times_ns >= 0  # a request that never finished may have been earlier
    num_tokens = np.bincount(times_ns[is_inside] // NS_PER_S, weights=counts[is_inside])
    sent_ns = _ints([r.sent_ns for r in finished if r.sent_ns is not None])
    finished_ns = np.sort(_ints([r.finished_ns for r in finished if r.finished_ns is not None]))
    sent_ns.sort()
    # at the moment of a sending, those that come back at this very moment are gone
    num_on_their_way = np.arange(1, len(sent_ns) + 1) - np.searchsorted(finished_ns, sent_ns, side="right")
    return {
        "max_output_tokens_per_s": float(num_tokens.max()),
        "max_concurrent_requests": int(num_on_their_way.max()),
    }


def _counts(log: RunLog, steps: Columns) -> dict[str, Any]:
    seen = [record for record in log.requests if record.first_scheduled_ns is not None]
    num_outcomes = {o: sum(record.outcome is o for record in log.requests) for o in RequestOutcome}
    num_prompt_tokens = sum(record.num_prompt_tokens for record in seen)
    return {
        "num_requests": len(log.requests),
        "rejected": num_outcomes[RequestOutcome.REJECTED],
        "unfinished": num_outcomes[RequestOutcome.UNFINISHED],
        "is_complete": log.is_complete,
        "num_steps": len(log.steps),
        "num_preemptions": int(steps["num_preempted"].sum()),
        "num_recomputed_tokens": sum(record.num_recomputed_tokens for record in log.requests),
        "prefix_cache_hit_rate": _ratio(sum(record.num_cached_tokens for record in seen), num_prompt_tokens),
    }


def _state(log: RunLog, steps: Columns) -> dict[str, Any]:
    """What the engines held between the first request and the end of the run; sums over replicas."""
    series = state_series(steps, log.num_gpu_blocks)
    start_ns, end_ns = window_ns(log)
    num_usable_blocks = (log.num_gpu_blocks - 1) * log.num_replicas

    def mean_and_max(values: Ints) -> tuple[float, int]:
        return series.mean(values, start_ns, end_ns), int(values.max(initial=0))

    mean_blocks, max_blocks = mean_and_max(series.num_used_blocks)
    mean_running, max_running = mean_and_max(series.num_running)
    mean_waiting, max_waiting = mean_and_max(series.num_waiting)
    return {
        "num_gpu_blocks": log.num_gpu_blocks,
        "num_stages": log.num_stages,
        "num_replicas": log.num_replicas,
        "mean_kv_cache_usage_perc": _ratio(mean_blocks, num_usable_blocks),
        "max_kv_cache_usage_perc": _ratio(max_blocks, num_usable_blocks),
        "mean_num_requests_running": mean_running,
        "max_num_requests_running": max_running,
        "mean_num_requests_waiting": mean_waiting,
        "max_num_requests_waiting": max_waiting,
    }


def window_ns(log: RunLog) -> tuple[int, int]:
    """Return the time that a run's shares refer to: from the first sending to the end of the run."""
    return _first_sent_ns(log), max(log.end_ns, _last_return_ns(log))


def _time(log: RunLog, steps: Columns, stages: Columns) -> dict[str, Any]:
    """Where the stages' busy time went (parts of `StepTime`, summed over stages) and what it rests on.

    ``scheduling_time_s`` is the CPU's work before the steps, part of which passed while the stages were busy.
    """
    parts_ns = {part: int(stages[f"{part}_ns"].sum()) for part in BUSY_PARTS}
    inputs_ns = {kind: int(stages[f"{kind}_input_ns"].sum()) for kind in INPUT_KINDS}
    start_ns, end_ns = window_ns(log)
    wall_ns = (end_ns - start_ns) * log.num_replicas
    busy = [_ratio(value_ns, wall_ns) for value_ns in busy_ns(stages, log.num_stages, start_ns, end_ns)]
    return (
        {f"{part}_time_s": to_s(value_ns) for part, value_ns in parts_ns.items()}
        | {f"{part}_time_share": _ratio(ns, sum(parts_ns.values())) for part, ns in parts_ns.items()}
        | {f"{kind}_input_share": _ratio(ns, sum(inputs_ns.values())) for kind, ns in inputs_ns.items()}
        | {"scheduling_time_s": to_s(int(steps["host_ns"].sum()))}
        | {"mean_stage_utilization": _ratio(math.fsum(busy), log.num_stages), "stage_utilization": busy}
    )
