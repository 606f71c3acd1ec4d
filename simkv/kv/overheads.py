"""What a GPU holds besides weights, activations and the cache, within the budget and outside it.

Figures are those of public vLLM start-up logs, most of them on H100s; fit errors: docs/memory.md.
"""

from __future__ import annotations

from functools import lru_cache

from simkv.kv.weights import VOCABULARY_PADDING
from simkv.spec.engine import FIRST_V1
from simkv.spec.scenario import Scenario
from simkv.units import GIB, ceil_div

# Non-torch growth between vLLM's two snapshots: kernels and, with TP, buffers of NCCL, of the custom
# all-reduce and, later, of symmetric memory and FlashInfer. TP 1: 0.24-0.27 logged (0.18-0.19; Granite 3
# 0.46), 0.13-0.14 (0.11-0.17), 0.02-0.35 (V0). TP: 2.06-2.21 at 2 and 4 (0.19), 0.54 at 2 (0.11), 0.25 at 2
# and 2.1-2.5 at 8 (V0). A pipeline without TP: 0.07 a stage (0.19, one row). Those buffers are for NVSwitch
# nodes (vLLM's `symm_mem`); without one all that is not weights took 1.66 GiB a card at TP 2 (RTX PRO 6000,
# version not stated, R184), activations included, so that TP counts as before 0.18.
NON_TORCH_BYTES = round(0.25 * GIB)
NON_TORCH_TP_BYTES = round(2.1 * GIB)
LARGER_NON_TORCH_SINCE = (0, 18)
NON_TORCH_PP_BYTES = round(0.07 * GIB)
OLD_NON_TORCH_BYTES = round(0.13 * GIB)
OLD_NON_TORCH_BYTES_PER_RANK = round(0.28 * GIB)
V0_NON_TORCH_BYTES_PER_FURTHER_RANK = round(0.2 * GIB)

# CUDA-graph pool of the full set of 51 sizes, in proportion for others: a part a model, a part a layer and
# hidden size, more for experts, whose layers launch more kernels; a third of it shrinks with tp. 0.64-1.84
# GiB logged (0.19); mean error 0.1 GiB, Kimi-VL (MLA) 0.4 too small.
GRAPH_POOL_BYTES = round(0.62 * GIB)
GRAPH_POOL_BYTES_PER_LAYER_AND_HIDDEN = 0.0082 * GIB / 4096
GRAPH_POOL_BYTES_PER_SPARSE_LAYER = round(0.015 * GIB)
GRAPH_POOL_SHARDED = 1 / 3
FULL_NUM_GRAPH_SIZES = 51
# V0 captured the whole model for 35 sizes: 2,464 MiB on 60 layers at TP 4 (0.5), "1 to 3 GiB" by its own log.
V0_GRAPH_BYTES_PER_LAYER = round(0.04 * GIB)
V0_GRAPH_SIZES: tuple[int, ...] = (1, 2, 4, *range(8, 257, 8))
DEDUCTS_GRAPHS_SINCE = (0, 21)

# Taken before vLLM's first snapshot, and so outside the budget: the CUDA context and, with TP, NCCL. Then
# the sampler's warm-up asks once more for logits and their fp32 copy, with the cache allocated already (the
# 786 MiB of a logged out-of-memory). Chosen so that the campaign at utilization 0.95 (0.19, margin 3.96 GiB)
# comes out as logged: gpt-oss-20b dies at TP 1 and 2 by 0.07 GiB, the others live, the tightest by 0.07.
# V0 measured from an empty GPU on, context and all.
OUTSIDE_BYTES = round(1.06 * GIB)
OUTSIDE_TP_BYTES = round(0.30 * GIB)
FP32_BYTES = 4


def non_torch_bytes(scenario: Scenario) -> int:
    """Bytes outside PyTorch's allocator that vLLM charges to the budget."""
    tp, version = scenario.parallel.tensor_parallel_size, scenario.resolved_engine.version
    if tp == 1 and scenario.parallel.pipeline_parallel_size > 1:
        return NON_TORCH_PP_BYTES
    if version >= LARGER_NON_TORCH_SINCE and tp == 1:
        return NON_TORCH_BYTES
    if version >= LARGER_NON_TORCH_SINCE and scenario.hardware.node.fabric == "nvswitch":
        return NON_TORCH_TP_BYTES
    if version < FIRST_V1:
        return OLD_NON_TORCH_BYTES + (tp - 1) * V0_NON_TORCH_BYTES_PER_FURTHER_RANK
    return OLD_NON_TORCH_BYTES if tp == 1 else tp * OLD_NON_TORCH_BYTES_PER_RANK


def graph_bytes(scenario: Scenario, stage: int) -> int:
    """Bytes of the CUDA-graph pool of a rank of this stage."""
    engine, model = scenario.resolved_engine, scenario.model
    if engine.enforce_eager:
        return 0
    num_layers = scenario.layers_per_stage[stage]
    if engine.version < FIRST_V1:
        num_sizes = sum(size <= engine.max_num_seqs for size in V0_GRAPH_SIZES)
        return round(V0_GRAPH_BYTES_PER_LAYER * num_layers * num_sizes / len(V0_GRAPH_SIZES))
    per_layer = GRAPH_POOL_BYTES_PER_LAYER_AND_HIDDEN * model.hidden_size
    per_layer += GRAPH_POOL_BYTES_PER_SPARSE_LAYER * model.is_moe
    kept = 1 - GRAPH_POOL_SHARDED * (1 - 1 / scenario.parallel.tensor_parallel_size)
    share = num_graph_sizes(_largest_graph(scenario)) / FULL_NUM_GRAPH_SIZES
    return round((GRAPH_POOL_BYTES + per_layer * num_layers) * kept * share)


def _largest_graph(scenario: Scenario) -> int:
    """Tokens of the largest captured batch; vLLM doubles the limit for gpt-oss (`GptOssForCausalLMConfig`)."""
    engine, quantization = scenario.resolved_engine, scenario.model.quantization
    limit = 1024 if quantization and quantization.method == "mxfp4" else 512
    return min(2 * engine.max_num_seqs, limit, engine.max_num_batched_tokens)


@lru_cache(maxsize=64)
def num_graph_sizes(largest: int) -> int:
    """Sizes that vLLM captures up to `largest`: 1, 2, 4, every 8 below 256, every 16 from there.

    >>> num_graph_sizes(1024), num_graph_sizes(512), num_graph_sizes(128)
    (83, 51, 19)
    """
    sizes = (1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16))
    return sum(size <= largest for size in sizes)


def outside_bytes(scenario: Scenario, stage: int) -> int:
    """Bytes that no budget holds, CUDA graphs apart."""
    engine, model = scenario.resolved_engine, scenario.model
    if engine.version < FIRST_V1:
        return 0
    outside = OUTSIDE_BYTES + OUTSIDE_TP_BYTES * (scenario.parallel.tensor_parallel_size > 1)
    if stage < len(scenario.layers_per_stage) - 1:
        return outside
    vocabulary = ceil_div(model.vocab_size, VOCABULARY_PADDING) * VOCABULARY_PADDING
    rows = min(engine.max_num_seqs, engine.max_num_batched_tokens)
    return outside + round((FP32_BYTES + model.dtype_bytes) * rows * vocabulary)
