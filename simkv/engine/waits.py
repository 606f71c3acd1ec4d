"""Why an engine starves: read off the scheduler's state when it has nothing to issue though it may."""

from __future__ import annotations

from collections import Counter

from simkv.results.log import WaitKind
from simkv.scheduler import Request, Scheduler
from simkv.step import StepPlan
from simkv.units import ceil_div

_KEPT_OUT = (WaitKind.MAX_NUM_SEQS, WaitKind.KV_LIMITED)
_NONE_WAITS = (WaitKind.TOO_FEW_REQUESTS, WaitKind.TOKEN_DEPENDENCY)


class Lateness:
    """How late requests run because the engine, starved, kept them waiting for seats or blocks.

    When none waits any more, those that ran late run alone: without the shortage they would have run beside the
    others. So what an engine starves for then is still the shortage, for as long as it kept them waiting.
    """

    def __init__(self) -> None:
        self._kept_out_ns: Counter[WaitKind] = Counter()  # so far, whoever waited
        self._then_ns: dict[int, Counter[WaitKind]] = {}  # the same when a request began to wait
        self._late_ns: dict[int, Counter[WaitKind]] = {}  # of requests that were admitted late

    def queue(self, request: Request) -> None:
        """A request begins to wait, new or preempted."""
        self._then_ns[request.request_id] = self._kept_out_ns.copy()

    def admit(self, request: Request) -> None:
        """A request gets its seat and its blocks."""
        late_ns = self._kept_out_ns - self._then_ns.pop(request.request_id)
        late_ns += self._late_ns.get(request.request_id, Counter())
        if late_ns:
            self._late_ns[request.request_id] = late_ns

    def finish(self, request: Request) -> None:
        """A request needs nothing any more, wherever it was."""
        self._then_ns.pop(request.request_id, None)
        self._late_ns.pop(request.request_id, None)

    def starve(self, kind: WaitKind, duration_ns: int, is_any_waiting: bool) -> WaitKind:
        """Return what a time counts for in which the engine starved, for `kind` at first sight."""
        if kind in _KEPT_OUT:
            self._kept_out_ns[kind] += duration_ns
        elif kind in _NONE_WAITS and not is_any_waiting and self._late_ns:
            latest = max(self._late_ns.values(), key=Counter.total)
            kind = max(_KEPT_OUT, key=latest.__getitem__)
            for request_id, late_ns in list(self._late_ns.items()):
                late_ns[max(_KEPT_OUT, key=late_ns.__getitem__)] -= duration_ns
                self._late_ns[request_id] = +late_ns
                if not self._late_ns[request_id]:
                    del self._late_ns[request_id]
        return kind


def why_starved(scheduler: Scheduler, plan: StepPlan | None) -> WaitKind:
    """Return what keeps `schedule` from giving another batch; the first reason that holds.

    `plan` is what it gave last, None if it was not asked because no request is left.
    """
    max_model_len = scheduler.config.max_model_len
    if not len(scheduler.waiting) and all(
        _last_token_is_in_flight(request, max_model_len) for request in scheduler.running
    ):
        return WaitKind.DRAIN
    return why_few_batches(scheduler, plan)


def why_few_batches(scheduler: Scheduler, plan: StepPlan | None) -> WaitKind:
    """Return why fewer batches are in flight than there are stages, while requests are at work."""
    config = scheduler.config
    if len(scheduler.waiting) > 0:
        if len(scheduler.running) >= config.max_num_seqs:
            return WaitKind.MAX_NUM_SEQS
        # Whoever waits although seats and token budget are left waits for blocks. Where a step used up the
        # budget, the next waits for a token although there may be work: empty batches fill the queue, as in vLLM.
        fits = not _has_budget_left(scheduler, plan) and _fits(scheduler, next(iter(scheduler.waiting)))
        return WaitKind.TOKEN_DEPENDENCY if fits else WaitKind.KV_LIMITED
    if len(scheduler.running) < config.pipeline_parallel_size:
        return WaitKind.TOO_FEW_REQUESTS
    return WaitKind.TOKEN_DEPENDENCY


def _has_budget_left(scheduler: Scheduler, plan: StepPlan | None) -> bool:
    if plan is None or plan.is_empty:
        return True
    config = scheduler.config
    if scheduler.chunk_rule is not None:  # which may end a step before its budget
        return False
    return config.enable_chunked_prefill and plan.shape.num_tokens < config.max_num_batched_tokens


def _fits(scheduler: Scheduler, request: Request) -> bool:
    """True if the blocks that are free hold all known tokens of a request, prefix hits left aside."""
    return ceil_div(request.num_tokens, scheduler.kv.block_size) <= scheduler.kv.pool.num_free_blocks


def _last_token_is_in_flight(request: Request, max_model_len: int) -> bool:
    """True if the request needs no further batch, as far as the scheduler can know."""
    # Synchronous scheduling keeps no placeholders: all known tokens computed means that one is on its way.
    num_on_their_way = request.num_output_placeholders or int(
        request.num_computed_tokens >= request.num_tokens
    )
    return num_on_their_way > 0 and (
        request.num_output_tokens + num_on_their_way >= request.max_tokens
        or request.num_tokens + num_on_their_way >= max_model_len
    )
