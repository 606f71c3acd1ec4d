import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.spec.workload import LengthSpec, LognormalLen, UniformLen
from simkv.workload import sample_lengths, stream

LENGTHS = st.integers(1, 200_000)


@given(LENGTHS, st.integers(0, 50))
def test_fixed_is_the_same_every_time_and_draws_nothing(length, n):
    rng, untouched = stream(0, "x"), stream(0, "x")
    assert sample_lengths(LengthSpec(fixed=length), n, rng) == [length] * n
    assert rng.random() == untouched.random()


@given(LENGTHS, LENGTHS, st.integers(0, 2**32))
def test_uniform_stays_between_its_bounds(a, b, seed):
    low, high = sorted((a, b))
    lengths = sample_lengths(LengthSpec(uniform=UniformLen(min=low, max=high)), 50, stream(seed, "x"))
    assert all(low <= length <= high and type(length) is int for length in lengths)


def test_uniform_reaches_both_bounds():
    lengths = sample_lengths(LengthSpec(uniform=UniformLen(min=3, max=5)), 200, stream(0, "x"))
    assert set(lengths) == {3, 4, 5}


@given(st.floats(0.01, 1e6), st.floats(1, 100), st.none() | LENGTHS, st.integers(0, 2**32))
def test_lognormal_is_at_least_1_and_at_most_max(median, ratio, longest, seed):
    spec = LengthSpec(lognormal=LognormalLen(median=median, p99=median * ratio, max=longest))
    lengths = sample_lengths(spec, 50, stream(seed, "x"))
    assert all(1 <= length <= (longest or float("inf")) and type(length) is int for length in lengths)


def test_lognormal_has_the_median_and_p99_asked_for():
    spec = LengthSpec(lognormal=LognormalLen(median=60_000.0, p99=125_000.0))
    lengths = sample_lengths(spec, 200_000, stream(0, "x"))
    assert np.median(lengths) == pytest.approx(60_000, rel=0.01)
    assert np.percentile(lengths, 99) == pytest.approx(125_000, rel=0.01)


def test_lognormal_without_spread_is_its_median():
    spec = LengthSpec(lognormal=LognormalLen(median=700.4, p99=700.4))
    assert sample_lengths(spec, 3, stream(0, "x")) == [700, 700, 700]


@pytest.mark.parametrize("given_", [{}, {"fixed": None}, {"fixed": 3, "uniform": {"min": 1, "max": 2}}])
def test_a_length_is_exactly_one_distribution(given_):
    with pytest.raises(ValueError, match="expected exactly one of a number, uniform"):
        LengthSpec.model_validate(given_)
