# ruff: noqa: E501 - a case a line, its message whole, so that it can be searched for
"""Rules between the parts of a scenario: what vLLM would refuse, and numbers beyond all that exists."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.load.hardware import find_hardware, shipped_hardware
from simkv.load.model import find_model, shipped_models
from simkv.spec.checks import layout, scenario_faults, scenario_warnings
from simkv.spec.hardware import Quantity
from simkv.spec.scenario import Scenario


def scenario(model: str = "llama-3.1-8b", hardware: str = "h100_sxm", **parts: Any) -> Scenario:
    return Scenario.model_validate({"model": find_model(model), "hardware": find_hardware(hardware), **parts})


def faults(made: Scenario) -> list[str]:
    return [f"{'.'.join(path)}: {text}" for path, text in scenario_faults(made)]


# Laws


@pytest.mark.parametrize("hardware", shipped_hardware())
def test_every_shipped_profile_is_within_the_bounds(hardware: str) -> None:
    assert faults(scenario(hardware=hardware)) == []


@pytest.mark.parametrize("model", sorted(shipped_models()))
def test_every_shipped_model_is_allowed_on_one_gpu(model: str) -> None:
    assert faults(scenario(model)) == []


@given(st.sampled_from(sorted(shipped_models())), st.integers(1, 64))
def test_tensor_parallelism_is_allowed_where_heads_can_be_shared_out(model: str, tp: int) -> None:
    made = scenario(model, "h100_sxm_8x8", parallel={"tensor_parallel_size": tp})
    heads, kv_heads = made.model.num_attention_heads, made.model.num_key_value_heads
    is_fair = heads % tp == 0 and (made.model.is_mla or kv_heads % tp == 0 or tp % kv_heads == 0)
    assert (faults(made) == []) == is_fair


@given(st.integers(1, 80), st.data())
def test_a_partition_is_allowed_if_it_has_a_number_a_stage_and_all_layers(
    stages: int, data: st.DataObject
) -> None:
    partition = data.draw(st.lists(st.integers(1, 70), min_size=stages, max_size=stages))
    partition[-1] = max(1, 80 - sum(partition[:-1])) if data.draw(st.booleans()) else partition[-1]
    made = scenario(
        "llama-3.1-70b",
        "h100_sxm_10x8",
        parallel={"pipeline_parallel_size": stages, "pipeline_layer_partition": partition},
    )
    assert (faults(made) == []) == (sum(partition) == 80)


@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 8), st.integers(1, 3))
def test_a_layout_is_allowed_if_the_box_has_its_gpus(
    tp_log: int, pp: int, per_node: int, num_nodes: int
) -> None:
    tp = 2 ** (tp_log % 4)
    made = scenario(
        hardware=f"h100_sxm_{num_nodes}x{per_node}",
        parallel={"tensor_parallel_size": tp, "pipeline_parallel_size": pp},
    )
    assert (faults(made) == []) == (tp * pp <= per_node * num_nodes)
    idle = per_node * num_nodes - tp * pp
    assert bool(scenario_warnings(made)) == (idle > 0)


# Every rule, word by word


@pytest.mark.parametrize(
    ("model", "hardware", "parts", "fault"),
    [
        ("llama-3.1-8b", "h100_sxm", {"parallel": {"tensor_parallel_size": 3}}, "parallel.tensor_parallel_size: 3 does not divide 32 attention heads; use 1, 2, 4, 8, 16 or 32"),
        ("llama-3.1-8b", "h100_sxm", {"parallel": {"tensor_parallel_size": 16}}, "parallel: the layout TP16 needs 16 GPUs, a node of h100_sxm holds 8; use hardware h100_sxm_2x8"),
        ("llama-3.1-8b", "h100_sxm", {"parallel": {"tensor_parallel_size": 8, "data_parallel_size": 2}}, "parallel: the layout TP8×DP2 needs 16 GPUs, a node of h100_sxm holds 8; use hardware h100_sxm_2x8"),
        ("llama-3.1-8b", "h100_sxm_x1", {"parallel": {"tensor_parallel_size": 2}}, "parallel: the layout TP2 needs 2 GPUs, h100_sxm_x1 has 1; use smaller sizes or a larger box"),
        ("llama-3.1-8b", "h100_sxm_8x8", {"parallel": {"pipeline_parallel_size": 33}}, "parallel.pipeline_parallel_size: 33 stages for 32 layers; use at most 32"),
        ("llama-3.1-8b", "h100_sxm", {"parallel": {"pipeline_parallel_size": 2, "pipeline_layer_partition": [32]}}, "parallel.pipeline_layer_partition: wanted 2 numbers, one a stage, got 1"),
        ("llama-3.1-8b", "h100_sxm", {"parallel": {"pipeline_parallel_size": 2, "pipeline_layer_partition": [16, 15]}}, "parallel.pipeline_layer_partition: wanted 32 layers in sum, got 31"),
        ("llama-3.1-8b", "h100_sxm", {"parallel": {"prefill_context_parallel_size": 4}}, "parallel.prefill_context_parallel_size: prefill context parallelism is not modelled yet, neither its memory nor its time; wanted 1, got 4"),
        ("llama-3.1-8b", "h100_sxm", {"engine": {"max_model_len": 131073}}, "engine.max_model_len: 131073 is beyond the 131072 positions of meta-llama/Llama-3.1-8B"),
        ("llama-3.1-8b", "h100_sxm", {"engine": {"enable_chunked_prefill": False, "max_num_batched_tokens": 500, "max_num_seqs": 4}}, "engine.max_num_batched_tokens: 500 is below max_model_len 131072, which needs enable_chunked_prefill: true"),
        ("llama-3.1-8b", "h100_sxm", {"engine": {"max_num_batched_tokens": 10, "max_num_seqs": 11}}, "engine.max_num_batched_tokens: 10 is below max_num_seqs 11; raise it or lower max_num_seqs"),
    ],
)  # fmt: skip
def test_refused(model: str, hardware: str, parts: dict[str, Any], fault: str) -> None:
    assert faults(scenario(model, hardware, **parts)) == [fault]


def test_independent_faults_are_all_named() -> None:
    made = scenario(
        parallel={"tensor_parallel_size": 64},
        engine={"max_model_len": 200_000, "max_num_batched_tokens": 4, "max_num_seqs": 5},
    )
    assert [fault.partition(":")[0] for fault in faults(made)] == [
        "parallel.tensor_parallel_size",
        "parallel",
        "engine.max_model_len",
        "engine.max_num_batched_tokens",
    ]


def test_a_box_that_cannot_be_built() -> None:
    hardware = find_hardware("h100_sxm")
    made = scenario().replace(hardware=hardware.replace(num_gpus_per_node=16))
    assert faults(made) == [
        "hardware.num_gpus_per_node: wanted at most 8 GPUs in such a node, got 16; use more nodes"
    ]
    made = scenario().replace(hardware=hardware.replace(num_nodes=2))
    assert faults(made) == [
        "hardware.num_nodes: wanted num_gpus_per_node beside 2 nodes, at most 8, got nothing"
    ]


@pytest.mark.parametrize(
    ("part", "field", "value", "fault"),
    [
        ("model", "num_hidden_layers", 10_001, "wanted a number at most 10,000, got 10001"),
        ("model", "hidden_size", 10**30, f"wanted a number at most 1,000,000,000,000, got {10**30}"),
        ("model", "max_position_embeddings", 10**13, f"wanted a number at most 1,000,000,000,000, got {10**13}"),
        ("hardware", "num_nodes", 10_001, "wanted a number at most 10,000, got 10001"),
        ("parallel", "tensor_parallel_size", 10**30, f"wanted a number at most 1,000,000,000,000, got {10**30}"),
        ("parallel", "data_parallel_size", 1_025, "wanted a number at most 1,024, got 1025"),
        ("engine", "max_num_batched_tokens", 10**30, f"wanted a number at most 1,000,000,000,000, got {10**30}"),
        ("engine", "num_gpu_blocks_override", 10**13, f"wanted a number at most 1,000,000,000,000, got {10**13}"),
    ],
)  # fmt: skip
def test_a_count_beyond_all_that_exists(part: str, field: str, value: int, fault: str) -> None:
    made = scenario().replace(**{part: {field: value}})
    assert faults(made) == [f"{part}.{field}: {fault}"]


@pytest.mark.parametrize(
    ("part", "field", "value", "fault"),
    [
        ("gpu", "memory_bytes", 80.0, "wanted a number between 1e+09 and 1e+13, such as '80 GB', got 80"),
        ("gpu", "hbm_bandwidth_bytes_per_s", 3.35, "wanted a number between 1e+06 and 1e+16, such as '3.35 TB/s', got 3.35"),
        ("gpu", "kernel_launch_s", 5.6, "wanted a number between 0 and 1, such as '5.6 us', got 5.6"),
        ("gpu", "num_sms", 1e7, "wanted a number between 1 and 1e+06, such as 128, got 1e+07"),
        ("network", "bandwidth_bytes_per_s", 400.0, "wanted a number between 1e+06 and 1e+16, such as '3.35 TB/s', got 400"),
        ("kernels", "gemm_compute_efficiency", 80.0, "wanted a number between 0.001 and 2, such as 0.8, got 80"),
    ],
)  # fmt: skip
def test_a_quantity_that_lost_its_unit(part: str, field: str, value: float, fault: str) -> None:
    quantity = {"value": value, "source": "a slip"}
    made = scenario().replace(hardware={part: {field: quantity}})
    assert faults(made) == [f"hardware.{part}.{field}.value: {fault}"]


def test_quantities_by_dtype_and_group_size_are_held_to_the_same_bounds() -> None:
    slip = Quantity(value=989.0, source="TFLOP/s forgotten")
    made = scenario().replace(hardware={"gpu": {"peak_flops_per_s": {"bfloat16": slip}}})
    assert faults(made) == [
        "hardware.gpu.peak_flops_per_s.bfloat16.value: wanted a number between 1e+09 and 1e+19, "
        "such as '989 TFLOP/s', got 989"
    ]
    made = scenario().replace(hardware={"kernels": {"collective_bandwidth_efficiency": {2: slip}}})
    assert faults(made) == [
        "hardware.kernels.collective_bandwidth_efficiency.2.value: wanted a number between 0.001 and 2, "
        "such as 0.8, got 989"
    ]


@pytest.mark.parametrize(
    ("parallel", "text"),
    [
        ({}, "TP1"),
        ({"tensor_parallel_size": 4, "pipeline_parallel_size": 2}, "TP4×PP2"),
        ({"pipeline_parallel_size": 2, "data_parallel_size": 3}, "TP1×PP2×DP3"),
    ],
)
def test_layout_in_the_fields_shorthand(parallel: dict[str, int], text: str) -> None:
    assert layout(scenario(parallel=parallel)) == text


def test_idle_gpus_are_a_warning() -> None:
    made = scenario(hardware="h100_sxm_x8", parallel={"tensor_parallel_size": 2})
    assert scenario_warnings(made) == ["6 of 8 GPUs idle: the layout TP2 uses 2"]


@pytest.mark.parametrize("backend", [None, "uni", "uniproc", "mp", "ray"])
@pytest.mark.parametrize(("tp", "pp", "dp"), [(1, 1, 1), (1, 1, 2), (2, 1, 1), (1, 2, 1), (2, 2, 2)])
def test_one_process_runs_one_gpu(backend: str | None, tp: int, pp: int, dp: int) -> None:
    made = scenario(
        hardware="h100_sxm_x8",
        parallel={"tensor_parallel_size": tp, "pipeline_parallel_size": pp, "data_parallel_size": dp},
        engine={"distributed_executor_backend": backend},
    )
    refused = [
        f"engine.distributed_executor_backend: uniproc runs one GPU, the layout {layout(made)} has "
        f"{tp * pp} a replica; use mp or ray"
    ]
    assert faults(made) == (refused if backend in ("uni", "uniproc") and tp * pp > 1 else [])
