"""The memory ledger: what a GPU holds besides the KV cache, and how many blocks are left.

requested = total × gpu_memory_utilization
KV bytes  = requested − weights − activation peak − non-torch − CUDA graphs (where the version deducts them)
num_gpu_blocks = the minimum over all ranks. Terms, sources and limits: ``docs/memory.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from simkv.spec.model import ModelSpec
from simkv.spec.scenario import Scenario
from simkv.units import GIB, ceil_div

# Sources of the constants: public start-up logs of vLLM on one H100 node type unless said otherwise.
# The smaller term of the profile run: torch's workspaces (fits dense 0.17-0.19 logs to 0.02 GiB).
ACTIVATION_WORKSPACE_BYTES = round(0.14 * GIB)
# Sampler per row and vocabulary entry: logits in the model's dtype and in fp32, and sampler buffers.
SAMPLER_BYTES_PER_LOGIT = 13
# What the driver and libraries take inside the budget, by tensor parallelism.
NON_TORCH_TP1_BYTES = round(0.25 * GIB)  # 0.18 on; 0.24-0.27 logged
NON_TORCH_TP1_OLD_BYTES = round(0.13 * GIB)  # to 0.17
NON_TORCH_PP_BYTES = round(0.07 * GIB)  # a stage without tensor parallelism
NON_TORCH_TP_BYTES = round(2.1 * GIB)  # TP 2-4 on 0.19: NCCL, custom and symmetric-memory buffers
# CUDA-graph pool of the full set of 51 sizes: 0.8-1.8 GiB logged on 28- to 80-layer models (0.19).
GRAPH_POOL_BYTES = round(0.35 * GIB)
GRAPH_POOL_BYTES_PER_LAYER = round(0.018 * GIB)
DEDUCTS_GRAPHS_SINCE = (0, 21)


@dataclass(frozen=True, slots=True)
class RankLedger:
    """One rank of a pipeline stage, in bytes; all ranks of a stage are alike.

    kv_block_bytes is what one block takes in all layers of the stage.
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
    block_size: int
    max_model_len: int
    num_gpu_blocks: int
    is_overridden: bool

    @property
    def binding_stage(self) -> int:
        """The stage whose ranks hold the fewest blocks."""
        return min(self.ranks, key=lambda rank: rank.num_gpu_blocks).stage

    @property
    def kv_tokens(self) -> int:
        """Tokens of the cache as vLLM prints them ("GPU KV cache size")."""
        return int(self.max_concurrency * self.max_model_len)

    @property
    def max_concurrency(self) -> float:
        """Requests of `max_model_len` tokens that fit at once ("Maximum concurrency")."""
        return self.num_gpu_blocks / ceil_div(self.max_model_len, self.block_size)

    @property
    def longest_request_tokens(self) -> int:
        """The largest `max_model_len` that vLLM would start with: all blocks but the null block."""
        return max(0, self.num_gpu_blocks - 1) * self.block_size

    def used_bytes(self, rank: RankLedger) -> int:
        """What a rank takes of its GPU in all, graphs on top of the budget and a cache of given size included."""
        fixed = rank.weights_bytes + rank.activation_bytes + rank.non_torch_bytes + rank.graph_bytes
        return fixed + self.num_gpu_blocks * rank.kv_block_bytes

    @property
    def fits_weights(self) -> bool:
        """True if every rank has room for at least one usable block; an override takes that for granted."""
        return self.is_overridden or self.num_gpu_blocks > 1

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
        return self.fits_weights and self.fits_one_request and self.fits_memory


def memory_ledger(scenario: Scenario) -> MemoryLedger:
    """Return the ledger of one replica."""
    engine, partition = scenario.resolved_engine, scenario.layers_per_stage
    ranks = tuple(_rank(scenario, stage) for stage in range(len(partition)))
    num_gpu_blocks = engine.num_gpu_blocks_override or min(rank.num_gpu_blocks for rank in ranks)
    return MemoryLedger(
        ranks,
        engine.block_size,
        engine.max_model_len,
        num_gpu_blocks,
        engine.num_gpu_blocks_override is not None,
    )


def _rank(scenario: Scenario, stage: int) -> RankLedger:
    engine, model, tp = scenario.resolved_engine, scenario.model, scenario.parallel.tensor_parallel_size
    num_layers = scenario.layers_per_stage[stage]
    total = round(scenario.hardware.gpu.memory_bytes.value)
    requested = ceil(total * engine.gpu_memory_utilization)
    weights = weights_bytes(scenario, stage)
    activation = activation_peak_bytes(scenario, stage)
    non_torch = _non_torch_bytes(scenario)
    graphs = 0 if engine.enforce_eager else GRAPH_POOL_BYTES + GRAPH_POOL_BYTES_PER_LAYER * num_layers
    deducts = engine.version >= DEDUCTS_GRAPHS_SINCE
    kv = requested - weights - activation - non_torch - (graphs if deducts else 0)
    if engine.kv_cache_memory_bytes is not None:
        kv = engine.kv_cache_memory_bytes
    elements = model.kv_elements_per_token_per_layer(tp) * num_layers
    block_bytes = round(elements * engine.block_size * engine.kv_cache_dtype_bytes)
    return RankLedger(
        stage, num_layers, total, requested, weights, activation, non_torch, graphs, deducts, kv, block_bytes
    )


def weights_bytes(scenario: Scenario, stage: int) -> int:
    """Bytes of the weights that a rank of this stage holds.

    Its layers' matrices ÷ tp (KV heads are copied where tp exceeds them), norms whole; the embedding on the
    first stage and the head on the last, both ÷ tp and never quantised; tied, the last stage of a pipeline
    holds the embedding too. What lies outside the language model is whole on every rank.
    """
    model, tp = scenario.model, scenario.parallel.tensor_parallel_size
    partition = scenario.layers_per_stage
    first_layer = sum(partition[:stage])
    packed = model.quantization.bytes_per_weight if model.quantization else model.dtype_bytes
    matrices = norms = 0.0
    for layer in range(first_layer, first_layer + partition[stage]):
        matrices += (
            _attention_parameters_per_rank(model, tp) + model.num_mlp_parameters(layer) / tp
        ) * packed
        norms += model.num_norm_parameters_per_layer * model.dtype_bytes
    tables = model.num_embedding_parameters / tp * model.dtype_bytes
    is_first, is_last = stage == 0, stage == len(partition) - 1
    num_tables = is_first + is_last
    if model.tie_word_embeddings and len(partition) == 1:
        num_tables = 1
    final_norm = model.hidden_size * model.dtype_bytes if is_last else 0.0
    extra = model.num_extra_parameters * model.dtype_bytes
    return round(matrices + norms + tables * num_tables + final_norm + extra)


def _attention_parameters_per_rank(model: ModelSpec, tp: int) -> float:
    if model.is_mla or tp <= model.num_key_value_heads:
        return model.num_attention_parameters / tp
    kv_parameters = 2 * model.num_key_value_heads * model.head_dim * model.hidden_size
    copied = 2 * model.head_dim * model.hidden_size
    return (model.num_attention_parameters - kv_parameters) / tp + copied


def activation_peak_bytes(scenario: Scenario, stage: int) -> int:
    """Bytes that the profile run takes at its peak: the forward pass of a full batch, or the sampler.

    T tokens, S rows, vocabulary V: max(T·(6·intermediate/tp + 4·hidden) + 0.14 GiB,
    2·T·hidden + (13 + dtype bytes)·S·V); stages before the last have the first term only.
    """
    engine, model = scenario.resolved_engine, scenario.model
    tokens, tp = engine.max_num_batched_tokens, scenario.parallel.tensor_parallel_size
    intermediate = model.intermediate_size
    if model.is_moe:
        intermediate = max(
            intermediate, (model.moe_intermediate_size or 0) * max(1, model.num_experts_per_tok)
        )
    forward = tokens * (6 * intermediate / tp + 4 * model.hidden_size) + ACTIVATION_WORKSPACE_BYTES
    if stage < len(scenario.layers_per_stage) - 1:
        return round(forward)
    logit_bytes = (SAMPLER_BYTES_PER_LOGIT + model.dtype_bytes) * engine.max_num_seqs * model.vocab_size
    return round(max(forward, 2 * tokens * model.hidden_size + logit_bytes))


def _non_torch_bytes(scenario: Scenario) -> int:
    if scenario.parallel.tensor_parallel_size > 1:
        return NON_TORCH_TP_BYTES
    if scenario.parallel.pipeline_parallel_size > 1:
        return NON_TORCH_PP_BYTES
    is_old = scenario.resolved_engine.version < (0, 18)
    return NON_TORCH_TP1_OLD_BYTES if is_old else NON_TORCH_TP1_BYTES
