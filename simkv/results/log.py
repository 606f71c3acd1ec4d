"""The log of a run: three tables of integers in columns, appended to in the hot loop, read at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from simkv.step import GraphMode, StepPlan, StepTime
from simkv.units import to_ns

STEP_COLUMNS = (
    "replica",
    "scheduled_ns",  # when schedule() decided the batch
    "host_ns",  # what the CPU then took before the first stage could begin
    "start_ns",  # when the first stage began it
    "end_ns",  # when its tokens were known
    "num_requests",
    "num_tokens",
    "num_decodes",
    "num_prefill_tokens",
    "decode_kv_tokens",
    "num_padded_tokens",
    "graph_mode",  # index into GRAPH_MODES
    "num_running",
    "num_waiting",
    "num_free_blocks",
    "num_preempted",
    "num_sampled_tokens",
)
STAGE_COLUMNS = (
    "step",  # row of the step table
    "stage",
    "start_ns",
    "end_ns",
    "compute_ns",
    "memory_ns",
    "comm_ns",
    "host_ns",  # waiting for the worker's CPU, inside the stage
    "measured_input_ns",
    "interpolated_input_ns",
    "extrapolated_input_ns",
    "assumed_input_ns",
)
ITL_COLUMNS = ("step", "gap_ns", "num_tokens")  # num_tokens tokens came gap_ns after their predecessors
GRAPH_MODES = tuple(GraphMode)


class ColumnLog:
    """A table of integers that grows by rows and is read by columns.

    >>> log = ColumnLog(("step", "gap_ns"))
    >>> log.append(0, 500); log.append(1, 700)
    >>> log.column("gap_ns"), len(log)
    ([500, 700], 2)
    """

    def __init__(self, names: tuple[str, ...]):
        self.names = names
        self._cells: list[int] = []

    def append(self, *row: int) -> None:
        """Add one row, in the order of `names`."""
        self._cells.extend(row)

    def column(self, name: str) -> list[int]:
        """Return one column."""
        return self._cells[self.names.index(name) :: len(self.names)]

    def columns(self) -> dict[str, list[int]]:
        """Return all columns by name."""
        return {name: self.column(name) for name in self.names}

    def __len__(self) -> int:
        return len(self._cells) // len(self.names)


class RequestOutcome(StrEnum):
    """What became of a request."""

    FINISHED = "finished"
    REJECTED = "rejected"  # refused by the front end: the prompt does not fit max_model_len
    UNFINISHED = "unfinished"  # the run was stopped


@dataclass(slots=True)
class RequestRecord:
    """The times of one request, None until they happen."""

    request_id: int
    num_prompt_tokens: int
    max_tokens: int
    arrival_ns: int  # when the client wanted to send it
    replica: int = 0
    sent_ns: int | None = None  # when it got its slot (max_concurrency)
    first_scheduled_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    finished_ns: int | None = None
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    num_recomputed_tokens: int = 0
    outcome: RequestOutcome = RequestOutcome.UNFINISHED


@dataclass(slots=True)
class RunLog:
    """Everything a run noted; times are integer nanoseconds from its start."""

    num_gpu_blocks: int
    num_stages: int
    num_replicas: int = 1
    steps: ColumnLog = field(default_factory=lambda: ColumnLog(STEP_COLUMNS))
    stages: ColumnLog = field(default_factory=lambda: ColumnLog(STAGE_COLUMNS))
    itls: ColumnLog = field(default_factory=lambda: ColumnLog(ITL_COLUMNS))
    requests: list[RequestRecord] = field(default_factory=list)
    end_ns: int = 0
    is_complete: bool = True  # False: stopped before every request was served

    def step(
        self, replica: int, scheduled_ns: int, host_ns: int, start_ns: int, end_ns: int, plan: StepPlan
    ) -> int:
        """Note a batch; return its row number."""
        shape = plan.shape
        self.steps.append(
            replica,
            scheduled_ns,
            host_ns,
            start_ns,
            end_ns,
            shape.num_requests,
            shape.num_tokens,
            shape.num_decodes,
            shape.num_prefill_tokens,
            shape.decode_kv_tokens,
            shape.num_padded_tokens,
            GRAPH_MODES.index(shape.graph_mode),
            plan.num_running,
            plan.num_waiting,
            plan.num_free_blocks,
            len(plan.preempted),
            sum(scheduled.samples for scheduled in plan.scheduled),
        )
        return len(self.steps) - 1

    def stage(self, step: int, stage: int, start_ns: int, end_ns: int, time: StepTime) -> None:
        """Note a batch on one pipeline stage; the rounded parts sum to the stage's time."""
        until_compute = to_ns(time.compute_s)
        until_memory = to_ns(time.compute_s + time.memory_s)
        until_comm = to_ns(time.compute_s + time.memory_s + time.comm_s)
        self.stages.append(
            step,
            stage,
            start_ns,
            end_ns,
            until_compute,
            until_memory - until_compute,
            until_comm - until_memory,
            end_ns - start_ns - until_comm,
            to_ns(time.measured_input_s),
            to_ns(time.interpolated_input_s),
            to_ns(time.extrapolated_input_s),
            to_ns(time.assumed_input_s),
        )
