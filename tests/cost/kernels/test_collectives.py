"""Laws of collectives: more bytes never take less time, scalars and arrays agree, a ring is two half rings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.cost.kernels.collectives import (
    CUSTOM_MAX_BYTES,
    CustomParameters,
    RingParameters,
    by_size,
    custom_seconds,
    one_shot_max_bytes,
    power_sum,
    ring_seconds,
    send_recv_seconds,
    wire_bytes,
)

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def log_uniform(low, high):
    return st.floats(np.log(low), np.log(high)).map(np.exp).map(float)


SIZES = st.integers(2, 16)
BYTES = st.one_of(st.integers(1, 1 << 33), st.sampled_from([CUSTOM_MAX_BYTES, 256 * 1024, 512 * 1024]))
RATES = st.fixed_dictionaries({n: log_uniform(1e9, 1e12) for n in (2, 4, 8)})
RINGS = st.builds(
    RingParameters,
    latency_s=log_uniform(1e-6, 1e-4),
    hop_s=log_uniform(1e-8, 1e-5),
    bytes_per_s=RATES,
    sharpness=st.floats(0.4, 4.0),
    switch_s=log_uniform(1e-9, 1e-4),
    switch_hop_s=log_uniform(1e-9, 1e-5),
    switch_bytes=log_uniform(1e4, 1e8),
    switch_growth=st.floats(-1, 1),
)
SECONDS = log_uniform(1e-6, 1e-4)
CUSTOMS = st.builds(
    CustomParameters,
    latency_s=SECONDS,
    hop_s=log_uniform(1e-10, 1e-5),
    one_shot_bytes_per_s=log_uniform(1e9, 1e12),
    two_shot_latency_s=SECONDS,
    two_shot_hop_s=log_uniform(1e-10, 1e-5),
    two_shot_bytes_per_s=log_uniform(1e9, 1e12),
    large=RINGS,
    eager_s=st.fixed_dictionaries(dict.fromkeys((2, 4, 8), SECONDS)),
    eager_two_shot_s=st.fixed_dictionaries(dict.fromkeys((2, 4, 8), SECONDS)),
    eager_copy_bytes_per_s=log_uniform(1e11, 1e13),
)


@given(ring=RINGS, op=st.sampled_from(OPS), n=SIZES, num_bytes=BYTES, more=BYTES)
def test_rings_take_longer_for_more_bytes(ring, op, n, num_bytes, more):
    short = ring_seconds(ring, op, n, num_bytes)
    assert 0 < short < float("inf")
    assert ring_seconds(ring, op, n, num_bytes + more) >= short


@given(custom=CUSTOMS, n=st.sampled_from([2, 4, 6, 8]), num_bytes=BYTES, more=BYTES, in_graph=st.booleans())
def test_custom_all_reduce_takes_longer_for_more_bytes(custom, n, num_bytes, more, in_graph):
    short = custom_seconds(custom, n, num_bytes, in_graph)
    assert 0 < short < float("inf")
    assert custom_seconds(custom, n, num_bytes + more, in_graph) >= short


@given(custom=CUSTOMS, n=st.sampled_from([2, 4, 8]), num_bytes=BYTES)
def test_a_launch_without_graph_is_never_faster(custom, n, num_bytes):
    eager = custom_seconds(custom, n, num_bytes, in_graph=False)
    assert eager >= custom_seconds(custom, n, num_bytes) * (1 - 1e-12)


@given(ring=RINGS, n=SIZES, num_bytes=BYTES)
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(ring, n, num_bytes):
    halves = wire_bytes("reduce_scatter", n, num_bytes) + wire_bytes("all_gather", n, num_bytes)
    assert wire_bytes("all_reduce", n, num_bytes) == pytest.approx(halves)
    # so without latencies their times add up as well
    plain = RingParameters(0.0, 0.0, ring.bytes_per_s, 1.0)
    times = {op: ring_seconds(plain, op, n, num_bytes) for op in OPS}
    assert times["all_reduce"] == pytest.approx(times["reduce_scatter"] + times["all_gather"])


@given(ring=RINGS, op=st.sampled_from(OPS), points=st.lists(st.tuples(SIZES, BYTES), min_size=1, max_size=5))
def test_rings_of_arrays_are_those_of_scalars(ring, op, points):
    sizes, num_bytes = (np.array(column, float) for column in zip(*points, strict=True))
    expected = [ring_seconds(ring, op, *point) for point in points]
    np.testing.assert_allclose(ring_seconds(ring, op, sizes, num_bytes), expected, rtol=1e-9)


@given(
    custom=CUSTOMS, n=st.sampled_from([2, 4, 8]), sizes=st.lists(BYTES, min_size=1), in_graph=st.booleans()
)
def test_custom_all_reduce_of_an_array_is_that_of_scalars(custom, n, sizes, in_graph):
    expected = [custom_seconds(custom, n, size, in_graph) for size in sizes]
    found = custom_seconds(custom, n, np.array(sizes, float), in_graph)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@given(ring=RINGS, op=st.sampled_from(OPS), num_bytes=BYTES)
def test_a_group_of_one_does_not_communicate(ring, op, num_bytes):
    assert ring_seconds(ring, op, 1, num_bytes) == 0


@given(ring=RINGS, num_bytes=BYTES, more=BYTES)
def test_a_hand_off_takes_longer_for_more_bytes(ring, num_bytes, more):
    assert 0 < send_recv_seconds(ring, num_bytes) <= send_recv_seconds(ring, num_bytes + more)


def test_groups_without_a_rate_of_their_own_lie_between_their_neighbours():
    rates = {2: 100.0, 8: 50.0}
    assert by_size(rates, 2) == 100
    assert by_size(rates, 4) == 75
    assert by_size(rates, 16) == 50
    assert by_size(rates, 1) == 100


def test_pairs_never_take_two_shots():
    assert one_shot_max_bytes(2) == float("inf")
    assert [one_shot_max_bytes(n) for n in (4, 6, 8)] == [512 * 1024, 256 * 1024, 256 * 1024]


def test_power_sum_of_one_is_a_sum():
    assert power_sum(2.0, 3.0, 1.0) == 5.0
    assert power_sum(2.0, 3.0, 50.0) == pytest.approx(3.0, rel=1e-3)
