import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.results.stats import describe_ms, weighted_percentiles

PERCENTILES = st.lists(st.floats(0, 100), min_size=1, max_size=5)
GROUPS = st.lists(st.tuples(st.integers(0, 10**13), st.integers(0, 40)), min_size=1, max_size=40).filter(
    lambda groups: sum(count for _, count in groups) > 0
)


def expanded(groups):
    values, counts = (np.array(column, dtype=np.int64) for column in zip(*groups, strict=True))
    return values, counts, np.repeat(values, counts)


@given(GROUPS, PERCENTILES)
def test_weighted_percentiles_are_those_of_the_expanded_list(groups, percentiles):
    values, counts, every = expanded(groups)
    assert weighted_percentiles(values, counts, percentiles) == np.percentile(every, percentiles).tolist()


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=60), PERCENTILES)
def test_unweighted_percentiles_of_floats_are_numpys(values, percentiles):
    ones = np.ones(len(values), dtype=np.int64)
    found = weighted_percentiles(np.array(values), ones, percentiles)
    assert found == np.percentile(values, percentiles).tolist()


@given(GROUPS)
def test_mean_and_std_are_those_of_the_expanded_list(groups):
    values, counts, every = expanded(groups)
    found = describe_ms("itl", values, counts)
    assert found["mean_itl_ms"] == pytest.approx(np.mean(every) / 1e6)
    assert found["std_itl_ms"] == pytest.approx(np.std(every) / 1e6, abs=1e-6)
    assert found["median_itl_ms"] == found["p50_itl_ms"] == pytest.approx(np.median(every) / 1e6)


@given(GROUPS, st.randoms())
def test_the_order_of_the_groups_does_not_matter_to_the_last_bit(groups, random):
    values, counts, _ = expanded(groups)
    before = describe_ms("itl", values, counts)
    random.shuffle(groups)
    values, counts, _ = expanded(groups)
    assert describe_ms("itl", values, counts) == before


def test_a_metric_of_nothing_is_zero():
    empty = np.zeros(0, dtype=np.int64)
    assert set(describe_ms("ttft", empty).values()) == {0.0}
    assert weighted_percentiles(np.array([5]), np.array([0]), [50, 99]) == [0.0, 0.0]
