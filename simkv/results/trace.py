"""A run as a Chrome trace (``traceEvents`` in JSON), which the Perfetto UI at https://ui.perfetto.dev opens.

A process a replica, in it a thread a pipeline stage: slices are batches, the slices inside them their parts in
the order compute, memory, communication, host (a batch's parts alternate in truth; only their sums are known),
and what lies between batches is named after its largest cause. Counters show the KV cache and the requests
that run and wait, as batches are decided and as requests finish; an asynchronous track a request its queue,
prefill and decode; arrows lead from a request's first batch over that of its first token to that of its last.
"""

from __future__ import annotations

import json
import secrets
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simkv.errors import ResultsError
from simkv.results.bubbles import idle_intervals
from simkv.results.bubbles_history import CAUSE_NAMES, CAUSES
from simkv.results.log import RequestOutcome
from simkv.results.series import BUSY_PARTS

if TYPE_CHECKING:
    from simkv.results.results import Results

Event = dict[str, Any]

_NS_PER_US = 1000
_STEP_ARGS = (
    "num_requests",
    "num_tokens",
    "num_decodes",
    "num_prefill_tokens",
    "decode_kv_tokens",
    "graph_mode",
)


def write_trace(results: Results, path: str | Path) -> Path:
    """Write a run's trace to a file, whole or not at all, and return its path; raise ResultsError if not."""
    path = Path(path)
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        try:
            with unfinished.open("w", encoding="utf-8") as file:
                file.write('{"displayTimeUnit": "ms", "traceEvents": [')
                for number, event in enumerate(trace_events(results)):
                    file.write((",\n" if number else "\n") + json.dumps(event))
                file.write("\n]}\n")
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise ResultsError(f"{path}: wanted a file that can be written, got: {reason}; use another") from None
    return path


def trace_events(results: Results) -> Iterator[Event]:
    """Yield the events of a run, times in microseconds from its start; process 0 holds the requests."""
    num_stages, num_replicas = results.summary["num_stages"], results.summary["num_replicas"]
    yield _name("process_name", 0, 0, "requests")
    for replica in range(num_replicas):
        yield _name("process_name", _process(replica), 0, f"replica {replica}")
        for stage in range(num_stages):
            yield _name("thread_name", _process(replica), stage, f"stage {stage}")
    yield from _batches(results)
    for replica in range(num_replicas):
        yield from _idle_times(results, replica)
    yield from _counters(results)
    yield from _requests(results)


def _batches(results: Results) -> Iterator[Event]:
    steps = results.steps
    replicas = steps["replica"].tolist()
    arguments = [
        dict(zip(_STEP_ARGS, row, strict=True)) for row in zip(*_columns(steps, _STEP_ARGS), strict=True)
    ]
    names = ("step", "stage", "start_ns", "end_ns", *(f"{part}_ns" for part in BUSY_PARTS))
    for step, stage, start_ns, end_ns, *parts_ns in zip(*_columns(results.stages, names), strict=True):
        process = _process(replicas[step])
        args = arguments[step]
        kind = (
            "decode" if not args["num_prefill_tokens"] else "prefill" if not args["num_decodes"] else "mixed"
        )
        yield _slice(f"{kind} {step}", process, stage, start_ns, end_ns, {"step": step, **args})
        edges_ns = pairwise(accumulate(parts_ns, initial=start_ns))
        for part, (part_start_ns, part_end_ns) in zip(BUSY_PARTS, edges_ns, strict=True):
            if part_end_ns > part_start_ns:
                yield _slice(part, process, stage, part_start_ns, part_end_ns)


def _idle_times(results: Results, replica: int) -> Iterator[Event]:
    for idle in idle_intervals(results.stage_tables, replica):
        shares = {cause: ns / _NS_PER_US for cause, ns in zip(CAUSES, idle.shares, strict=True) if ns}
        largest = max(shares, key=lambda cause: shares[cause])
        name = f"idle: {CAUSE_NAMES[largest]}"
        yield _slice(name, _process(replica), idle.stage, idle.start_ns, idle.end_ns, shares) | {
            "cname": "grey"
        }


def _counters(results: Results) -> Iterator[Event]:
    """Yield what each replica held: as batches were decided, as requests finished, and at the end.

    A request that finishes gives up its seat at once. How many blocks it frees, which others may share, is
    seen when the next batch is decided; none is held where no request runs.
    """
    for replica in range(results.summary["num_replicas"]):
        running, waiting = 0, 0
        usage: float | None
        last_ns = results.stage_tables.end_ns
        for time_ns, num_finished, state in _changes(results, replica):
            if state:
                running, waiting, usage = state
            else:
                running = max(running - num_finished, 0)
                usage = None if running else 0.0
            last_ns = max(last_ns, time_ns)
            yield from _counts(replica, time_ns, running, waiting, usage)
        if (running or waiting) and results.summary["is_complete"]:
            yield from _counts(replica, last_ns, 0, 0, 0.0)


def _changes(results: Results, replica: int) -> Iterator[tuple[int, int, tuple[int, int, float] | None]]:
    """Yield in order (time, requests that finished, None) and (time, 0, state after ``schedule()``)."""
    requests, steps = results.requests, results.steps
    is_own = (requests["replica"] == replica) & (requests["outcome"] == RequestOutcome.FINISHED)
    finished = Counter(requests.loc[is_own, "finished_ns"].tolist())
    names = ("scheduled_ns", "num_running", "num_waiting", "kv_cache_usage_perc")
    decided = zip(*_columns(steps[steps["replica"] == replica], names), strict=True)
    changes: list[tuple[int, int, tuple[int, int, float] | None]]
    changes = [(time_ns, number, None) for time_ns, number in finished.items()]
    changes += [(time_ns, 0, (running, waiting, usage)) for time_ns, running, waiting, usage in decided]
    # What finished at the time of a decision was known to it.
    yield from sorted(changes, key=lambda change: (change[0], change[2] is not None))


def _counts(replica: int, time_ns: int, running: int, waiting: int, usage: float | None) -> Iterator[Event]:
    where = {"ph": "C", "pid": _process(replica), "ts": time_ns / _NS_PER_US}
    yield {"name": "requests", **where, "args": {"running": running, "waiting": waiting}}
    if usage is not None:
        yield {"name": "KV cache usage", **where, "args": {"percent": round(100 * usage, 3)}}


def _requests(results: Results) -> Iterator[Event]:
    """Yield the phases of every request as far as they came, and its arrows if it finished."""
    arrows = _Arrows(results)
    moments = ("sent_ns", "first_scheduled_ns", "first_token_ns", "finished_ns")
    names = ("request_id", "replica", "num_prompt_tokens", "num_output_tokens", *moments)
    for request_id, replica, num_prompt, num_output, *times in zip(
        *_columns(results.requests, names), strict=True
    ):
        # A request that was stopped or refused lacks the later moments, which pandas stores as NA.
        known = [time for time in times if isinstance(time, int)]
        args = {"num_prompt_tokens": num_prompt, "num_output_tokens": num_output, "replica": replica}
        common = {"cat": "request", "id": request_id, "pid": 0, "tid": 0}
        for phase, begin_ns, end_ns in zip(("queue", "prefill", "decode"), known, known[1:], strict=False):
            yield common | {"name": phase, "ph": "b", "ts": begin_ns / _NS_PER_US, "args": args}
            yield common | {"name": phase, "ph": "e", "ts": end_ns / _NS_PER_US}
        if len(known) == len(moments):
            yield from arrows.of(request_id, replica, *known[1:])


class _Arrows:
    """Finds the batches of a request by the moments of its record."""

    def __init__(self, results: Results):
        self.last_stage = results.summary["num_stages"] - 1
        names = ("scheduled_ns", "start_ns", "end_ns")
        self.batches = [  # of each replica, a list a column
            _columns(results.steps[results.steps["replica"] == replica], names)
            for replica in range(results.summary["num_replicas"])
        ]

    def of(
        self, request_id: int, replica: int, scheduled_ns: int, first_ns: int, last_ns: int
    ) -> Iterator[Event]:
        """Yield an arrow from the first batch over that of the first token to that of the last."""
        scheduled, starts_ns, ends_ns = self.batches[replica]
        # Batches are decided and end in order; a token is known when its batch ends or the CPU next looks.
        first, of_first, of_last = (
            bisect_right(times_ns, time_ns) - 1
            for times_ns, time_ns in ((scheduled, scheduled_ns), (ends_ns, first_ns), (ends_ns, last_ns))
        )
        if first < 0 or of_first < first:  # a log that no engine wrote: arrows go forward in time
            return
        arrow = {"name": "request", "cat": "flow", "id": request_id, "pid": _process(replica)}
        yield arrow | {"ph": "s", "tid": 0, "ts": starts_ns[first] / _NS_PER_US}
        # It holds on to the slice around its end: a nanosecond before the batch ends.
        middle = arrow | {"tid": self.last_stage, "ts": (ends_ns[of_first] - 1) / _NS_PER_US}
        if of_last > of_first:
            yield middle | {"ph": "t"}
            middle["ts"] = (ends_ns[of_last] - 1) / _NS_PER_US
        yield middle | {"ph": "f", "bp": "e"}


def _columns(frame: Any, names: tuple[str, ...]) -> list[list[Any]]:
    return [frame[name].tolist() for name in names]


def _process(replica: int) -> int:
    return replica + 1


def _name(kind: str, process: int, thread: int, name: str) -> Event:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _slice(
    name: str, process: int, thread: int, start_ns: int, end_ns: int, args: Event | None = None
) -> Event:
    event = {
        "name": name,
        "ph": "X",
        "pid": process,
        "tid": thread,
        "ts": start_ns / _NS_PER_US,
        "dur": (end_ns - start_ns) / _NS_PER_US,
    }
    return event | {"args": args} if args else event
