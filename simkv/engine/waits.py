"""Why an engine starves: read off the scheduler's state when it has nothing to issue though it may."""

from __future__ import annotations

from simkv.results.log import WaitKind
from simkv.scheduler import Request, Scheduler
from simkv.step import StepPlan
from simkv.units import ceil_div


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
