"""Laws of kernels that move bytes, and of the head."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simkv.cost.kernels.elementwise import ElementwiseParameters, HeadParameters, head_seconds, seconds

BANDWIDTH, PEAK = 1.8e12, 4e14
KERNELS = st.builds(
    ElementwiseParameters,
    floor_s=st.floats(1e-6, 3e-5),
    cached_bytes_per_s=st.floats(1e12, 2e13),
    cache_bytes=st.floats(1e6, 3e8),
    memory_efficiency=st.floats(0.4, 1.1),
    sharpness=st.floats(2, 12),
    bytes_per_element=st.sampled_from([4.0, 6.0, 8.0]),
)
HEADS = st.builds(
    HeadParameters,
    floor_s=st.floats(1e-7, 1e-4),
    memory_efficiency=st.floats(0.4, 1.1),
    efficiency=st.floats(0.2, 1.1),
)
TOKENS, WIDTH = st.integers(1, 65536), st.integers(1, 262144)


@given(p=KERNELS, tokens=TOKENS, width=WIDTH, more=st.integers(1, 9999))
def test_more_elements_take_longer(p, tokens, width, more):
    small = seconds(p, BANDWIDTH, tokens, width)
    assert p.floor_s <= small < float("inf")
    assert seconds(p, BANDWIDTH, tokens + more, width) >= small * (1 - 1e-12)
    assert seconds(p, BANDWIDTH, tokens, width + more) >= small * (1 - 1e-12)


@given(p=HEADS, tokens=TOKENS, n=WIDTH, k=WIDTH, more=st.integers(1, 9999))
def test_more_logits_take_longer(p, tokens, n, k, more):
    small = head_seconds(p, PEAK, BANDWIDTH, tokens, n, k)
    assert p.floor_s <= small < float("inf")
    for larger in ((tokens + more, n, k), (tokens, n + more, k), (tokens, n, k + more)):
        assert head_seconds(p, PEAK, BANDWIDTH, *larger) >= small * (1 - 1e-12)


@given(p=KERNELS, head=HEADS, points=st.lists(st.tuples(TOKENS, WIDTH), min_size=1, max_size=5))
def test_arrays_give_what_scalars_give(p, head, points):
    tokens, width = (np.array(column, float) for column in zip(*points, strict=True))
    expected = [seconds(p, BANDWIDTH, *point) for point in points]
    np.testing.assert_allclose(seconds(p, BANDWIDTH, tokens, width), expected, rtol=1e-9)
    expected = [head_seconds(head, PEAK, BANDWIDTH, *point, 4096) for point in points]
    np.testing.assert_allclose(head_seconds(head, PEAK, BANDWIDTH, tokens, width, 4096), expected, rtol=1e-9)


def test_what_outgrows_the_cache_streams_from_memory():
    p = ElementwiseParameters(2e-6, 6e12, 8e7, 0.9, 6.0, 4.0)
    cached, streamed = (seconds(p, BANDWIDTH, tokens, 4096) - 2e-6 for tokens in (1024, 65536))
    assert cached * 6e12 / (1024 * 4096 * 4) < 1.01
    assert streamed * 0.9 * BANDWIDTH / (65536 * 4096 * 4) > 0.99
