import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simkv.sweeping.find import MAX_RUNS, Range, find_limit

POSITIVE = st.floats(1e-3, 1e3)


@given(POSITIVE, st.floats(1 / 30, 30), st.sampled_from([0.02, 0.025, 0.05]), st.booleans())
def test_the_value_meets_the_limits_and_the_next_one_does_not(limit, factor, tolerance, is_max):
    tried = []

    def meets(value):
        tried.append(value)
        return value <= limit if is_max else value >= limit

    found = find_limit(meets, Range(start=limit * factor), is_max=is_max, tolerance=tolerance)
    assert meets(found.value)
    assert not meets(found.fails_at)
    low, high = sorted((found.value, found.fails_at))
    assert low < high <= low * (1 + tolerance)
    assert found.num_runs == len(tried) - 2 <= MAX_RUNS
    assert len(set(tried[:-2])) == found.num_runs, "a value was tried twice"


@given(st.integers(1, 5000), st.integers(1, 5000), st.booleans())
@example(1, 1, True)
@example(1, 5000, True)
def test_integers(limit, start, is_max):
    found = find_limit(
        lambda value: value <= limit if is_max else value >= limit, Range(start, is_int=True), is_max=is_max
    )
    assert isinstance(found.value, int)
    assert found.value <= limit if is_max else found.value >= limit
    if found.fails_at is None:
        assert (limit, is_max) == (1, False)  # everything meets: the search ends at the smallest integer
    else:
        low, high = sorted((found.value, found.fails_at))
        assert high - low == 1 or high <= low * 1.025


@given(POSITIVE, POSITIVE, st.booleans())
def test_nothing_is_tried_beyond_the_bounds(start, limit, is_max):
    low, high = 0.1, 10.0
    tried = []

    def meets(value):
        tried.append(value)
        return value <= limit if is_max else value >= limit

    found = find_limit(meets, Range(start, low, high), is_max=is_max)
    assert all(low <= value <= high for value in tried)
    hardest, easiest = (high, low) if is_max else (low, high)
    if found.value is None:
        assert easiest in tried
    elif found.fails_at is None:
        assert found.value == hardest


@given(st.floats(0.1, 10), st.floats(0.01, 20), POSITIVE)
def test_a_ceiling_is_never_tried_and_counts_as_failing(ceiling, start, limit):
    tried = []

    def meets(value):
        tried.append(value)
        return value <= limit

    found = find_limit(meets, Range(start, ceiling=ceiling))
    assert all(value < ceiling for value in tried)
    if limit >= ceiling:
        assert found.fails_at == ceiling
        assert found.value * 1.025 >= ceiling


def test_a_bound_below_the_ceiling_is_reached():
    assert find_limit(lambda value: True, Range(1.0, high=1.5, ceiling=9.0)).value == 1.5


@pytest.mark.parametrize("is_max", [True, False])
def test_it_ends_where_everything_or_nothing_meets(is_max):
    everything = find_limit(lambda value: True, Range(1.0), is_max=is_max)
    assert (everything.value, everything.fails_at) == (2.0 ** (15 if is_max else -15), None) or (
        everything.value == pytest.approx(2.0**-15, rel=1e-4)
    )
    nothing = find_limit(lambda value: False, Range(1.0), is_max=is_max)
    assert nothing.value is None
    assert max(everything.num_runs, nothing.num_runs) <= 6


@given(st.lists(st.booleans(), min_size=MAX_RUNS, max_size=MAX_RUNS))
def test_it_ends_whatever_the_answers_and_its_value_has_met(answers):
    said = {}

    def meets(value):
        said[value] = answers[len(said)]
        return said[value]

    found = find_limit(meets, Range(1.0))
    assert found.value is None or said[found.value]
    assert found.fails_at is None or not said[found.fails_at]
