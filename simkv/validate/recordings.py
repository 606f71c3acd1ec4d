"""Recordings of a real vLLM scheduler, step by step: reading, replaying, comparing.

The schema is described in ``docs/recordings.md``. A replay drives `Scheduler` through the loop of vLLM's
engine core and notes the same fields as the recording; the two must be equal in every one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simkv.kv import BlockPool, KVCacheManager
from simkv.scheduler import Request, RequestStatus, Scheduler, SchedulerConfig
from simkv.step import StepPlan
from simkv.validate.recording_file import SCHEDULER_KEYS, read_recording

# Small recordings also hold queues; they are compared where the recording has them.
_QUEUE_KEYS = ("running_ids", "waiting_ids", "free_queue", "cached_blocks")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where a replay leaves its recording."""

    step: int | None
    field: str
    wanted: Any
    got: Any

    def __str__(self) -> str:
        where = "at the end" if self.step is None else f"step {self.step}"
        return f"{where}, {self.field}: recorded {self.wanted!r}, replayed {self.got!r}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome for one recording."""

    name: str
    num_steps: int
    first_difference: Difference | None

    @property
    def is_equal(self) -> bool:
        """True if every field of every step is the same."""
        return self.first_difference is None


def compare_recording(path: Path) -> Comparison:
    """Replay a recording and return the first difference, if any; raise TraceError if the file is wrong."""
    recording = read_recording(path)
    name = str(recording.get("name", path.stem))
    return Comparison(name, len(recording["steps"]), compare(recording))


def compare(recording: dict[str, Any]) -> Difference | None:
    """Replay a recording that has been read; return the first difference, None if there is none."""
    replay = Replay(recording)
    steps = replay.steps()
    for wanted in recording["steps"]:
        got = next(steps, None)
        if got is None:
            return Difference(wanted["step"], "step", wanted["step"], None)
        for key in [*wanted, *(key for key in got if key not in wanted)]:
            if key in _QUEUE_KEYS and key not in wanted:
                continue
            if wanted.get(key) != got.get(key):
                return Difference(wanted["step"], key, wanted.get(key), got.get(key))
    # A recorder stops a run that no longer progresses, and names the requests that are stuck, if any.
    stuck = recording.get("stuck")
    if stuck is None and (got := next(steps, None)) is not None:
        return Difference(got["step"], "step", None, got["step"])
    ends = {
        "num_preemptions": replay.num_preemptions,
        "final_free_queue": format_blocks(replay.pool.free_queue()),
    }
    for key, value in ends.items():
        if key in recording and recording[key] != value:
            return Difference(None, key, recording[key], value)
    if (stuck or []) != replay.unfinished():
        return Difference(None, "stuck", stuck, replay.unfinished())
    return None


class Replay:
    """Drives the scheduler as vLLM's engine core does; `steps` yields what a recording notes."""

    def __init__(self, recording: dict[str, Any]):
        config = recording["config"]
        self.config = SchedulerConfig(**{key: config[key] for key in SCHEDULER_KEYS})
        self.pool = BlockPool(config["num_gpu_blocks"])
        self.kv = KVCacheManager(
            self.pool,
            config["block_size"],
            config["max_model_len"],
            config["enable_prefix_caching"],
            config["watermark"],
        )
        self.scheduler = Scheduler(self.config, self.kv)
        self.num_preemptions = 0
        self._has_unreported_finishes = False
        self._requests = deque(
            sorted(
                (_read_request(raw, recording["out_base"]) for raw in recording["requests"]),
                key=lambda request: (request.arrival, request.request_id),
            )
        )

    def steps(self) -> Iterator[dict[str, Any]]:
        """Yield one dictionary a step, with the fields of a recording."""
        queue: deque[tuple[int, StepPlan]] = deque()
        step = 0
        while True:
            if not (self._wants_schedule() or queue):
                if not self._requests:
                    return
                step = max(step, int(self._requests[0].arrival))
            while self._requests and int(self._requests[0].arrival) <= step:
                self.scheduler.add_request(self._requests.popleft())
            yield self._one_step(step, queue)
            step += 1

    def unfinished(self) -> list[int]:
        """Requests that the scheduler still holds."""
        return sorted(r.request_id for r in [*self.scheduler.running, *self.scheduler.waiting])

    def _wants_schedule(self) -> bool:
        reports = self.config.max_concurrent_batches > 1 and self._has_unreported_finishes
        return self.scheduler.has_requests() or reports

    def _one_step(self, step: int, queue: deque[tuple[int, StepPlan]]) -> dict[str, Any]:
        noted: dict[str, Any] = {"step": step}
        plan = None
        if self._wants_schedule():
            plan = self.scheduler.schedule()
            self._has_unreported_finishes = False
            self.num_preemptions += len(plan.preempted)
            queue.append((step, plan))
            noted |= self._note_plan(plan)
        noted["retired"] = None
        is_filling = len(queue) < self.config.max_concurrent_batches
        if (
            not (is_filling and plan is not None and (plan.scheduled or self.scheduler.has_requests()))
            and queue
        ):
            retired_step, retired = queue.popleft()
            discarded = [
                s.request.request_id for s in retired.scheduled if s.request.status is RequestStatus.FINISHED
            ]
            finished = self.scheduler.update_from_output(retired)
            noted["retired"] = retired_step
            self._has_unreported_finishes = self._has_unreported_finishes or bool(finished)
            noted |= _unless_empty(finished=[r.request_id for r in finished], discarded=discarded)
        noted["free_after"] = self.pool.num_free_blocks
        return noted

    def _note_plan(self, plan: StepPlan) -> dict[str, Any]:
        running, waiting = self.scheduler.running, self.scheduler.waiting
        return {
            "scheduled": [[s.request.request_id, s.num_tokens] for s in plan.scheduled],
            **_unless_empty(
                new={str(r.request_id): plan.hits[r.request_id] for r in plan.new},
                resumed={str(r.request_id): plan.hits[r.request_id] for r in plan.resumed},
                preempted=[r.request_id for r in plan.preempted],
                blocks={str(key): format_blocks(ids) for key, ids in plan.new_blocks.items()},
            ),
            "running": plan.num_running,
            "waiting": plan.num_waiting,
            "free_blocks": plan.num_free_blocks,
            "kv_usage": round(self.pool.usage, 6),
            "running_ids": [r.request_id for r in running],
            "waiting_ids": [r.request_id for r in waiting],
            "free_queue": format_blocks(self.pool.free_queue()),
            "cached_blocks": format_blocks(self.pool.cached_blocks()),
        }


def _read_request(raw: dict[str, Any], out_base: int) -> Request:
    request_id = raw["id"]
    return Request(
        request_id=request_id,
        prompt=[(start, length) for start, length in raw["prompt"]],
        max_tokens=raw["max_tokens"],
        output_start=out_base * (request_id + 1),
        arrival=raw["arrival"] + request_id * 1e-6,  # the tie-break the recorder gave to vLLM
        priority=raw["priority"],
        stop_after=raw.get("stop_after"),
    )


def _unless_empty(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value}


def format_blocks(blocks: list[int]) -> str:
    """Write block ids as a recording does.

    >>> format_blocks([1, 2, 3, 4, 9, 7, 6, 5])
    '1-4,9,7-5'
    """
    parts: list[str] = []
    i = 0
    while i < len(blocks):
        j = i
        stride = blocks[i + 1] - blocks[i] if i + 1 < len(blocks) else 0
        if abs(stride) == 1:
            while j + 1 < len(blocks) and blocks[j + 1] - blocks[j] == stride:
                j += 1
        parts.append(str(blocks[i]) if i == j else f"{blocks[i]}-{blocks[j]}")
        i = j + 1
    return ",".join(parts)
