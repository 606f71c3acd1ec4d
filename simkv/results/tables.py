"""The log as pandas data frames: integer nanoseconds as noted, and beside them what people read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from simkv.results.bubbles import StageTables, stage_accounts
from simkv.results.bubbles_history import CAUSES
from simkv.results.log import (
    GRAPH_MODES,
    NOT_YET,
    STAGE_COLUMNS,
    WAIT_COLUMNS,
    WAIT_KINDS,
    RequestOutcome,
    RequestRecord,
    RunLog,
)
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


def waits_frame(log: RunLog) -> pd.DataFrame:
    """Return one row a wait of an engine, or of a batch in front of the first stage (``blocked_step``)."""
    import pandas as pd

    columns: dict[str, Any] = dict(arrays(log.waits))
    names = np.array([str(kind) for kind in WAIT_KINDS], dtype=object)
    columns["kind"] = pd.array(names[columns["kind"]], dtype="str")
    for name in ("step", "blocked_step"):
        columns[name] = pd.array(
            [None if row == NOT_YET else row for row in columns[name].tolist()], dtype="Int64"
        )
    columns["start_s"] = columns["start_ns"] / NS_PER_S
    columns["duration_ms"] = (columns["end_ns"] - columns["start_ns"]) / _NS_PER_MS
    return pd.DataFrame(columns)


def bubbles_frame(log: RunLog) -> pd.DataFrame:
    """Return where each stage's wall time went: one row a replica, stage, and busy part or cause of idling."""
    import pandas as pd

    rows = [
        (account.replica, account.stage, state, cause, ns, ns / NS_PER_S, ns / account.wall_ns)
        for account in stage_accounts(StageTables.from_log(log))
        for state, parts in (("busy", account.busy_ns), ("idle", account.idle_ns))
        for cause, ns in parts.items()
    ]
    types = {
        "replica": "int64", "stage": "int64", "state": "str", "cause": "str", "duration_ns": "int64",
        "seconds": "float64", "share": "float64",
    }  # fmt: skip
    return pd.DataFrame(rows, columns=list(types)).astype(types)


def idle_shares(bubbles: pd.DataFrame) -> dict[str, float]:
    """Return ``idle_…_share`` for every cause: of the wall time of all stages and replicas."""
    wall_ns = int(bubbles["duration_ns"].sum())
    idle = bubbles[bubbles["state"] == "idle"].groupby("cause")["duration_ns"].sum()
    return {f"idle_{cause}_share": int(idle.get(cause, 0)) / max(wall_ns, 1) for cause in CAUSES}


def read_stage_tables(tables: Mapping[str, pd.DataFrame], num_stages: int, num_replicas: int) -> StageTables:
    """Return the tables of a run, fresh or loaded, as the columns that idle intervals are found from."""
    steps, stages, waits, bubbles = (tables[name] for name in ("steps", "stages", "waits", "bubbles"))
    kinds = {str(kind): index for index, kind in enumerate(WAIT_KINDS)}
    columns = {
        name: waits[name].fillna(NOT_YET).to_numpy(np.int64) for name in WAIT_COLUMNS if name != "kind"
    }
    columns["kind"] = waits["kind"].map(kinds).to_numpy(np.int64)
    start_ns = int(tables["requests"]["sent_ns"].min()) if len(bubbles) else 0
    wall_ns = int(bubbles["duration_ns"].sum()) // (num_stages * num_replicas)
    return StageTables(
        {name: steps[name].to_numpy() for name in ("replica", "scheduled_ns", "host_ns")},
        {name: stages[name].to_numpy() for name in STAGE_COLUMNS},
        columns,
        num_stages,
        num_replicas,
        start_ns,
        start_ns + wall_ns,
    )


FRAMES = {
    "requests": requests_frame,
    "steps": steps_frame,
    "stages": stages_frame,
    "itls": itls_frame,
    "waits": waits_frame,
    "bubbles": bubbles_frame,
}
