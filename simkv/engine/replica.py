"""One engine: schedules, issues batches into its pipeline, and takes in their tokens."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple, Protocol

import simpy

from simkv.engine.clock import Clock
from simkv.engine.pipeline import Pipeline
from simkv.engine.waits import Lateness, why_few_batches, why_starved
from simkv.errors import SimkvError
from simkv.results.log import RequestOutcome, RequestRecord, RunLog, WaitKind
from simkv.scheduler import Request, Scheduler
from simkv.spec.engine import BroadcastWait
from simkv.step import StepPlan, StepShape, StepTime
from simkv.units import to_ns

# A run that makes no token for so long never will: each preemption costs its victim all it had computed.
MAX_PREEMPTIONS_IN_VAIN = 1_000


class StepCost(Protocol):
    """What the engine asks of a cost model."""

    def stage_times(self, shape: StepShape) -> tuple[StepTime, ...]:
        """Return the time of a batch on each pipeline stage."""

    def transfers_s(self, shape: StepShape) -> tuple[float, ...]:
        """Return the seconds from each stage to the next."""

    def host_s(self, shape: StepShape) -> float:
        """Return the seconds of CPU work before the first stage can begin."""


class Batch(NamedTuple):
    """A batch in flight; `step` is its row in the log, None for an empty one."""

    plan: StepPlan
    step: int | None
    end_ns: int


class Replica:
    """A scheduler and a pipeline under one SimPy process.

    records           of the requests on their way, by id
    on_finish         called with each request that finished, when its last token is known
    audit             called after every change of the scheduler's state (``--check``)
    broadcast_wait    scheduling ahead under a pipeline: a batch begins only when the one issued before it has
                      left the last stage - ``always``, if that one is ``sampled`` from at all, or ``never``
                      for that reason (``engine.broadcast_wait``)
    """

    def __init__(
        self,
        env: Clock,
        index: int,
        scheduler: Scheduler,
        cost: StepCost,
        log: RunLog,
        records: dict[int, RequestRecord],
        on_finish: Callable[[Request], None],
        audit: Callable[[StepPlan, list[Request] | None], None] | None = None,
        broadcast_wait: BroadcastWait = "never",
    ):
        self.env = env
        self.index = index
        self.scheduler = scheduler
        self.cost = cost
        self.log = log
        self.records = records
        self.on_finish = on_finish
        self.audit = audit
        self.pipeline = Pipeline(log.num_stages)
        self._work_arrived = env.event()
        self._without_work_since_ns: int | None = None
        self._broadcast_wait = broadcast_wait
        # Synchronous scheduling gives no request whose token is in flight; on one stage the order is enough.
        self._runs_ahead = scheduler.config.async_scheduling and log.num_stages > 1
        self._sampled_in: dict[int, Batch] = {}  # if it runs ahead: the last batch to yield a request a token
        self._lateness = Lateness()
        self._num_preemptions_in_vain = 0  # since a batch last yielded a token
        env.process(self.run())

    def submit(self, request: Request) -> None:
        """Take in a request; an idle engine wakes up."""
        self.scheduler.add_request(request)
        self._lateness.queue(request)
        if not self._work_arrived.triggered:
            self._work_arrived.succeed()

    def stop(self) -> None:
        """The run ends: note how long the engine has had no work, if it has none."""
        since_ns, now_ns = self._without_work_since_ns, self.env.now_ns
        if since_ns is not None and since_ns < now_ns:
            self.log.wait(self.index, since_ns, now_ns, WaitKind.NO_WORK)
        self._without_work_since_ns = None

    def run(self) -> Generator[simpy.Event, None, None]:
        """Keep up to `max_concurrent_batches` batches in flight; await the oldest when no more may be issued."""
        max_concurrent_batches = self.scheduler.config.max_concurrent_batches
        in_flight: deque[Batch] = deque()
        cpu_free_at_ns = 0
        while True:
            if not in_flight and not self.scheduler.has_requests():
                self._work_arrived = self.env.event()
                self._without_work_since_ns = self.env.now_ns
                yield self._work_arrived
                self.stop()
            plan, is_filling = None, False
            if self.scheduler.has_requests():
                plan = self.scheduler.schedule()
                cpu_free_at_ns = self.env.now_ns + self._issue(plan, in_flight)
                is_filling = len(in_flight) < max_concurrent_batches and (
                    bool(plan.scheduled) or self.scheduler.has_requests()
                )
            batch = None if is_filling else in_flight.popleft()
            # The CPU is busy until the new batch is issued, the oldest until its tokens are known.
            resume_at_ns = max(cpu_free_at_ns, batch.end_ns if batch else 0)
            if resume_at_ns > self.env.now_ns:
                if batch is not None:
                    self._note_wait(batch, in_flight, plan, max(cpu_free_at_ns, self.env.now_ns))
                yield self.env.until_ns(resume_at_ns)
            if batch is not None:
                self._take_in(batch)

    def _issue(self, plan: StepPlan, in_flight: deque[Batch]) -> int:
        """Send a batch into the pipeline; return the host time it took, during which the GPUs may be busy."""
        now_ns = self.env.now_ns
        for request in plan.preempted:
            self._lateness.queue(request)
        for request in (*plan.new, *plan.resumed):
            self._lateness.admit(request)
        if self.audit is not None:
            self.audit(plan, None)
        self._refuse_to_thrash(plan)
        if plan.is_empty:
            if not plan.preempted and not any(batch.plan.scheduled for batch in in_flight):
                raise SimkvError(
                    f"replica {self.index} is stuck at {now_ns} ns: {plan.num_running} requests are running and "
                    f"{plan.num_waiting} waiting, {plan.num_free_blocks} blocks are free, and none can be scheduled"
                )
            in_flight.append(Batch(plan, None, now_ns))
            return 0
        times = self.cost.stage_times(plan.shape)
        host_ns = to_ns(self.cost.host_s(plan.shape))
        transfers_ns = [to_ns(seconds) for seconds in self.cost.transfers_s(plan.shape)]
        ready_ns = now_ns + host_ns
        awaited, kind = self._awaited(plan, in_flight) if self._runs_ahead else (None, WaitKind.FULL)
        free_at_ns = max(ready_ns, self.pipeline.free_at_ns[0])
        if awaited is not None:
            ready_ns = max(ready_ns, awaited.end_ns)
        runs = self.pipeline.issue(ready_ns, [to_ns(time.total_s) for time in times], transfers_ns)
        step = self.log.step(self.index, now_ns, host_ns, runs[0].start_ns, runs[-1].end_ns, plan)
        for stage, (run, time) in enumerate(zip(runs, times, strict=True)):
            self.log.stage(step, stage, run.start_ns, run.end_ns, time)
        for request in plan.new:
            record = self.records[request.request_id]
            record.first_scheduled_ns = now_ns
            record.num_cached_tokens = plan.hits[request.request_id]
        if awaited is not None and free_at_ns < ready_ns:
            kind = self._blame(kind, ready_ns - free_at_ns)
            self.log.wait(self.index, free_at_ns, ready_ns, kind, awaited.step, step)
        batch = Batch(plan, step, runs[-1].end_ns)
        in_flight.append(batch)
        if self._runs_ahead:
            for request, _, samples in plan.scheduled:
                if samples:
                    self._sampled_in[request.request_id] = batch
        return host_ns

    def _awaited(self, plan: StepPlan, in_flight: Sequence[Batch]) -> tuple[Batch | None, WaitKind]:
        """Return the batch whose tokens a batch scheduled ahead is computed from, and why it may come late."""
        sources = (self._sampled_in.get(request.request_id) for request, _, _ in plan.scheduled)
        awaited = max((batch for batch in sources if batch is not None), key=_end_ns, default=None)
        issued = [batch for batch in in_flight if batch.step is not None]
        last = issued[-1] if issued and self._broadcasts(issued[-1]) else None
        if last is not None and (awaited is None or awaited.end_ns < last.end_ns):
            return last, WaitKind.TOKEN_DEPENDENCY
        # A batch for every stage is in flight: a late token tells of unlike batches, else of too few of them.
        is_full = len(issued) >= self.scheduler.config.pipeline_parallel_size
        return awaited, WaitKind.FULL if is_full or awaited is None else why_few_batches(self.scheduler, plan)

    def _broadcasts(self, batch: Batch) -> bool:
        """True if what a batch samples holds up the batch behind it, whatever that is computed from."""
        if self._broadcast_wait == "sampled":
            return any(samples for _, _, samples in batch.plan.scheduled)
        return self._broadcast_wait == "always"

    def _note_wait(
        self, batch: Batch, in_flight: Sequence[Batch], plan: StepPlan | None, start_ns: int
    ) -> None:
        """Note why nothing is issued until `batch` ends; `plan` is what the last schedule() gave."""
        if batch.end_ns <= start_ns:
            return
        num_in_flight = 1 + sum(other.step is not None for other in in_flight)
        is_full = num_in_flight >= self.scheduler.config.pipeline_parallel_size
        kind = WaitKind.FULL if is_full else why_starved(self.scheduler, plan)
        kind = self._blame(kind, batch.end_ns - start_ns)
        self.log.wait(self.index, start_ns, batch.end_ns, kind, batch.step)

    def _blame(self, kind: WaitKind, duration_ns: int) -> WaitKind:
        return self._lateness.starve(kind, duration_ns, len(self.scheduler.waiting) > 0)

    def _refuse_to_thrash(self, plan: StepPlan) -> None:
        """Prompts that were admitted on their first chunks can preempt each other for ever, token by token."""
        self._num_preemptions_in_vain += len(plan.preempted)
        if any(scheduled.samples for scheduled in plan.scheduled):
            self._num_preemptions_in_vain = 0
        if self._num_preemptions_in_vain > MAX_PREEMPTIONS_IN_VAIN:
            raise SimkvError(
                f"replica {self.index} is thrashing at {self.env.now_ns} ns: {MAX_PREEMPTIONS_IN_VAIN:,} "
                "preemptions without one new token; set engine.scheduler_reserve_full_isl=true or add KV blocks"
            )

    def _take_in(self, batch: Batch) -> None:
        """Hand a finished batch's tokens to the scheduler and note when each came."""
        finished = self.scheduler.update_from_output(batch.plan)
        if self.audit is not None:
            self.audit(batch.plan, finished)
        if batch.step is None:
            return
        now_ns = self.env.now_ns
        gaps: Counter[int] = Counter()
        for request, _, samples in batch.plan.scheduled:
            if not samples:
                continue
            record = self.records.get(request.request_id)
            if record is None:
                continue  # a token that came after a stop token: it is discarded
            if record.last_token_ns is None:
                record.first_token_ns = now_ns
            else:
                gaps[now_ns - record.last_token_ns] += 1
            record.last_token_ns = now_ns
        for gap_ns, num_tokens in gaps.items():
            self.log.itls.append(batch.step, gap_ns, num_tokens)
        for request in finished:
            self._lateness.finish(request)
            record = self.records[request.request_id]
            record.finished_ns = now_ns
            record.num_output_tokens = request.num_output_tokens
            record.num_preemptions = request.num_preemptions
            record.num_recomputed_tokens = request.num_recomputed_tokens
            record.outcome = RequestOutcome.FINISHED
            self._sampled_in.pop(request.request_id, None)
            self.on_finish(request)


def _end_ns(batch: Batch) -> int:
    return batch.end_ns
