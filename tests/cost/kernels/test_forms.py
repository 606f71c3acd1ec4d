"""Laws of the forms that are fitted point by point, for all parameters within the bounds of their fits."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.calibrate.families import GROUPS
from simkv.cost.kernels import decode_attention, gemm, prefill_attention, scaled_gemm
from simkv.cost.kernels.ufuncs import smooth_max

H100 = (989.5e12, 3.35e12, 132)
EQUAL = 1 - 1e-9  # powers and sums round

every_group = pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
# `alone_seconds` of chunks is tested with its kernel, kernels that move bytes have one side only
two_sided = pytest.mark.parametrize(
    "group",
    [group for group in GROUPS if "batch" in group.axes or group.op == "gemm"],
    ids=lambda group: group.name,
)
FORMS = {
    "gemm/bfloat16": gemm,
    "gemm/fp8": scaled_gemm,
    "decode_attention": decode_attention,
    "prefill_attention": prefill_attention,
}


def form_of(group):
    return FORMS.get(group.name) or FORMS[group.op]


def parameters_of(group):
    """Any start with any values within the bounds."""
    values = st.fixed_dictionaries({field: st.floats(*bounds) for field, bounds in group.bounds.items()})
    return st.builds(lambda start, changes: replace(start, **changes), st.sampled_from(group.starts), values)


def shapes_of(group):
    if group.op == "gemm":
        side = st.integers(1, 64).map(lambda blocks: 128 * blocks) | st.integers(1, 70_000)
        return st.tuples(st.integers(1, 40_000) | st.integers(1, 600), side, side)
    tokens = st.integers(1, 200_000) | st.integers(1, 700)
    if len(group.axes) == 2:
        return st.tuples(tokens, tokens)
    heads = st.tuples(st.integers(1, 16), st.sampled_from([1, 2, 4, 8])).map(
        lambda hg: (hg[0] * hg[1], hg[1])
    )
    return st.tuples(st.integers(1, 2048) | st.integers(1, 64), tokens, heads).map(
        lambda shape: (shape[0], shape[1], *shape[2])
    )


def grown(shape, axis, extra):
    return tuple(size + extra if index == axis else size for index, size in enumerate(shape))


@every_group
@given(data=st.data())
def test_time_is_positive_and_finite(group, data):
    parameters, shape = data.draw(parameters_of(group)), data.draw(shapes_of(group))
    seconds = group.seconds(parameters, *H100, *shape)
    assert 0 < seconds < 1e9


@every_group
@settings(max_examples=300)
@given(data=st.data())
def test_time_does_not_fall_with_more_rows_or_longer_contexts(group, data):
    """In every size of a product; in batch and tokens of attention (heads are a model's, not a batch's)."""
    parameters, shape = data.draw(parameters_of(group)), data.draw(shapes_of(group))
    axis = data.draw(st.integers(0, 2 if group.op == "gemm" else 1))
    extra = data.draw(st.integers(1, 3) | st.integers(1, 10_000))
    before = group.seconds(parameters, *H100, *shape)
    after = group.seconds(parameters, *H100, *grown(shape, axis, extra))
    assert after >= before * EQUAL


@every_group
@given(data=st.data())
def test_scalars_and_arrays_agree(group, data):
    parameters = data.draw(parameters_of(group))
    shapes = data.draw(st.lists(shapes_of(group), min_size=1, max_size=8))
    columns = [np.array(column, dtype=float) for column in zip(*shapes, strict=True)]
    at_once = group.seconds(parameters, *H100, *columns)
    one_by_one = [group.seconds(parameters, *H100, *shape) for shape in shapes]
    assert at_once == pytest.approx(one_by_one, rel=1e-12)


@two_sided
@given(data=st.data())
def test_both_halves_of_a_timing_agree_on_scalars_and_arrays(group, data):
    parameters, shape = group.starts[0], data.draw(shapes_of(group))
    shape = shape if group.op == "gemm" else (*shape, 128)
    timing = form_of(group).timing(parameters, *H100, *shape)
    arrays = form_of(group).timing(parameters, *H100, *(np.array([float(size)]) for size in shape))
    assert timing.seconds == form_of(group).seconds(parameters, *H100, *shape)
    assert bool(timing.is_memory_bound) == bool(arrays.is_memory_bound[0])


@every_group
def test_time_is_continuous_but_for_tile_edges(group):
    """Between two edges of tiles a small change of size is a small change of time."""
    shape = {2: (100.0, 4096.0), 3: (100.0, 4096.0, 4096.0)}.get(len(group.axes), (4.0, 1000.0, 32.0, 8.0))
    axis = 2 if group.op == "gemm" else 1
    for factor in (1e-3, 1e-6):
        before = group.seconds(group.starts[0], *H100, *shape)
        after = group.seconds(group.starts[0], *H100, *grown(shape, axis, shape[axis] * factor))
        assert before <= after <= before * (1 + 4 * factor)


@every_group
def test_every_fitted_field_exists_and_starts_within_its_bounds(group):
    names = {field.name for field in fields(group.starts[0])}
    assert set(group.bounds) <= names
    for start in group.starts:
        for field, (low, high) in group.bounds.items():
            assert low <= getattr(start, field) <= high


@given(st.floats(1e-9, 1.0), st.floats(1e-9, 1.0), st.floats(1.0, 8.0), st.floats(0.0, 1.0, exclude_min=True))
def test_a_smooth_maximum_lies_between_maximum_and_sum_and_grows(a, b, sharpness, more):
    value = smooth_max(a, b, sharpness)
    assert max(a, b) * EQUAL <= value <= (a + b) / EQUAL
    assert smooth_max(a + more, b, sharpness) >= value * EQUAL


class TestGemm:
    parameters = GROUPS[0].starts[0]

    def test_few_rows_are_bound_by_memory_and_many_by_arithmetic(self):
        assert gemm.timing(self.parameters, *H100, 1, 8192, 8192).is_memory_bound
        assert not gemm.timing(self.parameters, *H100, 8192, 8192, 8192).is_memory_bound

    def test_a_large_product_reaches_the_efficiency_of_its_tiles(self):
        seconds = gemm.seconds(self.parameters, *H100, 32768, 16384, 16384)
        assert 2 * 32768 * 16384**2 / seconds / H100[0] == pytest.approx(0.8, rel=0.05)

    def test_the_first_row_of_a_new_wave_costs_a_wave_of_large_tiles(self):
        """One CTA too many for the SMs: with full quantisation a second wave, as on A100."""
        quantised = replace(self.parameters, wave_quantisation=1.0, lone_wave=1.0, large_tile_efficiency=0.95)
        one = gemm.seconds(quantised, *H100, 128 * 132, 256, 16384)
        two = gemm.seconds(quantised, *H100, 128 * 132 + 1, 256, 16384)
        assert 1.2 < two / one < 2.0

    def test_splitting_helps_narrow_deep_products(self):
        unsplit = replace(self.parameters, split_traffic=50.0)
        assert gemm.seconds(self.parameters, *H100, 64, 512, 16384) < gemm.seconds(
            unsplit, *H100, 64, 512, 16384
        )

    def test_four_bit_weights_stream_faster(self):
        half = replace(self.parameters, weight_bytes=0.5)
        assert gemm.seconds(half, *H100, 1, 8192, 28672) < 0.4 * gemm.seconds(
            self.parameters, *H100, 1, 8192, 28672
        )


@given(data=st.data(), is_cold=st.booleans(), splits_equal_heads=st.booleans())
def test_a_form_at_one_batch_size_is_the_form(data, is_cold, splits_equal_heads):
    group = next(group for group in GROUPS if group.name == "decode_attention/bfloat16")
    parameters = replace(data.draw(parameters_of(group)), splits_equal_heads=splits_equal_heads)
    parameters = parameters.cold() if is_cold else parameters
    batch, context, heads, kv_heads = data.draw(shapes_of(group))
    longest = context + data.draw(st.integers(0, 100_000))
    shape, wait_s = (heads, kv_heads, 128), data.draw(st.sampled_from([0.0, 1e-10]))
    plain = decode_attention.timing(
        parameters, *H100, batch, context, *shape, longest, wait_s * (longest - context)
    )
    fast = decode_attention.at_batch(parameters, *H100, batch, *shape, wait_s)(context, longest)
    assert fast[0] == pytest.approx(plain.seconds, rel=1e-12)
    assert fast[1] == plain.is_memory_bound


class TestDecodeAttention:
    parameters = next(group for group in GROUPS if group.name == "decode_attention/bfloat16").starts[0]

    def rate(self, batch, context, kv_heads=1, **changes):
        """Share of the bandwidth that KV is read at."""
        seconds = decode_attention.seconds(
            replace(self.parameters, **changes), *H100, batch, context, 8 * kv_heads, kv_heads, 128
        )
        return batch * context * kv_heads * 512 / seconds / H100[1]

    def test_one_sequence_of_one_head_reads_slowly_and_many_read_fast(self):
        assert self.rate(1, 131072) < 0.5 * self.rate(32, 65536)

    def test_at_equal_tokens_more_sequences_can_be_faster(self):
        assert self.rate(4, 32768) > self.rate(1, 131072)

    def test_a_cold_cache_is_slower_for_small_kv_only(self):
        warm, cold = self.parameters, self.parameters.cold()
        small, large = (8, 4096, 8, 1, 128), (32, 65536, 8, 1, 128)
        assert decode_attention.seconds(cold, *H100, *small) > decode_attention.seconds(warm, *H100, *small)
        assert decode_attention.seconds(cold, *H100, *large) == decode_attention.seconds(warm, *H100, *large)

    def test_without_splits_one_long_sequence_takes_its_serial_time(self):
        unsplit = replace(self.parameters, splits_equal_heads=False)
        seconds = decode_attention.seconds(unsplit, *H100, 1, 131072, 8, 8, 128)
        assert seconds > 131072 * unsplit.token_s


class TestPrefillAttention:
    parameters = next(group for group in GROUPS if group.name == "prefill_attention/bfloat16").starts[0]

    def rate(self, chunk, heads, batch=1):
        """FLOP/s of the causal half."""
        seconds = prefill_attention.seconds(self.parameters, *H100, batch, chunk, heads, 8, 128)
        return batch * 2 * 128 * heads * chunk**2 / seconds

    def test_efficiency_grows_with_length_heads_and_batch(self):
        assert self.rate(512, 32) < self.rate(2048, 32) < self.rate(16384, 32) < H100[0]
        assert self.rate(1024, 8) < self.rate(1024, 32)
        assert self.rate(1024, 8) < self.rate(1024, 8, batch=16)
