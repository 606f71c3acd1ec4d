"""What the keys of a summary mean to a reader: label, unit, and whether more is better."""

from __future__ import annotations

import re
from dataclasses import dataclass

from simkv.results.bubbles_history import CAUSE_NAMES

_LATENCY = re.compile(r"(mean|median|std|p[0-9]+)_(ttft|tpot|itl|e2el)_ms")


@dataclass(frozen=True)
class Meaning:
    """How a metric is shown and judged.

    label    words for an axis or a row
    unit     of a value times `scale`; empty for counts
    better   1: more is better; -1: less is better; 0: neither
    scale    from the stored value to the shown one: 100 for shares, which are shown in %
    """

    label: str
    unit: str = ""
    better: int = 0
    scale: float = 1.0

    @property
    def is_share(self) -> bool:
        """True for a value of 0 to 1."""
        return self.unit == "%"

    @property
    def axis_label(self) -> str:
        """The label with its unit in brackets."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


def _share(label: str, better: int = 0) -> Meaning:
    return Meaning(label, "%", better, 100.0)


_MEANINGS = {
    "duration": Meaning("duration", "s", -1),
    "completed": Meaning("finished requests", "", 1),
    "failed": Meaning("failed requests", "", -1),
    "total_input_tokens": Meaning("input tokens"),
    "total_output_tokens": Meaning("output tokens"),
    "request_throughput": Meaning("request throughput", "req/s", 1),
    "request_goodput": Meaning("goodput", "req/s", 1),
    "output_throughput": Meaning("output throughput", "tok/s", 1),
    "total_token_throughput": Meaning("total throughput", "tok/s", 1),
    "max_output_tokens_per_s": Meaning("peak output throughput", "tok/s", 1),
    "max_concurrent_requests": Meaning("peak concurrent requests"),
    "num_preemptions": Meaning("preemptions", "", -1),
    "num_recomputed_tokens": Meaning("recomputed tokens", "", -1),
    "prefix_cache_hit_rate": _share("prefix cache hits", 1),
    "num_gpu_blocks": Meaning("KV blocks of a replica"),
    "found": Meaning("value found within the limits"),
    "rho": Meaning("offered load ρ"),
    "kv_tokens": Meaning("KV cache of a replica", "tokens", 1),
    "max_concurrency": Meaning("requests of max_model_len that fit", "", 1),
    "users_that_fit": Meaning("users of max_model_len that fit", "", 1),
    "mean_kv_cache_usage_perc": _share("mean KV cache use"),
    "max_kv_cache_usage_perc": _share("peak KV cache use"),
    "mean_num_requests_running": Meaning("mean running requests"),
    "max_num_requests_running": Meaning("peak running requests"),
    "mean_num_requests_waiting": Meaning("mean waiting requests", "", -1),
    "max_num_requests_waiting": Meaning("peak waiting requests", "", -1),
    # Neither good nor bad: a faster GPU idles more, a pipeline's stages sum to more seconds than one wide stage.
    "mean_stage_utilization": _share("mean stage utilization"),
    "mean_stage_idle": _share("time the stages idle"),
    "max_stage_utilization": _share("utilization of the busiest stage"),
    "running_per_stage": Meaning("running requests for each stage"),
    **{f"idle_{cause}_share": _share(f"idle: {name}") for cause, name in CAUSE_NAMES.items()},
    "compute_time_s": Meaning("compute", "s"),
    "memory_time_s": Meaning("memory", "s"),
    "comm_time_s": Meaning("communication", "s"),
    "host_time_s": Meaning("host", "s"),
    "scheduling_time_s": Meaning("CPU before steps", "s"),
    "compute_time_share": _share("compute, of busy time"),
    "memory_time_share": _share("memory, of busy time"),
    "comm_time_share": _share("communication, of busy time"),
    "host_time_share": _share("host, of busy time"),
}


def meaning(key: str) -> Meaning:
    """Return what a key of a summary or of a plan means; an unknown one is shown by its name.

    >>> meaning("p99_ttft_ms").axis_label, meaning("p99_ttft_ms").better
    ('P99 TTFT (ms)', -1)
    >>> meaning("mean_kv_cache_usage_perc").axis_label, meaning("num_steps").axis_label
    ('mean KV cache use (%)', 'num steps')
    >>> meaning("idle_fill_drain_share").axis_label
    'idle: fill and drain (%)'
    """
    if match := _LATENCY.fullmatch(key):
        statistic, latency = match.groups()
        return Meaning(f"{statistic.replace('p', 'P', 1)} {latency.upper()}", "ms", -1)
    if key in _MEANINGS:
        return _MEANINGS[key]
    if key.endswith(("_share", "_perc")):
        return _share(key.rpartition("_")[0].replace("_", " "))
    return Meaning(key.replace("_", " "))
