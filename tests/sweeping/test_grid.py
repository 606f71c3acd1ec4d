from decimal import Decimal
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.errors import ScenarioError
from simkv.sweeping.grid import combinations, grid_of, parse_settings, parse_values

NUMBERS = st.decimals(-1000, 1000, places=3)


@given(NUMBERS, st.integers(0, 200), st.decimals("0.001", 10, places=3))
def test_a_range_has_both_ends_and_every_step_as_written(start, num_steps, step):
    stop = start + num_steps * step
    values = parse_values(f"{start}:{stop}:{step}")
    assert values == [float(start + index * step) for index in range(num_steps + 1)]
    assert parse_values(f"{stop}:{start}:-{step}") == (values[::-1] if num_steps else values)


@given(st.integers(-1000, 1000), st.integers(0, 1000), st.integers(1, 50))
def test_a_range_of_integers_is_that_of_python_with_its_end(start, width, step):
    values = parse_values(f"{start}:{start + width}:{step}")
    assert values == list(range(start, start + width + 1, step))
    assert all(type(value) is int for value in values)


@given(NUMBERS, NUMBERS.filter(bool), st.decimals("0.02", 10, places=3))
def test_a_range_never_goes_beyond_its_end(start, width, step):
    stop = start + abs(width)
    last = Decimal(str(parse_values(f"{start}:{stop}:{step}")[-1]))
    assert stop - step < last <= stop


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,2,4", [1, 2, 4]),
        ("auto, fp8", ["auto", "fp8"]),
        ("0.5:2:0.5", [0.5, 1.0, 1.5, 2.0]),
        ("1,2:4:1,16", [1, 2, 3, 4, 16]),
        ("1e-3:3e-3:1e-3", [0.001, 0.002, 0.003]),
        ("{a: 1, b: [2, 3]},{a: 4}", [{"a": 1, "b": [2, 3]}, {"a": 4}]),
        ("[1, 2],[3, 4]", [[1, 2], [3, 4]]),
        ("'a, b',\"c, d\",e", ["a, b", "c, d", "e"]),
        ("{a: 'x, }', b: 2},3", [{"a": "x, }", "b": 2}, 3]),
        ("it's,that's", ["it's", "that's"]),
        ("'1:3:1'", ["1:3:1"]),
        ("a:b:c", ["a:b:c"]),
        ("", [None]),
        ("null,true", [None, True]),
    ],
)
def test_values(text, values):
    assert parse_values(text) == values


@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        ("x", "--set: wanted field=value, such as engine.block_size=16,32, got 'x'"),
        ("a..b=1", "--set: wanted field=value, such as engine.block_size=16,32, got 'a..b=1'"),
        ("x=1:8", "--set: x: wanted start:stop:step, such as 1:8:1, got '1:8'"),
        ("x=1:8:0", "--set: x: wanted a step that leads from 1 to 8, got 0"),
        ("x=8:1:1", "--set: x: wanted a step that leads from 8 to 1, got 1"),
        ("x=0:1:1e-9", "--set: x: wanted at most 100,000 values, got 1,000,000,001 in 0:1:1e-9"),
        ("x=1,{a: 1", "--set: x: not YAML: did not find expected ',' or '}'"),
        ("x=0:1:1e-9999999", "--set: x: wanted a step that leads from 0 to 1, got 1e-9999999"),
    ],
)
def test_faults_of_settings(setting, fault):
    with pytest.raises(ScenarioError) as caught:
        parse_settings([setting])
    assert caught.value.faults == (fault,)


def test_all_faults_at_once():
    with pytest.raises(ScenarioError) as caught:
        parse_settings(["x", "y=1:2", "z=1"])
    assert len(caught.value.faults) == 2


def test_of_two_settings_of_a_field_the_later_holds():
    assert parse_settings(["a=1,2", "b=3", "a = 4"]) == {"b": [3], "a": [4]}


def test_a_grid_takes_lists_text_and_single_values():
    given_ = {"a": [1, 2], "b": "1:3:1", "c": 5, "d": {"x": 1}, "e": range(2), "f": "fp8"}
    assert grid_of(given_, "") == {
        "a": [1, 2], "b": [1, 2, 3], "c": [5], "d": [{"x": 1}], "e": [0, 1], "f": ["fp8"],
    }  # fmt: skip
    with pytest.raises(ScenarioError) as caught:
        grid_of({"a": [], "": 1, "b": "1:2"}, "f.yaml:3: sweep.grid.")
    assert caught.value.faults == (
        "f.yaml:3: sweep.grid.a: wanted a list of values, got none",
        "f.yaml:3: sweep.grid.: wanted the path of a field, such as engine.block_size",
        "f.yaml:3: sweep.grid.b: wanted start:stop:step, such as 1:2:1, got '1:2'",
    )


@given(
    st.dictionaries(
        st.sampled_from("abcd"), st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=1, max_size=4
    )
)
def test_the_last_field_varies_fastest_and_every_combination_is_there_once(grid):
    points = list(combinations(grid))
    assert [tuple(point.values()) for point in points] == list(product(*grid.values()))
    assert all(list(point) == list(grid) for point in points)


def test_too_many_points():
    with pytest.raises(ScenarioError, match="wanted a grid of at most 100,000 points, got 1,000,000"):
        list(combinations({"a": list(range(1000)), "b": list(range(1000))}))
