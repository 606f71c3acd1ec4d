"""The log as pandas data frames: integer nanoseconds as noted, and beside them what people read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from simkv.results.log import GRAPH_MODES, RequestOutcome, RequestRecord, RunLog
from simkv.results.metrics import e2el_ns, tpot_ns, ttft_ns
from simkv.results.series import Floats, arrays
from simkv.units import NS_PER_S

if TYPE_CHECKING:
    import pandas as pd

_NS_PER_MS = 1e6
_REQUEST_TIMES = ("arrival", "sent", "first_scheduled", "first_token", "last_token", "finished")


def requests_frame(log: RunLog) -> pd.DataFrame:
    """Return one row a request, in the order of arrival; times that did not happen are missing.

    ``queue_ms`` is from sending to the first step that computes for the request; ``ttft_ms``, ``tpot_ms``
    and ``e2el_ms`` are given for finished requests, ``tpot_ms`` for those with two tokens or more.
    """
    import pandas as pd

    records = log.requests
    columns: dict[str, Any] = {}
    for field in fields(RequestRecord):
        values = [getattr(record, field.name) for record in records]
        if field.name == "outcome":
            columns["outcome"] = pd.array([str(value) for value in values], dtype="str")
        elif field.name.endswith("_ns") and field.name != "arrival_ns":
            columns[field.name] = pd.array(values, dtype="Int64")
        else:
            columns[field.name] = np.array(values, dtype=np.int64)
    for name in _REQUEST_TIMES:
        columns[f"{name}_s"] = _scaled([getattr(record, f"{name}_ns") for record in records], NS_PER_S)
    columns["queue_ms"] = _scaled([_queue_ns(record) for record in records], _NS_PER_MS)
    for name, latency_ns in (("ttft_ms", ttft_ns), ("tpot_ms", tpot_ns), ("e2el_ms", e2el_ns)):
        columns[name] = _scaled([latency_ns(r) if _has(r, name) else None for r in records], _NS_PER_MS)
    return pd.DataFrame(columns)


def _queue_ns(record: RequestRecord) -> int | None:
    if record.first_scheduled_ns is None or record.sent_ns is None:
        return None
    return record.first_scheduled_ns - record.sent_ns


def _has(record: RequestRecord, name: str) -> bool:
    return record.outcome is RequestOutcome.FINISHED and (name != "tpot_ms" or record.num_output_tokens > 1)


def _scaled(values: Sequence[float | None], divisor: float) -> Floats:
    return np.array([np.nan if value is None else value / divisor for value in values], dtype=float)


def steps_frame(log: RunLog) -> pd.DataFrame:
    """Return one row a batch; ``kv_cache_usage_perc`` is 0 to 1, as vLLM's gauge, after it was scheduled."""
    import pandas as pd

    columns: dict[str, Any] = dict(arrays(log.steps))
    names = np.array([str(mode) for mode in GRAPH_MODES], dtype=object)
    columns["graph_mode"] = pd.array(names[columns["graph_mode"]], dtype="str")
    num_usable_blocks = max(log.num_gpu_blocks - 1, 1)
    columns["kv_cache_usage_perc"] = (log.num_gpu_blocks - 1 - columns["num_free_blocks"]) / num_usable_blocks
    for name in ("scheduled", "start", "end"):
        columns[f"{name}_s"] = columns[f"{name}_ns"] / NS_PER_S
    columns["duration_ms"] = (columns["end_ns"] - columns["start_ns"]) / _NS_PER_MS
    return pd.DataFrame(columns)


def stages_frame(log: RunLog) -> pd.DataFrame:
    """Return one row a batch and pipeline stage; ``step`` is the row of the steps' frame."""
    import pandas as pd

    columns: dict[str, Any] = dict(arrays(log.stages))
    columns["start_s"] = columns["start_ns"] / NS_PER_S
    columns["duration_ms"] = (columns["end_ns"] - columns["start_ns"]) / _NS_PER_MS
    return pd.DataFrame(columns)


def itls_frame(log: RunLog) -> pd.DataFrame:
    """Return inter-token latencies: ``num_tokens`` of a step came ``gap_ms`` after their predecessors."""
    import pandas as pd

    columns: dict[str, Any] = dict(arrays(log.itls))
    columns["gap_ms"] = columns["gap_ns"] / _NS_PER_MS
    return pd.DataFrame(columns)


FRAMES = {"requests": requests_frame, "steps": steps_frame, "stages": stages_frame, "itls": itls_frame}
