"""``--check``: conservation of blocks and requests, audited at every step from what changed.

The auditor keeps books of its own, from plans and finishes alone, and compares them with the scheduler's.
"""

from __future__ import annotations

from collections.abc import Callable

from simkv.scheduler import Request, RequestStatus, Scheduler
from simkv.step import StepPlan


class Auditor:
    """Audits one scheduler; raises AssertionError (a bug of ours, not of the user) at the first violation."""

    def __init__(self, scheduler: Scheduler, num_arrived: Callable[[], int]):
        self.scheduler = scheduler
        self.num_arrived = num_arrived
        self._num_holders = [0] * scheduler.kv.pool.num_gpu_blocks
        self._num_held_blocks = 0
        self._tables: dict[int, list[int]] = {}
        self._num_finished = 0

    def __call__(self, plan: StepPlan, finished: list[Request] | None) -> None:
        """Audit after `schedule` (finished None) or after `update_from_output`."""
        if finished is None:
            self._audit_schedule(plan)
        else:
            for request in finished:
                assert request.status is RequestStatus.FINISHED, f"{request} was reported as finished"
                self._drop(request)
            self._num_finished += len(finished)
        pool = self.scheduler.kv.pool
        assert self._num_held_blocks + pool.num_free_blocks == pool.num_usable_blocks, (
            f"blocks: {self._num_held_blocks} held + {pool.num_free_blocks} free != {pool.num_usable_blocks}"
        )
        num_present = len(self.scheduler.running) + len(self.scheduler.waiting)
        assert self._num_finished + num_present == self.num_arrived(), (
            f"requests: {self._num_finished} finished + {num_present} present != {self.num_arrived()} arrived"
        )

    def audit_all(self) -> None:
        """Compare every holder count and table (slow; for the end of a run)."""
        kv = self.scheduler.kv
        for request_id, table in self._tables.items():
            assert kv.block_table(request_id) == table, f"request {request_id}: table differs"
        for block, count in enumerate(self._num_holders):
            assert kv.pool.num_holders(block) == count, f"block {block}: holders differ"

    def _audit_schedule(self, plan: StepPlan) -> None:
        for request in plan.preempted:
            self._drop(request)
        for request in (*plan.new, *plan.resumed):
            assert request.request_id not in self._tables, f"{request} was admitted twice"
            self._tables[request.request_id] = []
        config = self.scheduler.config
        for request_id, blocks in plan.new_blocks.items():
            num_hits = plan.hits.get(request_id, 0) // self.scheduler.kv.block_size
            for block in blocks[num_hits:]:
                assert self._num_holders[block] == 0, f"block {block} was handed out while held"
            for block in blocks:
                self._num_held_blocks += self._num_holders[block] == 0
                self._num_holders[block] += 1
            self._tables[request_id].extend(blocks)
        num_tokens = sum(scheduled.num_tokens for scheduled in plan.scheduled)
        assert num_tokens <= config.max_num_batched_tokens, f"{num_tokens} tokens exceed the budget"
        assert num_tokens == plan.shape.num_tokens, "the shape counts other tokens than the plan"
        assert plan.num_running <= config.max_num_seqs, f"{plan.num_running} requests are running"
        block_size = self.scheduler.kv.block_size
        for request, _, _ in plan.scheduled:
            num_slots = len(self._tables[request.request_id]) * block_size
            assert request.num_computed_tokens <= num_slots, f"{request} has only {num_slots} slots"

    def _drop(self, request: Request) -> None:
        for block in self._tables.pop(request.request_id, ()):
            self._num_holders[block] -= 1
            self._num_held_blocks -= self._num_holders[block] == 0
