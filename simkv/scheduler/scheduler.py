"""The plain scheduler: vLLM's V1 rules, in the order in which they apply.

There is no prefill or decode phase: each request has known tokens (prompt and outputs so far) and computed
ones, and each step lets the computed ones catch up. The rules were written down from recordings of vLLM
0.32.0 (see ``docs/scheduler.md``); every recording is reproduced, block ids included.
"""

from __future__ import annotations

from simkv.kv import BlockPool, KVCacheManager
from simkv.scheduler.chunks import ChunkAllowance, ChunkRule
from simkv.scheduler.config import SchedulerConfig
from simkv.scheduler.graphs import CudaGraphs
from simkv.scheduler.request import Request, RequestStatus
from simkv.scheduler.waiting import WAITING_QUEUES, WaitingQueue
from simkv.spec.engine import ResolvedEngine
from simkv.step import PrefillChunk, Scheduled, StepPlan, StepShape


class Scheduler:
    """Decides each batch (`schedule`) and takes in what it produced (`update_from_output`).

    chunk_rule   cuts chunks to equal times, which vLLM does not do; None = vLLM's rules alone
    """

    def __init__(
        self,
        config: SchedulerConfig,
        kv: KVCacheManager,
        graphs: CudaGraphs | None = None,
        chunk_rule: ChunkRule | None = None,
    ):
        self.config = config
        self.chunk_rule = chunk_rule
        self.kv = kv
        self.graphs = graphs or CudaGraphs(config.max_num_seqs, config.max_num_batched_tokens)
        self.waiting: WaitingQueue = WAITING_QUEUES[config.policy]()
        self.running: list[Request] = []
        self._num_calls = 0

    def add_request(self, request: Request) -> None:
        """Queue a new request."""
        outputs = (request.output_start, request.max_tokens)
        self.kv.add_request(request.request_id, [*request.prompt, outputs])
        self.waiting.add(request)

    def has_requests(self) -> bool:
        """True while any request is running or waiting."""
        return bool(self.running) or len(self.waiting) > 0

    def schedule(self) -> StepPlan:
        """Decide the next batch: running requests first, in their order, then waiting ones."""
        self._num_calls += 1
        plan = StepPlan()
        batch: dict[Request, int] = {}
        chunks = ChunkAllowance(self._chunk_limit(), self.config.max_num_batched_tokens, self.chunk_rule)
        budget = self._schedule_running(plan, batch, chunks)
        if not plan.preempted:
            self._admit_waiting(plan, batch, chunks, budget)
        self._close(plan, batch)
        return plan

    def _chunk_limit(self) -> int:
        """The most tokens any request may get in this step; a single request is not limited."""
        threshold = self.config.long_prefill_token_threshold
        num_requests = len(self.running) + len(self.waiting)
        if threshold == 0 or num_requests <= 1:
            return self.config.max_num_batched_tokens
        if self.config.long_prefill_token_threshold_adaptive:
            return max(threshold, self.config.max_num_batched_tokens // num_requests)
        return threshold

    def _schedule_running(self, plan: StepPlan, batch: dict[Request, int], chunks: ChunkAllowance) -> int:
        """Let running requests catch up; preempt while blocks are short. Return the budget left."""
        budget = self.config.max_num_batched_tokens
        max_model_len = self.config.max_model_len
        index = 0
        while budget > 0 and index < len(self.running):
            request = self.running[index]
            num_tokens = min(
                request.num_tokens + request.num_output_placeholders - request.num_computed_tokens,
                budget,
                max_model_len - request.num_computed_tokens - 1,
            )
            num_tokens = chunks.cut(num_tokens, request.num_computed_tokens)
            if num_tokens <= 0 or self._waits_for_its_token(request):
                index += 1
                continue
            while (new_blocks := self.kv.allocate_slots(request, num_tokens)) is None:
                victim = self._choose_victim()
                position = self.running.index(victim)
                # A victim that was scheduled in this step gives its tokens back to the budget. The full
                # blocks of its withdrawn chunk keep their hash although nothing computes them (as in vLLM).
                budget += batch.pop(victim, 0)
                plan.new_blocks.pop(victim.request_id, None)
                if position < index:
                    index -= 1
                self._preempt(victim, plan)
                if victim is request:
                    return budget
            batch[request] = num_tokens
            chunks.take(num_tokens, request.num_computed_tokens)
            if new_blocks:
                plan.new_blocks[request.request_id] = new_blocks
            budget -= num_tokens
            index += 1
        return budget

    def _waits_for_its_token(self, request: Request) -> bool:
        """Async scheduling: True if the token in flight is the last, or its pipeline has not turned yet."""
        if not self.config.async_scheduling:
            return False
        placeholders = request.num_output_placeholders
        length_at_stop = request.num_prompt_tokens + request.max_tokens
        if placeholders > 0 and request.num_computed_tokens + 2 - placeholders >= length_at_stop:
            return True
        return self._num_calls < request.first_call_to_decode

    def _choose_victim(self) -> Request:
        """fcfs: the most recently admitted request; priority: the least urgent one."""
        if self.config.policy == "priority":
            return max(self.running, key=lambda request: (request.priority, request.arrival))
        return self.running[-1]

    def _preempt(self, victim: Request, plan: StepPlan) -> None:
        """Take all blocks from a request and queue it again; it keeps its outputs and recomputes the rest."""
        self.running.remove(victim)
        self.kv.free(victim.request_id)
        victim.status = RequestStatus.PREEMPTED
        victim.num_ever_computed_tokens = max(victim.num_ever_computed_tokens, victim.num_computed_tokens)
        victim.num_computed_tokens = 0
        victim.num_output_placeholders = 0
        victim.num_preemptions += 1
        self.waiting.put_back(victim)
        plan.preempted.append(victim)

    def _admit_waiting(
        self, plan: StepPlan, batch: dict[Request, int], chunks: ChunkAllowance, budget: int
    ) -> None:
        """Admit from the head of the queue until budget, seats or blocks run out; the first to fail ends it."""
        while budget > 0 and len(self.running) < self.config.max_num_seqs:
            request = self._next_waiting()
            if request is None:
                return
            hits = self.kv.get_computed_blocks(request)
            num_hit_tokens = len(hits) * self.kv.block_size
            num_tokens = chunks.cut(request.num_tokens - num_hit_tokens, num_hit_tokens)
            if num_tokens > budget:
                if not self.config.enable_chunked_prefill:
                    return
                num_tokens = budget
            if num_tokens == 0:
                return
            table = self.kv.admit(
                request,
                hits,
                num_tokens,
                reserve_full=self.config.scheduler_reserve_full_isl,
                leave_watermark=bool(self.running),
            )
            if table is None:
                return
            self.waiting.remove(request)
            self.running.append(request)
            (plan.new if request.num_preemptions == 0 else plan.resumed).append(request)
            request.status = RequestStatus.RUNNING
            request.num_computed_tokens = num_hit_tokens
            plan.hits[request.request_id] = num_hit_tokens
            plan.new_blocks[request.request_id] = list(table)
            batch[request] = num_tokens
            chunks.take(num_tokens, num_hit_tokens)
            budget -= num_tokens

    def _next_waiting(self) -> Request | None:
        """The first waiting request; one that was preempted waits until all it had in flight has arrived."""
        return next((request for request in self.waiting if request.num_batches_in_flight == 0), None)

    def _close(self, plan: StepPlan, batch: dict[Request, int]) -> None:
        """Advance the computed tokens and describe the batch."""
        is_async = self.config.async_scheduling
        scheduled: list[Scheduled] = []
        prefills: list[PrefillChunk] = []
        num_decodes = decode_kv_tokens = max_decode_context = num_all_tokens = 0
        for request, num_tokens in batch.items():
            context_len = request.num_computed_tokens
            computed = request.num_computed_tokens = context_len + num_tokens
            samples = computed >= request.num_tokens + request.num_output_placeholders
            if is_async and samples:
                request.num_output_placeholders += 1
                request.first_call_to_decode = self._num_calls + self.config.pipeline_parallel_size
            request.num_batches_in_flight += 1
            if context_len < request.num_ever_computed_tokens:
                request.num_recomputed_tokens += min(computed, request.num_ever_computed_tokens) - context_len
            scheduled.append(Scheduled(request, num_tokens, samples))
            num_all_tokens += num_tokens
            if num_tokens == 1 and context_len > 0:
                num_decodes += 1
                decode_kv_tokens += computed
                max_decode_context = max(max_decode_context, computed)
            else:
                prefills.append(PrefillChunk(num_tokens, context_len))
        plan.scheduled = scheduled
        plan.num_running = len(self.running)
        plan.num_waiting = len(self.waiting)
        plan.num_free_blocks = self.kv.pool.num_free_blocks
        if scheduled:
            num_padded_tokens, graph_mode = self.graphs.pick(num_all_tokens, is_decode_only=not prefills)
            plan.shape = StepShape(
                num_decodes=num_decodes,
                decode_kv_tokens=decode_kv_tokens,
                max_decode_context=max_decode_context,
                prefills=tuple(prefills),
                num_sampled=len(scheduled),
                num_padded_tokens=num_padded_tokens,
                graph_mode=graph_mode,
                num_new_blocks=sum(map(len, plan.new_blocks.values()))
                - sum(plan.hits.values()) // self.kv.block_size,
            )

    def update_from_output(self, plan: StepPlan) -> list[Request]:
        """Take in the sampled tokens of a batch; return the requests that finished, their blocks freed."""
        finished: list[Request] = []
        for request, _, samples in plan.scheduled:
            request.num_batches_in_flight -= 1
            if request.status is RequestStatus.FINISHED or not samples:
                continue  # a request that hit a stop token had one more step in flight: its token is discarded
            request.num_tokens += 1
            request.num_output_tokens += 1
            if request.num_output_placeholders > 0:
                request.num_output_placeholders -= 1
            if self.config.async_scheduling:
                self._cache_late(request)
            if self._is_at_its_end(request):
                finished.append(request)
                self._finish(request)
        if finished:
            self.running = [r for r in self.running if r.status is not RequestStatus.FINISHED]
        return finished

    def _cache_late(self, request: Request) -> None:
        """When scheduling runs ahead of the tokens, a block may be completed by the token that just came."""
        if self.kv.enable_prefix_caching:  # a victim has computed nothing, so nothing of it is cached
            self.kv.cache_blocks(request, request.num_computed_tokens - request.num_output_placeholders)

    def _is_at_its_end(self, request: Request) -> bool:
        return (
            request.num_output_tokens >= request.max_tokens
            or request.num_tokens >= self.config.max_model_len
            or request.num_output_tokens == request.stop_after
        )

    def _finish(self, request: Request) -> None:
        if request.status is RequestStatus.PREEMPTED:  # its last token was in flight when it was preempted
            self.waiting.remove(request)
        request.status = RequestStatus.FINISHED
        self.kv.free(request.request_id)
        self.kv.remove_request(request.request_id)


def build_scheduler(
    engine: ResolvedEngine,
    num_gpu_blocks: int,
    pipeline_parallel_size: int,
    compute_capability: str = "9.0",
    chunk_rule: ChunkRule | None = None,
) -> Scheduler:
    """Return a scheduler with an empty KV cache of `num_gpu_blocks` blocks (the null block included)."""
    config = SchedulerConfig.from_engine(engine, pipeline_parallel_size)
    pool = BlockPool(num_gpu_blocks)
    kv = KVCacheManager(
        pool, engine.block_size, engine.max_model_len, engine.enable_prefix_caching, engine.watermark
    )
    largest_graph = 1024 if compute_capability.startswith("10.") else 512
    graphs = CudaGraphs(
        engine.max_num_seqs,
        engine.max_num_batched_tokens,
        engine.enforce_eager,
        largest_allowed=largest_graph,
    )
    return Scheduler(config, kv, graphs, chunk_rule)
