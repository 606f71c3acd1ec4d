"""Bands around public measurements: is the first version of the model sane?

Exactness is for calibration. Each value says where it was measured; each band is as wide as the model needs
today and should shrink. Two measured effects are not in the model yet: fp8 KV that is slower than bf16 at
batch 1, and a mixed batch that takes 22-35 % longer in attention than its parts alone.
"""

import pytest

from simkv.cost.attention import AttentionCost
from simkv.cost.collectives import Collectives
from simkv.cost.fitted import FittedKernels
from simkv.load.model import find_model
from simkv.step import PrefillChunk
from simkv.units import MIB
from tests.cost.worlds import cost_of, hardware_of, shape_of

H100_BANDWIDTH = 3.35e12  # NVIDIA H100 datasheet 2023, SXM
H100_PEAK = 989.5e12  # the same, bfloat16, dense
KIB = 1024


def attention(num_heads, num_kv_heads, kv_dtype_bytes=2.0, hardware="h100_sxm"):
    profile = hardware_of(hardware)
    fitted = FittedKernels(profile) if profile.calibration else None
    return AttentionCost(profile, num_heads, num_kv_heads, 128, "bfloat16", kv_dtype_bytes, fitted)


def bandwidth_share(num_seqs, context):
    """Of peak bandwidth, by decode attention with 8 query heads and 1 KV head a rank in bf16."""
    tokens = num_seqs * context
    return tokens * 512 / attention(8, 1).decode(tokens, context, num_seqs).seconds / H100_BANDWIDTH


def prefill_tflops(num_heads, num_kv_heads, num_tokens):
    seconds = attention(num_heads, num_kv_heads).prefill([PrefillChunk(num_tokens, 0)]).seconds
    return 4 * num_heads * 128 * num_tokens**2 / 2 / seconds / 1e12


def fp8_kv_ratio(num_seqs, context):
    tokens = num_seqs * context
    fp8, bf16 = (attention(8, 1, size).decode(tokens, context, num_seqs).seconds for size in (1.0, 2.0))
    return fp8 / bf16


def all_reduce_us(num_bytes, in_graph, nccl=False):
    hardware = hardware_of("h100_sxm")
    return (
        Collectives(hardware, 8, 8, nccl, FittedKernels(hardware)).all_reduce(num_bytes, in_graph).seconds
        * 1e6
    )


# H100 SXM, tables of aiconfigurator-core 0.12.0 (vLLM 0.24, NCCL 2.29): what, model, measured, relative band.
FACTS = {
    "decode, batch 1 of 131,072: bandwidth": (lambda: bandwidth_share(1, 131_072), 0.39, 0.10),
    "decode, batch 32 of 65,536: bandwidth": (lambda: bandwidth_share(32, 65_536), 0.90, 0.10),
    "prefill, 32/8 heads, 1,024: TFLOP/s": (lambda: prefill_tflops(32, 8, 1_024), 242, 0.15),
    "prefill, 32/8 heads, 16,384: TFLOP/s": (lambda: prefill_tflops(32, 8, 16_384), 664, 0.10),
    "prefill, 8/1 heads, 1,024: TFLOP/s": (lambda: prefill_tflops(8, 1, 1_024), 85, 0.35),
    "prefill, 8/1 heads, 16,384: TFLOP/s": (lambda: prefill_tflops(8, 1, 16_384), 639, 0.10),
    "fp8 KV, batch 1 of 131,072: over bf16": (lambda: fp8_kv_ratio(1, 131_072), 1.14, 0.25),
    "fp8 KV, batch 8 of 131,072: over bf16": (lambda: fp8_kv_ratio(8, 131_072), 1 / 1.7, 0.15),
    "all-reduce of 32 KiB on 8, graph: us": (lambda: all_reduce_us(32 * KIB, True), 5.6, 0.30),
    "all-reduce of 32 KiB on 8, eager: us": (lambda: all_reduce_us(32 * KIB, False), 22.6, 0.35),
    "all-reduce of 32 KiB on 8, NCCL: us": (lambda: all_reduce_us(32 * KIB, False, True), 18.4, 0.20),
    "all-reduce of 16 MiB on 8, NCCL: us": (lambda: all_reduce_us(16 * MIB, False, True), 122, 0.25),
    "all-reduce of 128 MiB on 8, NCCL: us": (lambda: all_reduce_us(128 * MIB, False, True), 579, 0.20),
    "all-reduce of 512 MiB on 8, NCCL: us": (lambda: all_reduce_us(512 * MIB, False, True), 2_100, 0.30),
}


@pytest.mark.parametrize("fact", FACTS)
def test_a_kernel_measured_on_h100_is_met_within_its_band(fact):
    model, measured, band = FACTS[fact]
    assert model() == pytest.approx(measured, rel=band)


# Chunks over a prefix, Llama-3.1-8B in bf16: LLMServingSim profiles of vLLM 0.19, one attention call, in us.
CHUNKS_US = {
    ("rtx_pro_6000", 512, 0): 24.9,
    ("rtx_pro_6000", 512, 2_048): 108.5,
    ("rtx_pro_6000", 512, 16_384): 699.9,
    ("rtx_pro_6000", 2_048, 0): 172.6,
    ("rtx_pro_6000", 2_048, 16_384): 2_138.1,
    ("rtx_4090", 512, 2_048): 165.9,
    ("rtx_4090", 512, 16_384): 1_035.8,
    ("rtx_4090", 2_048, 0): 336.1,
    ("rtx_4090", 2_048, 16_384): 4_225.0,
}


@pytest.mark.parametrize(("hardware", "num_tokens", "context_len"), CHUNKS_US)
def test_a_chunk_over_a_prefix_is_met_within_30_percent(hardware, num_tokens, context_len):
    seconds = attention(32, 8, hardware=hardware).prefill([PrefillChunk(num_tokens, context_len)]).seconds
    measured = CHUNKS_US[hardware, num_tokens, context_len]
    assert seconds * 1e6 == pytest.approx(measured, rel=0.30)


def test_a_single_decode_of_70b_is_near_the_time_of_streaming_its_weights():
    """TP8 in bf16: weights over bandwidth is 5.3 ms; launches, floors and the CPU may double it, not triple it."""
    bound_s = find_model("Llama-3.1-70B").num_parameters * 2 / 8 / H100_BANDWIDTH
    assert 1.2 < cost_of("Llama-3.1-70B", tp=8).step_time(shape_of([1_024])).total_s / bound_s < 3


@pytest.mark.parametrize(("model", "tp"), [("Llama-3.1-8B", 1), ("Llama-3.1-70B", 4), ("Llama-3.1-70B", 8)])
def test_a_chunk_of_8192_tokens_runs_at_a_plausible_share_of_peak(model, tp):
    spec, num_tokens = find_model(model), 8_192
    matrices = spec.num_parameters - 2 * spec.num_embedding_parameters
    pairs = spec.num_hidden_layers * spec.num_attention_heads * spec.head_dim * num_tokens**2 / 2
    flops = 2 * matrices * num_tokens + 4 * pairs
    seconds = cost_of(model, tp=tp).step_time(shape_of([], [(num_tokens, 0)])).total_s
    assert 0.35 < flops / seconds / (tp * H100_PEAK) < 0.75


def test_the_last_chunk_of_a_128k_prompt_is_far_slower_than_its_first():
    cost = cost_of("Llama-3.1-70B", tp=8)
    times = [cost.step_time(shape_of([], [(8_192, i * 8_192)])).total_s for i in range(16)]
    assert times == sorted(times)
    assert times[-1] > 2 * times[0]


def test_equal_kv_in_more_sequences_can_be_faster():
    cost = cost_of("Llama-3.1-70B", tp=8)
    one, four = (cost.stage_times(shape_of([131_072 // n] * n))[0].total_s for n in (1, 4))
    assert four < one


def test_a_block_handed_out_costs_host_time():
    """Why block size matters."""
    cost = cost_of("Llama-3.1-8B")
    small, large = (
        cost.host_s(shape_of([], [(8_192, 0)], num_new_blocks=8_192 // size)) for size in (16, 128)
    )
    assert small > large > 0
