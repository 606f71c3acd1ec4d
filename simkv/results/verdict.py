"""What holds a run back, in one short sentence with its number: read off the summary and the plan.

The rules are tried in this order; the first that holds is the answer. They are a reader's rules of thumb,
not measurements: a run may be held back by two things at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simkv.results.bubbles_history import CAUSE_NAMES

FULL_KV_USAGE = 0.97  # of the blocks; with fewer free a scheduler hardly moves
IDLE_UTILIZATION = 0.6  # of the busiest stage; below it the hardware is not what limits

_LOAD_CAUSES = {"no_work": "too little load", "too_few_requests": "too few requests"}
_LIMITS = {"kv_limited": "KV blocks", "max_num_seqs": "max_num_seqs", "host": "host"}
_PARTS = {"compute": "compute", "memory": "memory bandwidth", "comm": "communication", "host": "host"}


def binds(summary: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """Return what the run waits for most: ``"compute: 71 % of the busy time"``.

    summary   of the run (`Results.summary`)
    plan      of its scenario (`Plan.as_dict`): ``kv_tokens`` and ``max_num_seqs`` of a replica

    The sentence begins with one of ``KV blocks``, ``max_num_seqs``, ``compute``, ``memory bandwidth``,
    ``communication``, ``host``, ``idle (too little load)``, ``idle (too few requests)``, or ``bubbles`` with
    the cause that idles the stages most.
    """
    return _kv_blocks(summary, plan) or _max_num_seqs(summary, plan) or _stages(summary)


def _kv_blocks(summary: Mapping[str, Any], plan: Mapping[str, Any]) -> str | None:
    usage, num_waiting = summary["max_kv_cache_usage_perc"], summary["max_num_requests_waiting"]
    if num_preemptions := summary["num_preemptions"]:
        return f"KV blocks: {num_preemptions:,} preemption{'s' * (num_preemptions > 1)}"
    # A long prompt that waits until its blocks are free (scheduler_reserve_full_isl) leaves many unused.
    mean_prompt_tokens = summary["total_input_tokens"] / max(summary["completed"], 1)
    is_full = usage >= FULL_KV_USAGE or usage > 1 - mean_prompt_tokens / max(plan["kv_tokens"], 1)
    if is_full and num_waiting:
        return f"KV blocks: {_percent(usage)} held at the peak, with requests waiting"
    return None


def _max_num_seqs(summary: Mapping[str, Any], plan: Mapping[str, Any]) -> str | None:
    most = plan["max_num_seqs"] * summary["num_replicas"]
    num_waiting = summary["max_num_requests_waiting"]
    if summary["max_num_requests_running"] >= most and num_waiting:
        return f"max_num_seqs: {most:,} running, up to {num_waiting:,} waiting"
    return None


def _stages(summary: Mapping[str, Any]) -> str:
    utilization = max(summary["stage_utilization"], default=0.0)
    if utilization < IDLE_UTILIZATION:
        wall_s = summary["duration"] * summary["num_replicas"]
        scheduling = summary["scheduling_time_s"] / wall_s if wall_s else 0.0
        if scheduling > utilization:
            return f"host: scheduling takes {_percent(scheduling)} of the time"
        return _idle(summary, utilization)
    shares = {part: summary[f"{part}_time_share"] for part in _PARTS}
    part = max(shares, key=lambda name: shares[name])
    return f"{_PARTS[part]}: {_percent(shares[part])} of the busy time"


def _idle(summary: Mapping[str, Any], utilization: float) -> str:
    """What idles the stages most; summaries of older runs do not say, and then it is the load."""
    shares = {cause: summary.get(f"idle_{cause}_share", 0.0) for cause in CAUSE_NAMES}
    cause = max(shares, key=lambda name: shares[name])
    if not shares[cause] or cause in _LOAD_CAUSES:
        why = _LOAD_CAUSES.get(cause, "too little load")
        return f"idle ({why}): the busiest stage works {_percent(utilization)} of the time"
    name = _LIMITS.get(cause, f"bubbles ({CAUSE_NAMES[cause]})")
    return f"{name}: the stages idle for it {_percent(shares[cause])} of the time"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
