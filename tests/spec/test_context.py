# ruff: noqa: E501 - a case a line, its message whole
"""Decode context parallelism: vLLM's rules, those of mathematics, and what a run does not simulate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.load.model import shipped_models
from simkv.spec.checks import layout, scenario_faults, scenario_warnings, simulation_faults
from simkv.spec.context import decode_context_parallel_sizes
from tests.cost.worlds import scenario_of

SIZE = "parallel.decode_context_parallel_size"
BOX = "h100_sxm_8x8"
SIZES = (1, 2, 4, 8, 16, 32, 64)


def dealt(model="Llama-3.1-70B", tp=8, dcp=1, rules="vllm", hardware=BOX, **engine):
    parallel = {"decode_context_parallel_size": dcp, "rules": rules}
    return scenario_of(model, hardware, tp, **engine).replace(parallel=parallel)


def faults(scenario):
    return {".".join(path): text for path, text in scenario_faults(scenario)}


@given(st.sampled_from(sorted(shipped_models())), st.sampled_from(SIZES), st.sampled_from(SIZES))
def test_vllm_deals_tokens_to_copies_of_what_is_cached_only(name, tp, dcp):
    model = shipped_models()[name]
    scenario = dealt(name, tp, dcp)
    heads, kv_heads = model.num_attention_heads, model.num_key_value_heads
    is_dealt = tp % dcp == 0 and not model.is_hybrid
    if not model.is_mla:
        is_dealt = is_dealt and tp > kv_heads and dcp <= tp // kv_heads and heads // kv_heads % dcp == 0
    assert (SIZE not in faults(scenario)) == (dcp == 1 or is_dealt)
    assert (dcp in decode_context_parallel_sizes(scenario)) == (SIZE not in faults(scenario))


@given(st.sampled_from(sorted(shipped_models())), st.sampled_from(SIZES), st.sampled_from(SIZES))
def test_what_vllm_takes_mathematics_take_and_the_rest_is_said(name, tp, dcp):
    by_vllm, by_mathematics = dealt(name, tp, dcp), dealt(name, tp, dcp, "generic")
    if not faults(by_vllm):
        assert not faults(by_mathematics)
        assert not any("generic" in text for text in scenario_warnings(by_mathematics))
    elif not faults(by_mathematics):
        assert tp % dcp == 0
        assert any("vLLM would refuse decode_context" in text for text in scenario_warnings(by_mathematics))


@pytest.mark.parametrize(
    ("scenario", "fault"),
    [
        (dealt(tp=8, dcp=2), "wanted tensor_parallel_size above the 8 KV heads, whose copies it deals tokens to, got 8; use 1"),
        (dealt(tp=16, dcp=4), "4 is above the 2 copies of a KV head on 16 ranks; use 1 or 2"),
        (dealt(tp=16, dcp=3), "3 does not divide tensor_parallel_size 16; use 1 or 2"),
        (dealt("deepseek-ai/DeepSeek-R1", dcp=3), "3 does not divide tensor_parallel_size 8; use 1, 2, 4 or 8"),
        (dealt("Qwen2.5-7B", tp=28, dcp=2, hardware="h100_sxm_4x8"), "2 does not divide the 7 query heads of a KV head; use 1 or 7"),
        (dealt("google/gemma-3-27b-it", tp=32, dcp=2), "vLLM deals out full attention only, and google/gemma-3-27b-it has other layers; use 1"),
        (dealt("deepseek-ai/DeepSeek-R1", dcp=2, vllm_version="0.9.2"), "vLLM 0.9.2 has no decode context parallelism, 0.11 has; use 1"),
        (dealt(tp=8, dcp=16, rules="generic"), "16 does not divide tensor_parallel_size 8; use 1, 2, 4 or 8"),
    ],
)  # fmt: skip
def test_a_size_that_is_refused_is_told_which_are_not(scenario, fault):
    assert faults(scenario) == {SIZE: fault}


def test_prefill_context_parallelism_is_refused_everywhere():
    scenario = scenario_of("deepseek-ai/DeepSeek-R1", BOX, 8).replace(
        parallel={"prefill_context_parallel_size": 2}
    )
    assert faults(scenario) == {
        "parallel.prefill_context_parallel_size": "prefill context parallelism is not modelled yet, neither its memory nor its time; wanted 1, got 2"
    }


def test_a_run_refuses_what_a_plan_answers():
    assert simulation_faults(dealt()) == []
    ((path, text),) = simulation_faults(dealt("deepseek-ai/DeepSeek-R1", dcp=8))
    assert ".".join(path) == SIZE
    assert (
        text
        == "the step time of context parallelism is not simulated yet; wanted 1, got 8 ('simkv plan' answers for its memory)"
    )


def test_the_layout_in_short():
    assert layout(dealt("deepseek-ai/DeepSeek-R1", dcp=8)) == "TP8×DCP8"
