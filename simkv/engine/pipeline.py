"""Pipeline stages as servers: each takes one batch at a time, in order.

A stage is a FIFO resource of capacity one whose service times are known when a batch is issued, so when each
stage starts and ends it follows by recurrence: it starts when both the batch has arrived and the stage is
free. That is what a `simpy.Resource` per stage gives (a test compares the two), with one event a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class StageRun(NamedTuple):
    """One batch on one stage, from start to end."""

    start_ns: int
    end_ns: int


class Pipeline:
    """The stages of one replica."""

    def __init__(self, num_stages: int):
        self.free_at_ns = [0] * num_stages

    def issue(
        self, ready_ns: int, durations_ns: Sequence[int], transfers_ns: Sequence[int]
    ) -> list[StageRun]:
        """Send a batch through all stages: it is at the first at `ready_ns`, at each next after a transfer."""
        runs: list[StageRun] = []
        arrived_ns = ready_ns
        for stage, duration_ns in enumerate(durations_ns):
            start_ns = max(arrived_ns, self.free_at_ns[stage])
            end_ns = start_ns + duration_ns
            self.free_at_ns[stage] = end_ns
            runs.append(StageRun(start_ns, end_ns))
            if stage < len(transfers_ns):
                arrived_ns = end_ns + transfers_ns[stage]
        return runs
