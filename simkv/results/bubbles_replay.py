"""Why each stage idled: the log of one replica, walked through batch by batch (see ``docs/bubbles.md``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simkv.results.bubbles_history import (
    CHUNK_IMBALANCE,
    FILL_DRAIN,
    HOST,
    NO_WORK,
    STAGE_IMBALANCE,
    STARVED_BY,
    TRANSFER,
    WHILE_DRY,
    History,
    Shares,
    beginning,
    blame,
    difference,
    take,
)
from simkv.results.log import WaitKind


class Wait(NamedTuple):
    """The engine waited; `batch` is the row in the replica's list of batches, None without any."""

    start_ns: int
    end_ns: int
    kind: WaitKind
    batch: int | None


class Idle(NamedTuple):
    """A stage did nothing; `batch` is the one it waited for, None at the end of the run.

    Where the pipeline ran dry, what lies between two batches comes in pieces of one cause each.
    """

    stage: int
    start_ns: int
    end_ns: int
    batch: int | None
    shares: Shares


class Delay(NamedTuple):
    """Something that kept a batch from the first stage until `end_ns`; None: nothing but the CPU's work."""

    end_ns: int
    history: History | None
    kind: WaitKind | None
    likeness: float = 1.0  # what the batch takes, over what the one it waited for took; at most 1


class Span(NamedTuple):
    """Something that explains idle time at the very moment at which it passes."""

    start_ns: int
    end_ns: int
    cause: int


@dataclass(frozen=True)
class Timetable:
    """What one replica did: batch k was decided at scheduled_ns[k] and on stage s from starts_ns[k][s] on."""

    scheduled_ns: Sequence[int]
    starts_ns: Sequence[Sequence[int]]
    ends_ns: Sequence[Sequence[int]]
    waits: Sequence[Wait]  # of the engine
    blocked: Mapping[int, Wait]  # of batches that were issued, in front of the first stage
    num_stages: int


class Replay:
    """Walks through a timetable between two times and yields every idle interval with its causes."""

    def __init__(self, timetable: Timetable, start_ns: int, end_ns: int):
        self.timetable = timetable
        self.end_ns = end_ns
        num_stages = timetable.num_stages
        self._free_at_ns = [start_ns] * num_stages
        self._histories = [beginning(start_ns) for _ in range(num_stages)]  # of when each became free
        # Of the moments when the last batches' tokens were known: more than are ever in flight.
        self._of_tokens: deque[History] = deque(maxlen=num_stages + 2)
        self._shortest_ns: deque[int] = deque(maxlen=num_stages + 2)  # what they took on their fastest stages
        self._first_wait = 0
        self._first_delay = 0  # the first wait after the batch before was issued
        self._starved_by: int | None = None  # what kept the engine from issuing the batch at hand earlier

    def __iter__(self) -> Iterator[Idle]:
        table = self.timetable
        for batch, scheduled_ns in enumerate(table.scheduled_ns):
            starts_ns, ends_ns = table.starts_ns[batch], table.ends_ns[batch]
            waits = self._waits_between(self._free_at_ns[0], min(scheduled_ns, starts_ns[0]))
            shortest_ns = min(end - start for start, end in zip(starts_ns, ends_ns, strict=True))
            delays = self._delays(batch, shortest_ns)
            if batch in table.blocked:
                waits.append(table.blocked[batch])
            ran_dry = batch == 0 or any(wait.kind in (WaitKind.NO_WORK, WaitKind.DRAIN) for wait in waits)
            spans = self._spans(batch, waits) if ran_dry else None
            self._starved_by = None
            for stage, (start_ns, stage_end_ns) in enumerate(zip(starts_ns, ends_ns, strict=True)):
                if start_ns > self._free_at_ns[stage]:
                    yield from self._idle(batch, stage, start_ns, delays, spans)
                history = self._histories[stage] = self._histories[stage].copy()
                history[CHUNK_IMBALANCE] += shortest_ns
                history[STAGE_IMBALANCE] += stage_end_ns - start_ns - shortest_ns
                self._free_at_ns[stage] = stage_end_ns
            self._of_tokens.append(self._histories[-1])
            self._shortest_ns.append(shortest_ns)
        yield from self._after_the_last()

    def _idle(
        self, batch: int, stage: int, start_ns: int, delays: Sequence[Delay], spans: Sequence[Span] | None
    ) -> Iterator[Idle]:
        """A stage was idle until a batch began: say why, and let the stage's history go on from there."""
        free_at_ns, history = self._free_at_ns[stage], self._histories[stage]
        pieces = overlaps(spans, free_at_ns, start_ns) if spans else []
        if stage == 0:
            shares = _sums(pieces) if spans else self._waited(delays)
            self._histories[0] = [ns + share_ns for ns, share_ns in zip(history, shares, strict=True)]
        else:
            arrival = self._histories[stage - 1].copy()
            arrival[TRANSFER] += start_ns - self._free_at_ns[stage - 1]
            self._histories[stage] = arrival
            if not spans:
                # Unlike batches are told apart in front of the first stage, from where the history has it.
                extra_ns = blame(difference(arrival, history), self._starved_by, likeness=0.0)
                shares = take(extra_ns, start_ns - free_at_ns)
        if spans:
            yield from self._dry(stage, batch, pieces)
        else:
            yield from self._within(Idle(stage, free_at_ns, start_ns, batch, shares))

    def _dry(self, stage: int, batch: int | None, pieces: Sequence[Span]) -> Iterator[Idle]:
        for piece in pieces:
            yield from self._within(Idle(stage, piece.start_ns, piece.end_ns, batch, _sums([piece])))

    def _delays(self, batch: int, shortest_ns: int) -> list[Delay]:
        """Return what held a batch up: the engine's waits, the CPU's work behind the last, late tokens."""
        table, last = self.timetable, None
        delays: list[Delay] = []
        while self._first_delay < len(table.waits):
            wait = table.waits[self._first_delay]
            if wait.end_ns > table.scheduled_ns[batch]:
                break
            self._first_delay += 1
            if wait.batch is not None:
                last, of_tokens = wait, self._of_tokens[wait.batch - batch]
                likeness = min(1.0, shortest_ns / self._shortest_ns[wait.batch - batch])
                delays.append(Delay(wait.end_ns, of_tokens, wait.kind, likeness))
        blocked = table.blocked.get(batch)
        ready_ns = table.starts_ns[batch][0] if blocked is None else blocked.start_ns
        if last is not None:
            history = of_tokens.copy()
            history[HOST] += ready_ns - last.end_ns
            delays[-1] = Delay(ready_ns, history, last.kind, likeness)
        else:
            delays.append(Delay(ready_ns, None, None))
        if blocked is not None and blocked.batch is not None:
            likeness = min(1.0, shortest_ns / self._shortest_ns[blocked.batch - batch])
            delays.append(
                Delay(blocked.end_ns, self._of_tokens[blocked.batch - batch], blocked.kind, likeness)
            )
        return delays

    def _waited(self, delays: Sequence[Delay]) -> Shares:
        """Return why the first stage was idle before a batch while requests were there.

        The work of the CPU belongs to the batch's history, as that before belongs to the stage's: it made the
        stage idle only by as much as it made the batch later than the stage.
        """
        now_ns, history = self._free_at_ns[0], self._histories[0]
        for delay in delays:
            if delay.end_ns > now_ns:
                if delay.history is None:
                    shares = _sums([Span(now_ns, delay.end_ns, HOST)])
                else:
                    self._starved_by = None if delay.kind is None else STARVED_BY.get(delay.kind)
                    extra_ns = blame(difference(delay.history, history), self._starved_by, delay.likeness)
                    shares = take(extra_ns, delay.end_ns - now_ns)
                history = [ns + share_ns for ns, share_ns in zip(history, shares, strict=True)]
                now_ns = delay.end_ns
        return difference(history, self._histories[0])

    def _spans(self, batch: int, waits: Sequence[Wait]) -> list[Span]:
        """What passed before a batch that found the engine run dry: on each stage it counts when it was."""
        starts_ns, ends_ns = self.timetable.starts_ns[batch], self.timetable.ends_ns[batch]
        spans = [span for wait in waits for span in self._spans_of_wait(wait)]
        spans += _uncovered(spans, self._free_at_ns[0], starts_ns[0])
        for stage in range(self.timetable.num_stages - 1):
            spans.append(Span(starts_ns[stage], ends_ns[stage], FILL_DRAIN))
            # If the batch queues here as well, behind the one before: that keeps the later stages busy still.
            spans.append(Span(ends_ns[stage], starts_ns[stage + 1], TRANSFER))
        return spans

    def _spans_of_wait(self, wait: Wait) -> Iterator[Span]:
        cause = WHILE_DRY[wait.kind]
        now_ns = wait.start_ns
        if wait.batch is not None:
            # Between two stages the awaited batch is on its way, or queues behind another.
            starts_ns, ends_ns = self.timetable.starts_ns, self.timetable.ends_ns
            for stage in range(1, self.timetable.num_stages):
                left_ns, start_ns = ends_ns[wait.batch][stage - 1], starts_ns[wait.batch][stage]
                queued = wait.batch > 0 and start_ns <= ends_ns[wait.batch - 1][stage]
                if not queued and now_ns < start_ns:
                    left_ns = max(left_ns, now_ns)
                    yield Span(now_ns, left_ns, cause)
                    yield Span(left_ns, start_ns, TRANSFER)
                    now_ns = start_ns
        yield Span(now_ns, wait.end_ns, cause)

    def _after_the_last(self) -> Iterator[Idle]:
        """After its last batch a stage drains while the engine still waits for one."""
        waits = self._waits_between(self._free_at_ns[0], self.end_ns)
        spans = [span for wait in waits for span in self._spans_of_wait(wait)]
        for stage, free_at_ns in enumerate(self._free_at_ns):
            if free_at_ns < self.end_ns:
                own = [*spans, *_uncovered(spans, free_at_ns, self.end_ns)]
                yield from self._dry(stage, None, overlaps(own, free_at_ns, self.end_ns))

    def _waits_between(self, start_ns: int, end_ns: int) -> list[Wait]:
        """Return the engine's waits in an interval, cut to it; intervals must be asked for in order."""
        waits = self.timetable.waits
        while self._first_wait < len(waits) and waits[self._first_wait].end_ns <= start_ns:
            self._first_wait += 1
        found, index = [], self._first_wait
        while index < len(waits) and waits[index].start_ns < end_ns:
            wait = waits[index]
            found.append(
                wait._replace(start_ns=max(wait.start_ns, start_ns), end_ns=min(wait.end_ns, end_ns))
            )
            index += 1
        return found

    def _within(self, idle: Idle) -> Iterator[Idle]:
        """Cut what lies beyond the end of the run: of the shares the first, which came last."""
        beyond_ns = idle.end_ns - self.end_ns
        if beyond_ns <= 0:
            yield idle
        elif idle.start_ns < self.end_ns:
            cut = take(idle.shares, beyond_ns)
            yield idle._replace(end_ns=self.end_ns, shares=difference(idle.shares, cut))


def overlaps(spans: Sequence[Span], start_ns: int, end_ns: int) -> list[Span]:
    """Return what of an interval each span holds, in order; the spans must not overlap and must cover it."""
    cut = [Span(max(span.start_ns, start_ns), min(span.end_ns, end_ns), span.cause) for span in spans]
    pieces = sorted(span for span in cut if span.start_ns < span.end_ns)
    assert sum(_sums(pieces)) == end_ns - start_ns, "idle time that nothing explains"
    return pieces


def _sums(spans: Sequence[Span]) -> Shares:
    shares = [0] * (NO_WORK + 1)
    for span in spans:
        shares[span.cause] += span.end_ns - span.start_ns
    return shares


def _uncovered(spans: Sequence[Span], start_ns: int, end_ns: int) -> list[Span]:
    """Where the engine waited for nothing its CPU was at work: the spans' complement, as host time."""
    gaps, now_ns = [], start_ns
    for span in spans:
        if span.start_ns > now_ns:
            gaps.append(Span(now_ns, min(span.start_ns, end_ns), HOST))
        now_ns = max(now_ns, span.end_ns)
    if now_ns < end_ns:
        gaps.append(Span(now_ns, end_ns, HOST))
    return gaps
