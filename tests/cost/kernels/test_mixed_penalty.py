"""Laws of the compact penalties: nothing added or lengthened saves time, and a part alone pays none."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simkv.cost.kernels.mixed_penalty import MixedPenalty, UnevenPenalty, mixed_seconds, uneven_seconds

PEAK, SMS = 989e12, 132
SECONDS = st.floats(0, 1e-2)
MIXED = st.builds(
    MixedPenalty,
    decode_factor=st.floats(1.0, 3.0),
    decode_floor_s=st.floats(0, 2e-5),
    idle_block_s=st.floats(0, 1e-6),
)
DECODES, CHUNK, HEADS = st.integers(0, 512), st.integers(1, 16_384), st.sampled_from([8, 16, 32, 64])


@given(
    p=MIXED, prefill_s=SECONDS, decode_s=SECONDS, n=DECODES, chunk=CHUNK, heads=HEADS, more=st.floats(0, 1e-3)
)
def test_nothing_added_beside_a_chunk_saves_time(p, prefill_s, decode_s, n, chunk, heads, more):
    seconds = mixed_seconds(p, prefill_s, decode_s, n, chunk, heads, SMS)
    assert seconds >= max(prefill_s, decode_s)
    for longer in (
        (prefill_s + more, decode_s, n, chunk),
        (prefill_s, decode_s + more, n, chunk),
        (prefill_s, decode_s, n + 1, chunk),
        (prefill_s, decode_s, n, chunk + 100),
    ):
        assert mixed_seconds(p, *longer, heads, SMS) >= seconds


@given(p=MIXED, prefill_s=SECONDS, chunk=CHUNK, heads=HEADS)
def test_a_chunk_alone_pays_nothing(p, prefill_s, chunk, heads):
    assert mixed_seconds(p, prefill_s, 0.0, 0, chunk, heads, SMS) == prefill_s


@given(n=st.integers(1, 512), mean=st.integers(1, 50_000), more=st.integers(0, 50_000))
def test_waiting_for_the_longest_takes_time_and_equal_contexts_take_none(n, mean, more):
    def wait_s(longest, num_decodes=n):
        return uneven_seconds(UnevenPenalty(), PEAK, SMS, num_decodes, mean, longest, 8, 128)

    assert wait_s(mean) == 0
    assert 0 <= wait_s(mean + more) <= wait_s(mean + more + 1)
    assert wait_s(mean + more, n + 1) >= wait_s(mean + more)


def test_arrays_give_what_scalars_give():
    n, longest = np.array([4.0, 64.0]), np.array([2_000.0, 9_000.0])
    found = uneven_seconds(UnevenPenalty(), PEAK, SMS, n, 1_000.0, longest, 8, 128)
    expected = [
        uneven_seconds(UnevenPenalty(), PEAK, SMS, a, 1_000, b, 8, 128)
        for a, b in zip(n, longest, strict=True)
    ]
    np.testing.assert_allclose(found, expected)
