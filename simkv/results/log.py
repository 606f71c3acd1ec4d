"""The log of a run: tables of integers in columns, appended to in the hot loop, read at the end."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field, fields
from enum import StrEnum
from operator import itemgetter
from typing import Any, overload

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
WAIT_COLUMNS = (
    "replica",
    "start_ns",
    "end_ns",
    "kind",  # index into WAIT_KINDS
    "step",  # the batch whose tokens were waited for; NOT_YET while there is no work
    "blocked_step",  # the batch that was issued but waited in front of the first stage; NOT_YET: the CPU waited
)
GRAPH_MODES = tuple(GraphMode)
NOT_YET = -(2**63)  # how None is stored: no clock and no row shows it


class WaitKind(StrEnum):
    """Why an engine's CPU waits instead of issuing a batch, or an issued batch cannot begin."""

    NO_WORK = "no_work"  # no request is there
    FULL = "full"  # as many batches are in flight as may be
    DRAIN = "drain"  # every request has its last token in flight, and none waits
    TOKEN_DEPENDENCY = "token_dependency"  # enough requests run, but all wait for their tokens
    TOO_FEW_REQUESTS = "too_few_requests"  # fewer run than there are stages, and none waits
    MAX_NUM_SEQS = "max_num_seqs"  # requests wait for a seat
    KV_LIMITED = "kv_limited"  # requests wait for blocks


WAIT_KINDS = tuple(WaitKind)


class ColumnLog:
    """A table of integers that grows by rows and is read by columns; eight bytes a cell.

    >>> log = ColumnLog(("step", "gap_ns"))
    >>> log.append(0, 500); log.append(1, 700)
    >>> list(log.column("gap_ns")), len(log)
    ([500, 700], 2)
    """

    _PACK_AT = 1 << 16  # cells: a list grows faster by rows than an array does, which is five times smaller

    def __init__(self, names: tuple[str, ...]):
        self.names = names
        self._packed = array("q")
        self._fresh: list[int] = []

    def append(self, *row: int) -> None:
        """Add one row, in the order of `names`."""
        self._fresh.extend(row)
        if len(self._fresh) >= self._PACK_AT:
            self._pack()

    def column(self, name: str) -> array[int]:
        """Return one column."""
        self._pack()
        return self._packed[self.names.index(name) :: len(self.names)]

    def columns(self) -> dict[str, array[int]]:
        """Return all columns by name."""
        return {name: self.column(name) for name in self.names}

    def row(self, index: int) -> Sequence[int]:
        """Return one row."""
        self._pack()
        width = len(self.names)
        return self._packed[index * width : (index + 1) * width]

    def __len__(self) -> int:
        return (len(self._packed) + len(self._fresh)) // len(self.names)

    def _pack(self) -> None:
        if self._fresh:
            self._packed.extend(array("q", self._fresh))
            self._fresh = []


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


class RequestLog(Sequence[RequestRecord]):
    """The records of all requests, packed; read in the order of their ids.

    A record is copied in when its request has come to its end; what is read is a copy again.
    """

    _OUTCOMES = tuple(RequestOutcome)

    def __init__(self) -> None:
        self._rows = ColumnLog(tuple(field.name for field in fields(RequestRecord)))
        self._order: list[int] | None = None

    def append(self, record: RequestRecord) -> None:
        """Note a request that has come to its end."""
        *times, outcome = astuple(record)
        row = (NOT_YET if value is None else value for value in times)
        self._rows.append(*row, self._OUTCOMES.index(outcome))
        self._order = None

    @overload
    def __getitem__(self, index: int) -> RequestRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[RequestRecord]: ...
    def __getitem__(self, index: int | slice) -> RequestRecord | list[RequestRecord]:
        if self._order is None:
            ids = self._rows.column("request_id")
            self._order = [row for row, _ in sorted(enumerate(ids), key=itemgetter(1))]
        if isinstance(index, slice):
            return [self._record(row) for row in self._order[index]]
        return self._record(self._order[index])

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[RequestRecord]:
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def _record(self, row: int) -> RequestRecord:
        *cells, outcome = self._rows.row(row)
        values: list[Any] = [None if cell == NOT_YET else cell for cell in cells]
        return RequestRecord(*values, self._OUTCOMES[outcome])  # type: ignore[call-arg]  # 14 values


@dataclass(slots=True)
class RunLog:
    """Everything a run noted; times are integer nanoseconds from its start."""

    num_gpu_blocks: int
    num_stages: int
    num_replicas: int = 1
    steps: ColumnLog = field(default_factory=lambda: ColumnLog(STEP_COLUMNS))
    stages: ColumnLog = field(default_factory=lambda: ColumnLog(STAGE_COLUMNS))
    itls: ColumnLog = field(default_factory=lambda: ColumnLog(ITL_COLUMNS))
    waits: ColumnLog = field(default_factory=lambda: ColumnLog(WAIT_COLUMNS))
    requests: RequestLog = field(default_factory=RequestLog)
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

    def wait(
        self,
        replica: int,
        start_ns: int,
        end_ns: int,
        kind: WaitKind,
        step: int | None = None,
        blocked_step: int | None = None,
    ) -> None:
        """Note that an engine, or its batch `blocked_step`, waited, and for which batch."""
        steps = (NOT_YET if row is None else row for row in (step, blocked_step))
        self.waits.append(replica, start_ns, end_ns, WAIT_KINDS.index(kind), *steps)
