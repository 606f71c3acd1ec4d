"""Layouts: layers over stages, GPUs over replicas, and what a scenario refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.load.model import find_model
from simkv.spec.checks import layout, scenario_faults
from simkv.spec.parallel import ParallelSpec, split_layers
from tests.cost.worlds import hardware_of, scenario_of

pipelines = st.integers(1, 40).flatmap(lambda pp: st.tuples(st.integers(pp, 300), st.just(pp)))


@given(pipeline=pipelines, version=st.sampled_from(((0, 10), (0, 32), (0, 33), (1, 0))))
def test_every_layer_lies_on_one_stage_and_stages_differ_by_one_at_most(pipeline, version):
    num_layers, num_stages = pipeline
    layers = split_layers(num_layers, num_stages, version)
    assert len(layers) == num_stages
    assert sum(layers) == num_layers
    assert max(layers) - min(layers) <= 1
    assert min(layers) >= 1


@given(pipeline=pipelines)
def test_the_last_stage_never_has_more_than_the_others_until_0_32_and_never_less_after(pipeline):
    assert split_layers(*pipeline)[-1] == min(split_layers(*pipeline))
    assert split_layers(*pipeline, (0, 33))[-1] == max(split_layers(*pipeline, (0, 33)))


def test_gpus_of_a_layout():
    parallel = ParallelSpec(tensor_parallel_size=4, pipeline_parallel_size=2, data_parallel_size=3)
    assert (parallel.num_gpus_per_replica, parallel.num_gpus) == (8, 24)


def test_decode_context_parallel_uses_the_ranks_there_are_and_prefill_context_parallel_multiplies_them():
    inside = ParallelSpec(tensor_parallel_size=8, decode_context_parallel_size=4)
    outside = ParallelSpec(tensor_parallel_size=8, prefill_context_parallel_size=4)
    assert (inside.num_gpus, outside.num_gpus) == (8, 32)


@pytest.mark.parametrize(("tp", "pp", "text"), [(1, 1, "TP1"), (4, 2, "TP4×PP2"), (1, 4, "TP1×PP4")])
def test_a_layout_in_short(tp, pp, text):
    scenario = scenario_of("Llama-3.1-70B", tp=tp, pp=pp)
    assert layout(scenario) == text
    assert layout(scenario.replace(parallel={"data_parallel_size": 2})) == f"{text}×DP2"


def faults_of(model="Llama-3.1-8B", hardware="h100_sxm", tp=1, pp=1, parallel=None, **engine):
    scenario = scenario_of(model, hardware, tp, pp, **engine).replace(parallel=parallel or {})
    return {".".join(path): text for path, text in scenario_faults(scenario)}


def test_a_sound_scenario_has_no_faults():
    assert faults_of() == {}
    assert faults_of("Llama-3.1-70B", "h100_sxm_2x8", 8, 2) == {}
    assert faults_of("Qwen2.5-7B", tp=4) == {}  # 28 heads, 4 KV heads


@pytest.mark.parametrize(
    ("options", "path", "text"),
    [
        (
            {"tp": 3},
            "parallel.tensor_parallel_size",
            "3 does not divide 32 attention heads; use 1, 2, 4, 8, 16 or 32",
        ),
        (
            {"model": "Qwen2.5-7B", "tp": 7},
            "parallel.tensor_parallel_size",
            "7 does not divide 4 KV heads; use 1, 2, 4 or 28",
        ),
        ({"pp": 33}, "parallel.pipeline_parallel_size", "33 stages for 32 layers; use at most 32"),
        (
            {"pp": 2, "parallel": {"pipeline_layer_partition": (16, 8, 8)}},
            "parallel.pipeline_layer_partition",
            "wanted 2 numbers, one a stage, got 3",
        ),
        (
            {"pp": 2, "parallel": {"pipeline_layer_partition": (16, 15)}},
            "parallel.pipeline_layer_partition",
            "wanted 32 layers in sum, got 31",
        ),
        ({"hardware": "h100_sxm_x4", "tp": 8}, "parallel", "TP8 needs 8 GPUs, h100_sxm_x4 has 4"),
        ({"tp": 16}, "parallel", "TP16 needs 16 GPUs, a node of h100_sxm holds 8; use hardware h100_sxm_2x8"),
        ({"max_model_len": 131_073}, "engine.max_model_len", "131073 is beyond the 131072 positions"),
        (
            {"enable_chunked_prefill": False, "max_num_batched_tokens": 4_096},
            "engine.max_num_batched_tokens",
            "4096 is below max_model_len 131072",
        ),
        (
            {"max_num_batched_tokens": 64, "max_num_seqs": 128},
            "engine.max_num_batched_tokens",
            "64 is below max_num_seqs 128",
        ),
        (
            {"tp": 8, "parallel": {"decode_context_parallel_size": 2}},
            "parallel.decode_context_parallel_size",
            "wanted tensor_parallel_size above the 8 KV heads, whose copies it deals tokens to, got 8; use 1",
        ),
    ],
)
def test_what_a_scenario_refuses(options, path, text):
    assert text in faults_of(**options)[path]


@pytest.mark.parametrize("model", ["Llama-3.1-8B", "Llama-3.1-70B", "Qwen2.5-7B", "Llama-3.2-3B"])
def test_the_sizes_a_refusal_offers_are_allowed(model):
    spec = find_model(model)
    for tp in range(1, 9):
        text = faults_of(model, tp=tp).get("parallel.tensor_parallel_size", "")
        fits = spec.num_attention_heads % tp == 0 and (
            spec.num_key_value_heads % tp == 0 or tp % spec.num_key_value_heads == 0
        )
        assert (text == "") == fits
        for size in text.partition("; use ")[2].replace(" or ", ", ").split(", ") if text else ():
            assert "parallel.tensor_parallel_size" not in faults_of(model, tp=int(size))


def test_a_group_takes_the_efficiency_of_the_next_larger_group_on_record():
    hardware = hardware_of("h100_sxm")
    by_size = {n: q.value for n, q in hardware.kernels.collective_bandwidth_efficiency.items()}
    assert set(by_size) == {2, 4, 8}
    assert [hardware.collective_efficiency(n) for n in (2, 3, 4, 5, 8, 16)] == [
        by_size[n] for n in (2, 4, 4, 8, 8, 8)
    ]
