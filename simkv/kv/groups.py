"""Layers that cache alike, as vLLM groups them, and the blocks that a request of a given length needs.

Every layer of a group shares one block table; all groups draw from one pool, whose block holds `block_size`
tokens of one layer of each group position. A model with one kind of layer has one group.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from simkv.spec.model import ModelSpec
from simkv.spec.scenario import Scenario
from simkv.units import ceil_div

HYBRID_SINCE = (0, 10)  # before, every layer was cached as if it attended to everything
# vLLM fits the kinds into groups of the smallest kind's size, or of the largest's if that is hardly larger.
_ALMOST_EQUAL = 1.25
_STATE_DTYPE_BYTES = 4.0  # linear attention's recurrent state, in fp32 (`mamba_ssm_dtype` of the configs)
_BLOCK_STEP = 16  # vLLM raises the block in steps of 16 until a block of attention holds a state


@dataclass(frozen=True, slots=True)
class KvGroups:
    """The groups of a replica.

    kinds             one entry a group: its layers' kind
    layers_per_stage  the most layers that a group has on each stage
    window            sliding window, or chunk
    """

    kinds: tuple[str, ...]
    layers_per_stage: tuple[int, ...]
    block_size: int
    context_parallel_size: int
    window: int
    max_num_batched_tokens: int

    def blocks_of(self, num_tokens: int) -> int:
        """Blocks that one request of `num_tokens` needs over all groups."""
        return sum(self._blocks_in(kind, num_tokens) for kind in self.kinds)

    def _blocks_in(self, kind: str, num_tokens: int) -> int:
        if kind == "linear_attention":
            return 1
        if kind in ("sliding_attention", "chunked_attention"):
            # tokens out of the window stay until the chunk that left them behind is computed; a window may
            # begin anywhere in its first block, a chunk does not
            held = min(self.window - 1 + self.max_num_batched_tokens, num_tokens)
            return ceil_div(held, self.block_size) + (kind == "sliding_attention")
        return ceil_div(ceil_div(num_tokens, self.context_parallel_size), self.block_size)

    def longest_request(self, num_blocks: int) -> int:
        """The most tokens of one request that fit into `num_blocks`."""
        low, high = 0, num_blocks * self.block_size * self.context_parallel_size
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.blocks_of(middle) <= num_blocks else (low, middle - 1)
        return low


def kv_groups(scenario: Scenario) -> KvGroups:
    """Return the groups of a replica's layers."""
    engine, model = scenario.resolved_engine, scenario.model
    kinds = model.layer_types or ("full_attention",) * model.num_hidden_layers
    if engine.version < HYBRID_SINCE:
        kinds = tuple("full_attention" if kind != "linear_attention" else kind for kind in kinds)
    names, layers_per_stage = _grouped(kinds, scenario.layers_per_stage)
    dcp = scenario.parallel.decode_context_parallel_size
    return KvGroups(
        names,
        layers_per_stage,
        _block_size(scenario),
        dcp,
        model.sliding_window or 0,
        engine.max_num_batched_tokens,
    )


@lru_cache(maxsize=256)
def _grouped(kinds: tuple[str, ...], partition: tuple[int, ...]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Deal the layers of each kind out over groups of about the same size, and count them on each stage.

    >>> _grouped(("sliding_attention",) * 5 + ("full_attention",), (6,))
    (('sliding_attention', 'sliding_attention', ...), (1,))
    """
    by_kind: dict[str, list[int]] = {}
    for layer, kind in enumerate(kinds):
        by_kind.setdefault(kind, []).append(layer)
    least, most = (choose(map(len, by_kind.values())) for choose in (min, max))
    size = most if most < _ALMOST_EQUAL * least else least
    groups = []
    for kind, layers in by_kind.items():
        count = ceil_div(len(layers), size)
        groups += [(kind, layers[i::count]) for i in range(count)]
    ends = [sum(partition[: stage + 1]) for stage in range(len(partition))]
    on_stage = tuple(
        max(sum(end - num_layers <= layer < end for layer in layers) for _, layers in groups)
        for end, num_layers in zip(ends, partition, strict=True)
    )
    return tuple(kind for kind, _ in groups), on_stage


def token_bytes(scenario: Scenario) -> float:
    """Bytes that one token takes in one attention layer of a rank that holds it.

    The ranks among which tokens are dealt out hold the same KV heads: those of tp / dcp ranks.
    """
    parallel = scenario.parallel
    num_shares = max(1, parallel.tensor_parallel_size // parallel.decode_context_parallel_size)
    elements = scenario.model.kv_elements_per_token_per_layer(num_shares)
    return elements * scenario.resolved_engine.kv_cache_dtype_bytes


def linear_state_bytes(model: ModelSpec, tensor_parallel_size: int, num_speculative_tokens: int = 0) -> float:
    """Bytes of one linear-attention layer's state on a rank: the convolution's tail and a matrix a value head.

    Qwen3.6-35B-A3B with 3 speculative tokens: 2,195,456 bytes, 1,072 tokens of 2,048 bytes, as logged.
    """
    assert model.linear_num_value_heads and model.linear_key_head_dim and model.linear_value_head_dim
    assert model.linear_conv_kernel_dim
    tail = (model.linear_conv_kernel_dim - 1 + num_speculative_tokens) * model.linear_conv_dim
    matrices = model.linear_num_value_heads * model.linear_key_head_dim * model.linear_value_head_dim
    return (tail * model.dtype_bytes + matrices * _STATE_DTYPE_BYTES) / tensor_parallel_size


def _block_size(scenario: Scenario) -> int:
    """Tokens in a block: what the engine says, raised until a block of attention holds a linear layer's state."""
    model, block_size = scenario.model, scenario.resolved_engine.block_size
    if "linear_attention" not in model.layer_types:
        return block_size
    state = linear_state_bytes(model, scenario.parallel.tensor_parallel_size)
    needed = ceil_div(round(state), round(_BLOCK_STEP * token_bytes(scenario))) * _BLOCK_STEP
    return max(block_size, needed)
