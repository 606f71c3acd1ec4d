"""Driving a scheduler by hand, a step at a time."""

from simkv.kv import BlockPool, KVCacheManager
from simkv.scheduler import Request, Scheduler, SchedulerConfig


def scheduler_of(num_gpu_blocks=50, block_size=4, caching=False, watermark=0.0, **options):
    options = {"max_num_seqs": 8, "max_num_batched_tokens": 32, "max_model_len": 200, **options}
    config = SchedulerConfig(**options)
    pool = BlockPool(num_gpu_blocks)
    return Scheduler(config, KVCacheManager(pool, block_size, config.max_model_len, caching, watermark))


def request_of(request_id, prompt_len, max_tokens=50, **options):
    return Request(
        request_id, [(1000 * request_id, prompt_len)], max_tokens, 10**6 * (request_id + 1),
        **{"arrival": request_id, **options},
    )  # fmt: skip


def step(scheduler):
    """Schedule a batch, take in its tokens, return the plan."""
    plan = scheduler.schedule()
    scheduler.update_from_output(plan)
    return plan


def scheduled(plan):
    return [(s.request.request_id, s.num_tokens) for s in plan.scheduled]


def ids(requests):
    return [request.request_id for request in requests]
