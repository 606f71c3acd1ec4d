"""Small worlds for engine tests: schedulers, requests and a cost model that is easy to reckon with."""

from simkv.engine.simulation import Simulation
from simkv.kv import BlockPool, KVCacheManager
from simkv.scheduler import Scheduler, SchedulerConfig
from simkv.step import StepTime
from simkv.workload import RequestSpec, Segment


class UnitCost:
    """A microsecond a token on each stage, and host time if wanted: before a batch, or a gap on each stage."""

    def __init__(self, num_stages=1, host_s=0.0, transfer_s=0.0, slow=None, gap_s=0.0):
        self.num_stages, self._host_s, self._transfer_s = num_stages, host_s, transfer_s
        self.slow, self.gap_s = slow or {}, gap_s

    def stage_times(self, shape):
        return tuple(
            StepTime(
                compute_s=1e-6 * shape.num_padded_tokens * self.slow.get(stage, 1),
                host_s=self.gap_s,
                assumed_input_s=1e-6 * shape.num_padded_tokens * self.slow.get(stage, 1) + self.gap_s,
            )
            for stage in range(self.num_stages)
        )

    def transfers_s(self, shape):
        return (self._transfer_s,) * (self.num_stages - 1)

    def host_s(self, shape):
        return self._host_s


def requests_of(rows, shared_prefix=0):
    """Requests from rows of (arrival ns, prompt length, outputs), in order of arrival."""
    out, token = [], 10**6
    for request_id, (arrival_ns, prompt_len, max_tokens) in enumerate(sorted(rows)):
        shared = min(shared_prefix, prompt_len - 1)
        segments = [Segment(0, shared)] if shared else []
        segments.append(Segment(token, prompt_len - shared))
        token += prompt_len
        out.append(RequestSpec(request_id, arrival_ns, tuple(segments), max_tokens, token))
        token += max_tokens
    return out


def simulation_of(requests, *, num_gpu_blocks=64, block_size=4, pp=1, dp=1, check=True, cost=None, **options):
    """A simulation over a small cache; `options` go to the scheduler, the clients' to the simulation."""
    client_keys = ("max_concurrency", "round_trip_ns", "router", "ignore_eos", "broadcast_wait")
    client = {key: options.pop(key) for key in client_keys if key in options}
    caching = options.pop("enable_prefix_caching", False)
    watermark = options.pop("watermark", 0.0)
    chunk_rule = options.pop("chunk_rule", None)
    max_model_len = options.pop("max_model_len", (num_gpu_blocks - 1) * block_size)
    config = SchedulerConfig(
        **{"max_num_seqs": 8, "max_num_batched_tokens": 16, **options},
        max_model_len=max_model_len,
        pipeline_parallel_size=pp,
    )

    def make_scheduler():
        pool = BlockPool(num_gpu_blocks)
        kv = KVCacheManager(pool, block_size, max_model_len, caching, watermark)
        return Scheduler(config, kv, chunk_rule=chunk_rule)

    return Simulation(
        iter(requests),
        len(requests),
        make_scheduler,
        cost or UnitCost(pp),
        num_gpu_blocks=num_gpu_blocks,
        num_stages=pp,
        num_replicas=dp,
        check=check,
        **client,
    )
