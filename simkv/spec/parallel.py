"""How one model is laid out over GPUs: tensor × pipeline × context parallel, times replicas."""

from __future__ import annotations

from typing import Literal

from simkv.spec.base import IntTuple, PositiveInt, Spec


class ParallelSpec(Spec):
    """The layout, spelt as vLLM spells its flags.

    pipeline_layer_partition  layers per stage (``VLLM_PP_LAYER_PARTITION``); None = the version's rule
    decode_context_parallel_size  ranks of a tensor-parallel group that deal a request's tokens out
    enable_expert_parallel    each rank holds whole experts, dealt out over TP × DP; otherwise slices of all
    data_parallel_router      who serves a request: ``least_loaded`` (vLLM's own balancer), ``round_robin`` or
                              ``prefix_affinity``
    rules                     ``vllm`` refuses what that version refuses; ``generic`` what mathematics refuses
    """

    tensor_parallel_size: PositiveInt = 1
    pipeline_parallel_size: PositiveInt = 1
    data_parallel_size: PositiveInt = 1
    decode_context_parallel_size: PositiveInt = 1
    prefill_context_parallel_size: PositiveInt = 1
    pipeline_layer_partition: IntTuple | None = None
    enable_expert_parallel: bool = False
    data_parallel_router: Literal["least_loaded", "round_robin", "prefix_affinity"] = "least_loaded"
    rules: Literal["vllm", "generic"] = "vllm"

    @property
    def num_gpus_per_replica(self) -> int:
        """GPUs that hold one copy of the model; decode context parallel uses the tensor-parallel ranks."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.prefill_context_parallel_size

    @property
    def num_gpus(self) -> int:
        """GPUs of all replicas."""
        return self.num_gpus_per_replica * self.data_parallel_size


def split_layers(
    num_layers: int, num_stages: int, vllm_version: tuple[int, int] = (0, 32)
) -> tuple[int, ...]:
    """Return the layers of each pipeline stage.

    Each stage gets ``num_layers // num_stages``. Up to vLLM 0.32 (`get_pp_indices`) each layer left over goes
    to one stage, counting back from the last but one, so that the last stage (with the head) never gets one;
    later versions count back from the last.

    >>> split_layers(61, 4), split_layers(62, 4), split_layers(61, 2)
    ((15, 15, 16, 15), (15, 16, 16, 15), (31, 30))
    >>> split_layers(94, 4, vllm_version=(0, 33))
    (23, 23, 24, 24)
    """
    base, left_over = divmod(num_layers, num_stages)
    last = num_stages - 2 if vllm_version <= (0, 32) else num_stages - 1
    layers = [base] * num_stages
    for i in range(left_over):
        layers[last - i] += 1
    return tuple(layers)
