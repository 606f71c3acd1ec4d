"""Where each stage's wall time went: busy parts, and idle time by cause, to the nanosecond.

Takes columns of integers, as a `ColumnLog` or a data frame holds them, so that a loaded run and a fresh one
are read by the same code. ``docs/bubbles.md`` defines every cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simkv.results.bubbles_history import CAUSE_NAMES, CAUSES, clip_parts
from simkv.results.bubbles_replay import Idle, Replay, Timetable, Wait
from simkv.results.log import WAIT_KINDS, RunLog
from simkv.results.metrics import window_ns
from simkv.results.series import BUSY_PARTS, Columns, Ints, arrays

_BAR_WIDTH = 20


@dataclass(frozen=True)
class StageAccount:
    """One stage of one replica: busy by part and idle by cause, in nanoseconds; they sum to its wall time."""

    replica: int
    stage: int
    busy_ns: Mapping[str, int]
    idle_ns: Mapping[str, int]

    @property
    def wall_ns(self) -> int:
        """From the first sending to the end of the run."""
        return sum(self.busy_ns.values()) + sum(self.idle_ns.values())


@dataclass(frozen=True)
class StageTables:
    """What the accounts are drawn up from: a log's columns, the layout, and the time they cover."""

    steps: Columns
    stages: Columns
    waits: Columns
    num_stages: int
    num_replicas: int
    start_ns: int
    end_ns: int

    @classmethod
    def from_log(cls, log: RunLog) -> StageTables:
        """Read a log; the time covered is from the first sending to the end of the run."""
        steps, stages, waits = arrays(log.steps), arrays(log.stages), arrays(log.waits)
        return cls(steps, stages, waits, log.num_stages, log.num_replicas, *window_ns(log))

    def rows_of(self, replica: int) -> Ints:
        """Return the rows of the step table that are a replica's, in order."""
        return np.flatnonzero(self.steps["replica"] == replica)

    def by_stage(self, name: str, rows: Ints) -> Ints:
        """Return a column of the stage table as [batch, stage], of some rows of the step table."""
        return self.stages[name].reshape(-1, self.num_stages)[rows]

    def timetable(self, replica: int) -> Timetable:
        """Return what a replica did when."""
        rows = self.rows_of(replica)
        is_own = self.waits["replica"] == replica
        own = [self.waits[name][is_own] for name in ("start_ns", "end_ns", "kind", "step", "blocked_step")]
        start_ns, end_ns, kind, step, blocked = (column.tolist() for column in own)
        batch_of = dict(zip(rows.tolist(), range(len(rows)), strict=True)).get
        waits = [
            (batch_of(blocked), Wait(start, end, WAIT_KINDS[kind], batch_of(step)))
            for start, end, kind, step, blocked in zip(start_ns, end_ns, kind, step, blocked, strict=True)
        ]
        return Timetable(
            self.steps["scheduled_ns"][rows].tolist(),
            self.by_stage("start_ns", rows).tolist(),
            self.by_stage("end_ns", rows).tolist(),
            [wait for blocked, wait in waits if blocked is None],
            {blocked: wait for blocked, wait in waits if blocked is not None},
            self.num_stages,
        )


def stage_accounts(tables: StageTables) -> list[StageAccount]:
    """Draw up the account of every stage of every replica; none for a run that took no time."""
    if tables.end_ns <= tables.start_ns:
        return []
    accounts = []
    for replica in range(tables.num_replicas):
        busy_ns = _busy_ns(tables, replica)
        idle_ns = [[0] * len(CAUSES) for _ in range(tables.num_stages)]
        for idle in idle_intervals(tables, replica):
            total = idle_ns[idle.stage]
            for cause, share_ns in enumerate(idle.shares):
                total[cause] += share_ns
        accounts += [
            StageAccount(replica, stage, busy_ns[stage], dict(zip(CAUSES, idle_ns[stage], strict=True)))
            for stage in range(tables.num_stages)
        ]
    return accounts


def idle_intervals(tables: StageTables, replica: int) -> Iterator[Idle]:
    """Yield every interval in which a stage of a replica was idle, with its causes; by batch, then by stage."""
    return iter(Replay(tables.timetable(replica), tables.start_ns, tables.end_ns))


def _busy_ns(tables: StageTables, replica: int) -> list[dict[str, int]]:
    """Return each stage's busy time by part; of a batch that the end of the run cut, what came before."""
    rows = tables.rows_of(replica)
    parts = np.stack([tables.by_stage(f"{part}_ns", rows) for part in BUSY_PARTS])
    whole = (tables.by_stage("end_ns", rows) <= tables.end_ns).astype(np.int64)
    busy_ns = [dict(zip(BUSY_PARTS, sums, strict=True)) for sums in (parts * whole).sum(axis=1).T.tolist()]
    for row, stage in np.argwhere(whole == 0).tolist():
        before_ns = max(0, tables.end_ns - int(tables.by_stage("start_ns", rows)[row, stage]))
        for part, ns in zip(BUSY_PARTS, clip_parts(parts[:, row, stage].tolist(), before_ns), strict=True):
            busy_ns[stage][part] += ns
    return busy_ns


def format_bubbles(summary: Mapping[str, Any]) -> str:
    """Return a line for each cause that idled the stages at all, the largest first."""
    shares = {cause: summary[f"idle_{cause}_share"] for cause in CAUSES}
    lines = [f"{' Bubbles ':-^50}"]
    for cause in sorted(CAUSES, key=lambda cause: -shares[cause]):
        if shares[cause] > 0:
            filled = round(shares[cause] * _BAR_WIDTH)
            bar = "█" * filled + "·" * (_BAR_WIDTH - filled)
            lines.append(f"{CAUSE_NAMES[cause]:<24} {bar} {shares[cause]:>5.1%}")
    if len(lines) == 1:
        lines.append("none: no stage was ever idle")
    return "\n".join(lines)
