"""Weights of a rank: every tensor that vLLM allocates for it, and what PyTorch's allocator takes for them.

Shapes are those of vLLM's fused layers: one tensor for q, k and v, one for gate and up, one each for the two
matrices of all experts. Against public start-up logs: docs/memory.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from simkv.spec.model import DTYPE_BYTES, ModelSpec
from simkv.spec.scenario import Scenario
from simkv.units import MIB, ceil_div

VOCABULARY_PADDING = 64  # vLLM's VocabParallelEmbedding pads the vocabulary, then divides it by tp
# Marlin's MoE kernels want an intermediate size in steps of 128 and a hidden size in steps of 256 (vLLM's
# `mxfp4`); the Triton kernels that Hopper used before laid the experts out in steps of 256.
MARLIN_MXFP4_SINCE = (0, 12)  # 0.11 logged the one, 0.13 the other
# V0 multiplied MLA's up-projections into their neighbours and kept the products beside them (0.7).
MLA_MATRICES_MULTIPLIED_UNTIL = (0, 7)

# CUDACachingAllocator of PyTorch: a request of 10 MiB or more gets its own segment in steps of 2 MiB, and a
# rest of up to 1 MiB stays with it, so that it counts as allocated.
_OWN_SEGMENT_BYTES = 10 * MIB
_SEGMENT_STEP_BYTES = 2 * MIB
_UNSPLIT_REST_BYTES = MIB
_ALIGNMENT_BYTES = 512


class Tensor(NamedTuple):
    """`copies` tensors of `num_elements`, each element of `element_bytes`."""

    num_elements: float
    element_bytes: float
    copies: int = 1


class ExpertRanks(NamedTuple):
    """How the routed experts are dealt out: over all ranks of a stage in all replicas.

    vLLM's documentation of data parallel deployment: expert layers form a tensor-parallel group of size DP × TP,
    or, with ``--enable-expert-parallel``, each rank holds whole experts.
    """

    num_ranks: int
    holds_whole: bool

    def local(self, num_experts: int) -> int:
        """Experts of the rank with the most."""
        return ceil_div(num_experts, self.num_ranks) if self.holds_whole else num_experts

    @property
    def num_slices(self) -> int:
        """Ranks that share one expert."""
        return 1 if self.holds_whole else self.num_ranks


def weights_bytes(scenario: Scenario, stage: int) -> int:
    """Bytes that a rank of this pipeline stage has allocated once its weights are loaded.

    Its layers' matrices ÷ tp (KV heads are copied where tp exceeds them; MLA's projections into the latent,
    norms and routers are whole); the embedding on the first stage and the head on the last, both ÷ tp and
    never quantised; tied, the last stage of a pipeline holds the embedding too. A vision tower is ÷ tp, as
    logged, and the rotary tables are whole. Routed experts are dealt out over the replicas too: `ExpertRanks`.
    """
    parallel = scenario.parallel
    partition = scenario.layers_per_stage
    first_layer = sum(partition[:stage])
    return _weights_bytes(
        scenario.model,
        parallel.tensor_parallel_size,
        (first_layer, first_layer + partition[stage]),
        (stage == 0, stage == len(partition) - 1),
        scenario.resolved_engine.version,
        ExpertRanks(
            parallel.tensor_parallel_size * parallel.data_parallel_size, parallel.enable_expert_parallel
        ),
    )


def allocated_bytes(num_bytes: float) -> int:
    """What PyTorch counts as allocated for one tensor.

    >>> allocated_bytes(259 * MIB) == 260 * MIB      # 1 MiB of the segment is left and stays with it
    True
    >>> allocated_bytes(64.75 * MIB) == 64.75 * MIB  # 1.25 MiB are left and serve others
    True
    """
    aligned = ceil_div(round(num_bytes), _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
    if aligned < _OWN_SEGMENT_BYTES:
        return aligned
    segment = ceil_div(aligned, _SEGMENT_STEP_BYTES) * _SEGMENT_STEP_BYTES
    return segment if segment - aligned <= _UNSPLIT_REST_BYTES else aligned


@lru_cache(maxsize=1024)
def _weights_bytes(
    model: ModelSpec,
    tp: int,
    layers: tuple[int, int],
    ends: tuple[bool, bool],
    version: tuple[int, int],
    experts: ExpertRanks,
) -> int:
    kinds = Counter((_is_sparse(model, i), _is_linear(model, i)) for i in range(*layers))
    tensors = list(_tables(model, tp, *ends))
    for (is_sparse, is_linear), copies in kinds.items():
        parts = [*_attention(model, tp, is_linear, version), *_mlp(model, tp, is_sparse, version, experts)]
        parts.append(Tensor(model.num_norm_parameters_per_layer, model.dtype_bytes))
        tensors += [part._replace(copies=part.copies * copies) for part in parts]
    return sum(allocated_bytes(t.num_elements * t.element_bytes) * t.copies for t in tensors)


def _is_sparse(model: ModelSpec, layer: int) -> bool:
    return model.is_moe and layer >= model.first_k_dense_replace


def _is_linear(model: ModelSpec, layer: int) -> bool:
    return bool(model.layer_types) and model.layer_types[layer] == "linear_attention"


def _tables(model: ModelSpec, tp: int, is_first: bool, is_last: bool) -> Iterator[Tensor]:
    """Embedding, head, final norm, rotary tables and what lies outside the language model."""
    padded = ceil_div(model.vocab_size, VOCABULARY_PADDING) * VOCABULARY_PADDING
    is_shared = is_first and is_last and model.tie_word_embeddings
    yield Tensor(padded / tp * model.hidden_size, model.dtype_bytes, 1 if is_shared else is_first + is_last)
    if is_last:
        yield Tensor(model.hidden_size, model.dtype_bytes)
    yield Tensor(model.rotary_table_elements, model.dtype_bytes)
    yield Tensor(model.num_extra_parameters / tp, model.dtype_bytes)


def _linear(model: ModelSpec, num_elements: float) -> Iterator[Tensor]:
    """A linear layer's matrix, packed as the checkpoint is, its scales apart."""
    quantization = model.quantization
    if quantization is None or quantization.scope == "experts":
        yield Tensor(num_elements, model.dtype_bytes)
    else:
        yield from _packed(model, num_elements)


def _packed(model: ModelSpec, num_elements: float) -> Iterator[Tensor]:
    quantization = model.quantization
    if quantization is None:
        yield Tensor(num_elements, model.dtype_bytes)
        return
    element_bytes = DTYPE_BYTES[quantization.weight_dtype]
    yield Tensor(num_elements, element_bytes)
    if quantization.group_size is not None:  # one scale a channel or tensor is next to nothing
        yield Tensor(num_elements, quantization.bytes_per_weight - element_bytes)


def _attention(model: ModelSpec, tp: int, is_linear: bool, version: tuple[int, int]) -> Iterator[Tensor]:
    h, heads = model.hidden_size, model.num_attention_heads / tp
    if is_linear:
        assert model.linear_num_value_heads and model.linear_value_head_dim
        out = h * model.linear_num_value_heads * model.linear_value_head_dim / tp
        yield from _linear(model, out)
        yield from _linear(model, model.num_linear_attention_parameters / tp - out)
    elif model.is_mla:
        yield from _latent_attention(model, tp, version)
    else:
        kv_heads = max(1.0, model.num_key_value_heads / tp)
        queries = heads * model.head_dim * (2 if model.has_attention_output_gate else 1)
        yield from _linear(model, h * (queries + 2 * kv_heads * model.head_dim))
        yield from _linear(model, h * heads * model.head_dim)
        biases = (queries + 2 * kv_heads * model.head_dim) * model.attention_bias
        yield Tensor(biases + h * model.attention_output_bias, model.dtype_bytes)


def _latent_attention(model: ModelSpec, tp: int, version: tuple[int, int]) -> Iterator[Tensor]:
    """MLA: projections into the latents whole, those out of them ÷ tp, and the latter once more in 16 bits."""
    assert model.kv_lora_rank and model.qk_nope_head_dim and model.qk_rope_head_dim and model.v_head_dim
    h, heads = model.hidden_size, model.num_attention_heads / tp
    query_dim = model.qk_nope_head_dim + model.qk_rope_head_dim
    yield from _linear(model, h * (model.kv_lora_rank + model.qk_rope_head_dim + (model.q_lora_rank or 0)))
    yield from _linear(model, (model.q_lora_rank or h) * heads * query_dim)
    up = model.kv_lora_rank * heads * (model.qk_nope_head_dim + model.v_head_dim)
    yield from _linear(model, up)
    yield from _linear(model, heads * model.v_head_dim * h)
    yield Tensor(up, model.dtype_bytes)  # transposed for decoding
    if version <= MLA_MATRICES_MULTIPLIED_UNTIL:
        yield from _linear(model, (model.q_lora_rank or h) * heads * model.kv_lora_rank)
        yield from _linear(model, heads * model.kv_lora_rank * h)


def _mlp(
    model: ModelSpec, tp: int, is_sparse: bool, version: tuple[int, int], experts: ExpertRanks
) -> Iterator[Tensor]:
    h, num_inner = model.hidden_size, 2 if model.has_gated_mlp else 1
    if not is_sparse:
        yield from _dense_mlp(model, model.intermediate_size / tp)
        yield Tensor((model.intermediate_size / tp * num_inner + h) * model.mlp_bias, model.dtype_bytes)
        return
    num_local = experts.local(model.num_experts)
    width, height = _expert_sizes(model, experts.num_slices, version)
    yield from _packed(model, num_local * num_inner * width * height)
    yield from _packed(model, num_local * width * height)
    biases = (width * num_inner + height) * num_local * model.mlp_bias
    yield Tensor(biases + (h + model.mlp_bias) * model.num_experts, model.dtype_bytes)  # and the router
    if model.shared_expert_intermediate_size is not None:
        yield from _dense_mlp(model, model.shared_expert_intermediate_size / tp)
    elif model.num_shared_experts:
        shared = model.num_shared_experts * (model.moe_intermediate_size or model.intermediate_size)
        yield from _dense_mlp(model, shared / tp)


def _dense_mlp(model: ModelSpec, width: float) -> Iterator[Tensor]:
    yield from _linear(model, model.hidden_size * width * (2 if model.has_gated_mlp else 1))
    yield from _linear(model, model.hidden_size * width)


def _expert_sizes(model: ModelSpec, num_slices: int, version: tuple[int, int]) -> tuple[float, int]:
    """Width and height of an expert's matrices on a rank, as its kernels pad them."""
    width, height = (model.moe_intermediate_size or model.intermediate_size) / num_slices, model.hidden_size
    if model.quantization is None or model.quantization.method != "mxfp4":
        return width, height
    if version < MARLIN_MXFP4_SINCE:
        return ceil_div(round(width), 256) * 256, height
    return ceil_div(round(width), 128) * 128, ceil_div(height, 256) * 256
