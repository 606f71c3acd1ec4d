"""The memory ledger: what a GPU holds besides the KV cache, and how many blocks are left.

requested = total × gpu_memory_utilization
KV bytes  = requested − weights − activation peak − non-torch − CUDA graphs (where the version deducts them)
num_gpu_blocks = the minimum over all ranks. Terms, sources and limits: ``docs/memory.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

from simkv.kv.activation import activation_peak_bytes
from simkv.kv.groups import KvGroups, kv_groups, token_bytes
from simkv.kv.overheads import DEDUCTS_GRAPHS_SINCE, graph_bytes, non_torch_bytes, outside_bytes
from simkv.kv.weights import weights_bytes
from simkv.spec.engine import FIRST_V1
from simkv.spec.scenario import Scenario

Outcome = Literal["started", "refused", "oom"]
# These compared one request's need in the whole model with one stage's memory, and so refused pipelines that
# fit (vLLM pull request 33698 mended it).
PIPELINE_CHECK_IS_WRONG = ((0, 14), (0, 15))
# Printed tokens: int(concurrency × max_model_len) in later versions, the blocks of one group until 0.19.
PRINTS_CONCURRENCY_SINCE = (0, 20)
# The start-up check leaves the null block out (read off 0.32; 0.19 and before compared bytes).
COUNTS_NULL_BLOCK_SINCE = (0, 20)


@dataclass(frozen=True, slots=True)
class RankLedger:
    """One rank of a pipeline stage, in bytes; all ranks of a stage are alike.

    kv_block_bytes is what one block takes in all layers of the stage. outside_bytes is what no budget holds,
    the graph pool apart.
    """

    stage: int
    num_layers: int
    total_bytes: int
    requested_bytes: int
    weights_bytes: int
    activation_bytes: int
    non_torch_bytes: int
    graph_bytes: int
    deducts_graphs: bool
    outside_bytes: int
    kv_bytes: int
    kv_block_bytes: int

    @property
    def num_gpu_blocks(self) -> int:
        """Blocks that fit on this rank."""
        return max(0, self.kv_bytes // self.kv_block_bytes)


@dataclass(frozen=True, slots=True)
class MemoryLedger:
    """All stages of a replica, and what follows for requests."""

    ranks: tuple[RankLedger, ...]
    groups: KvGroups
    max_model_len: int
    num_gpu_blocks: int
    is_overridden: bool
    version: tuple[int, int]

    @property
    def block_size(self) -> int:
        """Tokens of one request in a block; models with linear attention have larger blocks than asked for."""
        return self.groups.block_size

    @property
    def binding_stage(self) -> int:
        """The stage whose ranks hold the fewest blocks."""
        return min(self.ranks, key=lambda rank: rank.num_gpu_blocks).stage

    @property
    def blocks_per_request(self) -> int:
        """Blocks that one request of `max_model_len` tokens needs."""
        return self.groups.blocks_of(self.max_model_len)

    @property
    def kv_tokens(self) -> int:
        """Tokens of the cache as vLLM prints them ("GPU KV cache size")."""
        return self.tokens_of(self.num_gpu_blocks)

    @property
    def max_concurrency(self) -> float:
        """Requests of `max_model_len` tokens that fit at once ("Maximum concurrency")."""
        return self.concurrency_of(self.num_gpu_blocks)

    def tokens_of(self, num_gpu_blocks: int) -> int:
        """Tokens that vLLM prints for a cache of so many blocks."""
        if self.version >= PRINTS_CONCURRENCY_SINCE:
            return int(self.concurrency_of(num_gpu_blocks) * self.max_model_len)
        return num_gpu_blocks // len(self.groups.kinds) * self.block_size * self.groups.context_parallel_size

    def concurrency_of(self, num_gpu_blocks: int) -> float:
        """Maximum concurrency for a cache of so many blocks; V0 divided tokens, V1 divides blocks."""
        if self.version < FIRST_V1:
            return num_gpu_blocks * self.block_size / self.max_model_len
        return num_gpu_blocks / self.blocks_per_request

    @property
    def longest_request_tokens(self) -> int:
        """The largest `max_model_len` that vLLM would start with."""
        if self._compares_whole_model:
            available = min(rank.kv_bytes for rank in self.ranks)
            num_blocks = max(0, available) // sum(rank.kv_block_bytes for rank in self.ranks)
            return self.groups.longest_request(num_blocks)
        return self.groups.longest_request(self.num_usable_blocks)

    @property
    def num_usable_blocks(self) -> int:
        """Blocks that the start-up check grants to one request; the null block holds nothing."""
        null_blocks = 1 if self.version >= COUNTS_NULL_BLOCK_SINCE else 0
        return max(0, self.num_gpu_blocks - null_blocks)

    @property
    def _compares_whole_model(self) -> bool:
        return len(self.ranks) > 1 and self.version in PIPELINE_CHECK_IS_WRONG and not self.is_overridden

    def used_bytes(self, rank: RankLedger) -> int:
        """What a rank takes of its GPU in all: the budget's terms, a cache of given size, all outside it."""
        fixed = rank.weights_bytes + rank.activation_bytes + rank.non_torch_bytes
        outside = rank.graph_bytes + rank.outside_bytes
        return fixed + outside + self.num_gpu_blocks * rank.kv_block_bytes

    @property
    def fits_weights(self) -> bool:
        """True if every rank has room for at least one usable block; an override takes that for granted."""
        return self.is_overridden or self.num_usable_blocks > 0

    @property
    def loads_weights(self) -> bool:
        """True if the weights alone do not exceed a GPU."""
        return all(rank.weights_bytes <= rank.total_bytes for rank in self.ranks)

    @property
    def fits_memory(self) -> bool:
        """True if no rank takes more than its GPU has: what lies outside the budget can exceed it."""
        return all(self.used_bytes(rank) <= rank.total_bytes for rank in self.ranks)

    @property
    def fits_one_request(self) -> bool:
        """True if one request of `max_model_len` tokens fits: else vLLM refuses to start."""
        return self.longest_request_tokens >= self.max_model_len

    @property
    def fits(self) -> bool:
        """True if vLLM would start."""
        return self.outcome == "started"

    @property
    def outcome(self) -> Outcome:
        """What becomes of the start-up, in the order in which vLLM would find out."""
        if not self.loads_weights:
            return "oom"
        if not (self.fits_weights and self.fits_one_request):
            return "refused"
        return "started" if self.fits_memory else "oom"


def memory_ledger(scenario: Scenario) -> MemoryLedger:
    """Return the ledger of one replica."""
    engine, groups = scenario.resolved_engine, kv_groups(scenario)
    ranks = tuple(
        _rank(scenario, stage, groups.layers_per_stage[stage], groups.block_size)
        for stage in range(len(scenario.layers_per_stage))
    )
    num_gpu_blocks = engine.num_gpu_blocks_override or min(rank.num_gpu_blocks for rank in ranks)
    return MemoryLedger(
        ranks,
        groups,
        engine.max_model_len,
        num_gpu_blocks,
        engine.num_gpu_blocks_override is not None,
        engine.version,
    )


def _rank(scenario: Scenario, stage: int, num_cached_layers: int, block_size: int) -> RankLedger:
    engine = scenario.resolved_engine
    total = round(scenario.hardware.gpu.memory_bytes.value)
    requested = ceil(total * engine.gpu_memory_utilization)
    weights = weights_bytes(scenario, stage)
    activation = activation_peak_bytes(scenario, stage)
    non_torch, graphs = non_torch_bytes(scenario), graph_bytes(scenario, stage)
    deducts = engine.version >= DEDUCTS_GRAPHS_SINCE
    kv = requested - weights - activation - non_torch - (graphs if deducts else 0)
    if engine.kv_cache_memory_bytes is not None:
        kv = engine.kv_cache_memory_bytes
    return RankLedger(
        stage=stage,
        num_layers=scenario.layers_per_stage[stage],
        total_bytes=total,
        requested_bytes=requested,
        weights_bytes=weights,
        activation_bytes=activation,
        non_torch_bytes=non_torch,
        graph_bytes=graphs,
        deducts_graphs=deducts,
        outside_bytes=outside_bytes(scenario, stage),
        kv_bytes=kv,
        kv_block_bytes=round(token_bytes(scenario) * block_size * num_cached_layers),
    )
