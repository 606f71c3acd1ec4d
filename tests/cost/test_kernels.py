"""Laws of single kernels: more work never takes less time, and no kernel beats the hardware."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.cost.attention import AttentionCost
from simkv.cost.gemm import elementwise, gemm
from simkv.cost.tally import Side
from simkv.load.hardware import shipped_hardware
from simkv.step import PrefillChunk
from tests.cost.worlds import hardware_of

every_profile = pytest.mark.parametrize("hardware", shipped_hardware())
sizes = st.integers(1, 70_000)
more = st.one_of(st.integers(0, 200), st.integers(0, 50_000))
lengths = st.integers(1, 200_000)


@every_profile
@given(m=st.integers(1, 20_000), n=sizes, k=sizes, dm=more, dn=more, dk=more)
def test_gemm_grows_with_every_side_and_beats_neither_peak_nor_bandwidth(hardware, m, n, k, dm, dn, dk):
    spec = hardware_of(hardware)
    peak = spec.gpu.peak_flops_per_s["bfloat16"].value
    bandwidth = spec.gpu.hbm_bandwidth_bytes_per_s.value
    time = gemm(spec, m, n, k, "bfloat16", 2.0)
    assert time.seconds >= max(2 * m * n * k / peak, 2 * n * k / bandwidth, spec.gpu.kernel_launch_s.value)
    for larger in ((m + dm, n, k), (m, n + dn, k), (m, n, k + dk)):
        assert gemm(spec, *larger, "bfloat16", 2.0).seconds >= time.seconds


@every_profile
def test_a_small_gemm_streams_weights_and_a_large_one_computes(hardware):
    spec = hardware_of(hardware)
    assert gemm(spec, 1, 8192, 8192, "bfloat16", 2.0).side is Side.MEMORY
    assert gemm(spec, 8192, 8192, 8192, "bfloat16", 2.0).side is Side.COMPUTE


@every_profile
def test_rows_are_computed_in_tiles(hardware):
    spec = hardware_of(hardware)
    tile = int(spec.kernels.gemm_tile_m.value)
    first, last, next_ = (
        gemm(spec, m, 8192, 8192, "bfloat16", 2.0).seconds for m in (64 * tile + 1, 65 * tile, 65 * tile + 1)
    )
    assert first == pytest.approx(last)
    assert next_ > last


@every_profile
@given(num_bytes=st.floats(0, 1e10), extra=st.floats(0, 1e9))
def test_elementwise_grows_with_its_bytes(hardware, num_bytes, extra):
    spec = hardware_of(hardware)
    assert elementwise(spec, num_bytes + extra).seconds >= elementwise(spec, num_bytes).seconds


def attention_of(hardware, num_heads=32, num_kv_heads=8, kv_dtype_bytes=2.0):
    return AttentionCost(hardware_of(hardware), num_heads, num_kv_heads, 128, "bfloat16", kv_dtype_bytes)


@every_profile
@given(c=st.integers(1, 20_000), p=st.integers(0, 200_000), dc=more, dp=more)
def test_prefill_grows_with_chunk_and_context_and_stays_below_peak(hardware, c, p, dc, dp):
    attention, peak = attention_of(hardware), hardware_of(hardware).gpu.peak_flops_per_s["bfloat16"].value
    seconds = attention.prefill([PrefillChunk(c, p)]).seconds
    assert seconds >= 4 * 32 * 128 * (c * p + c * c / 2) / peak
    for longer in (PrefillChunk(c + dc, p), PrefillChunk(c, p + dp)):
        assert attention.prefill([longer]).seconds >= seconds * (1 - 1e-12)


@every_profile
@given(num_tokens=st.integers(2, 100_000), context=st.integers(0, 100_000), cut=st.floats(0, 1))
def test_a_prompt_cut_into_chunks_never_takes_less_than_whole(hardware, num_tokens, context, cut):
    attention = attention_of(hardware)
    first = max(1, min(num_tokens - 1, round(num_tokens * cut)))
    parts = PrefillChunk(first, context), PrefillChunk(num_tokens - first, context + first)
    whole = attention.prefill([PrefillChunk(num_tokens, context)]).seconds
    assert sum(attention.prefill([part]).seconds for part in parts) >= whole * (1 - 1e-9)


@every_profile
@given(total=lengths, share=st.floats(0, 1), dt=more, dm=more)
def test_decode_grows_with_all_kv_and_with_the_longest_context(hardware, total, share, dt, dm):
    attention = attention_of(hardware)
    longest = max(1, round(total * share))
    seconds = attention.decode(total, longest, 1).seconds
    assert seconds >= total * 2 * 8 * 128 * 2 / hardware_of(hardware).gpu.hbm_bandwidth_bytes_per_s.value
    assert attention.decode(total + dt, longest, 1).seconds >= seconds
    assert attention.decode(total + dm, longest + dm, 1).seconds >= seconds
    assert attention.decode(total, min(total, longest + dm), 1).seconds >= seconds


@every_profile
def test_one_long_context_among_short_ones_is_not_many_equal_ones(hardware):
    """At equal KV in sum: the longest sequence alone cannot fill the GPU, where that was measured."""
    attention = attention_of(hardware, num_heads=8, num_kv_heads=1)
    equal, uneven = (attention.decode(32 * 8_192, longest, 32).seconds for longest in (8_192, 131_072))
    has_serial_term = hardware_of(hardware).kernels.decode_attention_per_token_s.value > 0
    assert uneven > equal if has_serial_term else uneven == equal
