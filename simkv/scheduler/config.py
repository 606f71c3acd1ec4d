"""The options that the scheduler's rules depend on."""

from __future__ import annotations

from dataclasses import dataclass

from simkv.spec.engine import Policy, ResolvedEngine


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """What the rules depend on; names and meanings are those of ``vllm serve``."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    long_prefill_token_threshold_adaptive: bool = False
    policy: Policy = "fcfs"
    scheduler_reserve_full_isl: bool = True
    async_scheduling: bool = False
    pipeline_parallel_size: int = 1

    @classmethod
    def from_engine(cls, engine: ResolvedEngine, pipeline_parallel_size: int) -> SchedulerConfig:
        """Pick the scheduler's options out of an engine's."""
        return cls(
            max_num_seqs=engine.max_num_seqs,
            max_num_batched_tokens=engine.max_num_batched_tokens,
            max_model_len=engine.max_model_len,
            enable_chunked_prefill=engine.enable_chunked_prefill,
            long_prefill_token_threshold=engine.long_prefill_token_threshold,
            long_prefill_token_threshold_adaptive=engine.long_prefill_token_threshold_adaptive,
            policy=engine.scheduling_policy,
            scheduler_reserve_full_isl=engine.scheduler_reserve_full_isl,
            async_scheduling=engine.async_scheduling,
            pipeline_parallel_size=pipeline_parallel_size,
        )

    @property
    def max_concurrent_batches(self) -> int:
        """Batches in flight: one per pipeline stage, and one more when scheduling runs ahead."""
        return self.pipeline_parallel_size + self.async_scheduling
