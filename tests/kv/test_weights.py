"""Weights of a rank, by hand and as public logs print them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.kv.weights import allocated_bytes, weights_bytes
from simkv.load.model import find_model
from simkv.spec.model import QuantizationSpec
from simkv.units import GIB, MIB
from tests.cost.worlds import scenario_of

H, V, L = 4_096, 128_256, 32  # Llama-3.1-8B
LAYER_8B = H * (4_096 + 2 * 1_024) + 4_096 * H + 3 * H * 14_336  # q, k, v; o; gate, up, down
NORM_8B = 2 * H
ROTARY_8B = 131_072 * 128  # cosines and sines of half a head each, for every position


@given(st.integers(0, 2**36))
def test_the_allocator_adds_at_most_a_mebibyte(num_bytes):
    allocated = allocated_bytes(num_bytes)
    assert num_bytes <= allocated <= num_bytes + MIB
    assert allocated_bytes(allocated) == allocated


def test_llama_8b():
    assert weights_bytes(scenario_of("Llama-3.1-8B"), 0) == 2 * (
        L * (LAYER_8B + NORM_8B) + 2 * V * H + H + ROTARY_8B
    )


def test_llama_8b_in_two_stages():
    scenario = scenario_of("Llama-3.1-8B", pp=2)
    half = 16 * (LAYER_8B + NORM_8B) + ROTARY_8B
    assert weights_bytes(scenario, 0) == 2 * (half + V * H)
    assert weights_bytes(scenario, 1) == 2 * (half + V * H + H)


def test_llama_70b_on_8_gpus():
    """Norms and rotary tables are whole on every rank, all else is an eighth."""
    norms = 80 * 2 * 8_192 + 8_192
    by_hand = 2 * ((70_553_706_496 - norms) // 8 + norms + ROTARY_8B)
    assert weights_bytes(scenario_of("Llama-3.1-70B", tp=8), 0) == by_hand


def test_an_fp8_checkpoint_keeps_embedding_and_head_in_16_bits():
    scenario = scenario_of("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8")
    assert weights_bytes(scenario, 0) == L * LAYER_8B + 2 * (L * NORM_8B + 2 * V * H + H + ROTARY_8B)


def test_a_tied_model_is_copied_to_the_last_stage():
    whole = weights_bytes(scenario_of("Llama-3.2-1B"), 0)
    scenario = scenario_of("Llama-3.2-1B", pp=2)
    copies = allocated_bytes(2 * 128_256 * 2_048) + 2 * 131_072 * 64  # embedding, rotary table
    assert weights_bytes(scenario, 0) + weights_bytes(scenario, 1) == whole + copies


def test_kv_heads_are_copied_beyond_their_number():
    """Qwen2.5-7B has 4 KV heads: with TP 28 each rank would hold a seventh of a head, it holds one."""
    scenario = scenario_of("Qwen2.5-7B", tp=28)
    per_layer = 3_584 * (128 + 2 * 128) + 3_584 * 128 + 3 * 3_584 * 18_944 // 28 + 2 * 3_584 + 3 * 128
    tables = 2 * 152_064 // 28 * 3_584 + 3_584 + 131_072 * 128
    assert weights_bytes(scenario, 0) == pytest.approx(2 * (28 * per_layer + tables), rel=5e-3)


def test_a_quantised_layer_has_scales_and_zero_points():
    awq = find_model("Qwen/Qwen2.5-7B-Instruct-AWQ")
    plain = scenario_of("Qwen/Qwen2.5-7B-Instruct-AWQ")
    matrices = 28 * (3_584 * (3_584 + 2 * 512) + 3_584 * 3_584 + 3 * 3_584 * 18_944)
    packed = [
        weights_bytes(plain.replace(model=awq.replace(quantization=quantization)), 0)
        for quantization in (QuantizationSpec(method="w4a16"), awq.quantization)
    ]
    assert packed[1] - packed[0] == pytest.approx(matrices * 2.5 / 128, rel=0.01)


def test_experts_alone_may_be_quantised_and_are_padded_for_their_kernels():
    """gpt-oss: 2,880 in steps of 128 and 256 with Marlin; until 0.11 in steps of 256 one way only."""
    early, late = (
        weights_bytes(scenario_of("openai/gpt-oss-20b", vllm_version=version), 0)
        for version in ("0.11.0", "0.19.0")
    )
    per_weight = 0.5 + 1 / 32
    grown = 24 * 32 * 3 * (2_944 * 3_072 - 3_072 * 2_880) * per_weight
    assert late - early == pytest.approx(grown, rel=0.05)  # the allocator's rests differ


def test_a_latent_is_projected_whole_and_its_up_projection_kept_twice():
    scenario = scenario_of("deepseek-ai/DeepSeek-V2-Lite", tp=8)
    model = scenario.model
    attention = 2_048 * 576 + (2_048 * 16 * 192 + 2 * 512 * 16 * 256 + 16 * 128 * 2_048) / 8
    mlps = 3 * 2_048 * 10_944 / 8 + 26 * (66 * 3 * 2_048 * 1_408 / 8 + 64 * 2_048)
    norms = 27 * (2 * 2_048 + 512) + 2_048
    tables = 2 * 102_400 * 2_048 / 8 + 163_840 * 64
    assert model.is_mla
    assert weights_bytes(scenario, 0) == pytest.approx(2 * (27 * attention + mlps + norms + tables), rel=2e-3)
    old = weights_bytes(scenario.replace(engine={"vllm_version": "0.7.3"}), 0)
    multiplied = 27 * 2 * 512 * 2_048 * 16 / 8
    assert old - weights_bytes(scenario, 0) == pytest.approx(2 * multiplied, rel=0.02)


@pytest.mark.parametrize(
    ("model", "tp", "logged_gib"),
    [
        ("microsoft/phi-4", 2, 13.77),  # 0.12 of it is the allocator's
        ("Qwen/Qwen2.5-7B-Instruct", 1, 14.25),
        ("google/gemma-3-12b-it", 1, 23.31),  # half a GiB of rotary tables
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 4, 53.12),  # 2.5 GiB of them
        ("ibm-granite/granite-vision-3.3-2b", 2, 2.79),  # the tower is sharded
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 2, 43.51),
    ],
)
def test_as_logged_by_0_19(model, tp, logged_gib):
    scenario = scenario_of(model, tp=tp, vllm_version="0.19.0", max_model_len=8_192)
    assert weights_bytes(scenario, 0) / GIB == pytest.approx(logged_gib, abs=0.01)


def test_experts_are_dealt_out_over_the_replicas():
    """Slices of all of them, or whole ones; everything else stays with each replica."""

    def per_gpu(tp, dp, ep):
        layout = {"tensor_parallel_size": tp, "data_parallel_size": dp, "enable_expert_parallel": ep}
        return weights_bytes(scenario_of("Qwen/Qwen3-30B-A3B").replace(parallel=layout), 0)

    experts = 2 * 48 * 128 * 3 * 2_048 * 768
    alone = per_gpu(1, 1, False)
    assert per_gpu(1, 1, True) == alone
    for ep in (False, True):
        assert per_gpu(1, 4, ep) == pytest.approx(alone - experts * 3 / 4, rel=0.001)
        assert per_gpu(2, 4, ep) == pytest.approx(per_gpu(2, 1, ep) - experts * (1 / 2 - 1 / 8), rel=0.001)
    # 128 experts over 6 ranks: the fullest has 22
    assert per_gpu(1, 6, True) == pytest.approx(alone - experts * (1 - 22 / 128), rel=0.001)
    dense = [
        weights_bytes(scenario_of("Llama-3.1-8B").replace(parallel={"data_parallel_size": dp}), 0)
        for dp in (1, 4)
    ]
    assert dense[0] == dense[1]
