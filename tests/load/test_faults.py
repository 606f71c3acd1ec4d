"""pydantic's errors in our words: where, which key, what was wanted, what was got, what to do."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from simkv.load.faults import faults_of, shown
from simkv.spec.base import IntTuple, PositiveInt, Spec, as_tuple
from simkv.spec.workload import Length


class Inner(Spec):
    depth: PositiveInt = 1
    width: Annotated[int, Field(ge=0, le=10_000)] = 0


class Outer(Spec):
    count: int = 0
    ratio: Annotated[float, Field(ge=0, lt=1)] = 0.0
    is_on: bool = False
    word: str = "x"
    kind: Literal["red", "green"] = "red"
    sizes: IntTuple = ()
    inner: Inner = Inner()
    maybe: Inner | None = None
    wrapped: Annotated[Inner, BeforeValidator(lambda value: value)] | None = None
    table: dict[str, Inner] = Field(default_factory=dict)
    row: Annotated[tuple[Inner, ...], BeforeValidator(as_tuple)] = ()
    length: Length | None = None

    @model_validator(mode="after")
    def _check(self) -> Outer:
        if self.count == 13:
            raise ValueError("count: expected another number, got 13")
        if self.count == 14:
            raise ValueError("expected no 14")
        if self.count == 15:
            raise ValueError("nothing: is called 15")
        return self


def faults(values: dict[str, Any], prefix: tuple[str, ...] = ()) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(values)
    return faults_of(caught.value, Outer, prefix, lambda path: f"f:{len(path)}")


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"count": True}, "f:1: count: wanted an integer, got true"),
        ({"count": "8"}, "f:1: count: wanted an integer, got '8'"),
        ({"count": None}, "f:1: count: wanted an integer, got nothing"),
        ({"count": [8]}, "f:1: count: wanted an integer, got [8]"),
        ({"count": 8.5}, "f:1: count: wanted an integer, got 8.5"),
        ({"count": 1e3}, "f:1: count: wanted an integer, got 1000.0; write 1000"),
        ({"count": 1e300}, "f:1: count: wanted an integer, got 1e+300"),
        ({"count": math.inf}, "f:1: count: wanted an integer, got .inf"),
        ({"ratio": "8"}, "f:1: ratio: wanted a number, got '8'"),
        ({"ratio": False}, "f:1: ratio: wanted a number, got false"),
        ({"ratio": math.nan}, "f:1: ratio: wanted a finite number, got .nan"),
        ({"ratio": -math.inf}, "f:1: ratio: wanted a finite number, got -.inf"),
        ({"ratio": -0.5}, "f:1: ratio: wanted a number at least 0, got -0.5"),
        ({"ratio": 1}, "f:1: ratio: wanted a number below 1, got 1"),
        ({"is_on": 1}, "f:1: is_on: wanted true or false, got 1"),
        ({"is_on": "yes"}, "f:1: is_on: wanted true or false, got 'yes'"),
        ({"word": 7}, "f:1: word: wanted text, got 7"),
        ({"word": 0.3}, "f:1: word: wanted text, got 0.3; put it in quotes"),
        ({"kind": "gren"}, "f:1: kind: wanted red or green, got 'gren'; did you mean 'green'?"),
        ({"kind": "blue"}, "f:1: kind: wanted red or green, got 'blue'"),
        ({"kind": 3}, "f:1: kind: wanted red or green, got 3"),
        ({"sizes": "1,2"}, "f:1: sizes: wanted a list, got '1,2'"),
        ({"sizes": [1, 0]}, "f:2: sizes.1: wanted a number above 0, got 0"),
        ({"inner": 3}, "f:1: inner: wanted a mapping, got 3"),
        ({"table": []}, "f:1: table: wanted a mapping, got []"),
        ({"inner": {"depth": 0}}, "f:2: inner.depth: wanted a number above 0, got 0"),
        ({"inner": {"width": 10_001}}, "f:2: inner.width: wanted a number at most 10,000, got 10001"),
        ({"cuont": 1}, "f:1: cuont: unknown key; did you mean 'count'?"),
        ({"inner": {"dept": 1}}, "f:2: inner.dept: unknown key; did you mean 'depth'?"),
        ({"inner": {"xyz": 1}}, "f:2: inner.xyz: unknown key; known: depth, width"),
        ({"maybe": {"dept": 1}}, "f:2: maybe.dept: unknown key; did you mean 'depth'?"),
        ({"wrapped": {"dept": 1}}, "f:2: wrapped.dept: unknown key; did you mean 'depth'?"),
        ({"table": {"a": {"dept": 1}}}, "f:3: table.a.dept: unknown key"),
        ({"row": [{}, {"dept": 1}]}, "f:3: row.1.dept: unknown key; did you mean 'depth'?"),
        ({"row": [3]}, "f:2: row.0: wanted a mapping, got 3"),
        ({"a.b": 1}, "f:1: 'a.b': unknown key; known: " + ", ".join(Outer.model_fields)),
        ({"count": 13}, "f:1: count: wanted another number, got 13"),
        ({"count": 14}, "f:0: wanted no 14"),
        ({"count": 15}, "f:0: nothing: is called 15"),
        ({"length": 0}, "f:1: length: wanted a number above 0, got 0"),
        ({"length": {"fixed": -1}}, "f:1: length: wanted a number above 0, got -1"),
        (
            {"length": 1.5},
            "f:1: length: wanted a number of tokens, {uniform: {min: …, max: …}}, "
            "{lognormal: {median: …, p99: …}}, {quantiles: {0: …, 1: …}} or {preset: …}, got 1.5",
        ),
        ({"length": {"uniform": {"min": 3, "max": 2}}}, "f:3: length.uniform.min: 3 is above max 2"),
        ({"length": {"lognrmal": {}}}, "f:2: length.lognrmal: unknown key; did you mean 'lognormal'?"),
    ],
)
def test_one_fault(values: dict[str, Any], fault: str) -> None:
    assert faults(values) == [fault]


def test_every_fault_at_once_under_a_prefix() -> None:
    assert faults({"count": "a", "inner": {"depth": 0, "x": 1}, "y": 2}, ("outer",)) == [
        "f:2: outer.count: wanted an integer, got 'a'",
        "f:3: outer.inner.depth: wanted a number above 0, got 0",
        "f:3: outer.inner.x: unknown key; known: depth, width",
        "f:2: outer.y: unknown key; known: " + ", ".join(Outer.model_fields),
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nothing"), (True, "true"), (False, "false"), (math.nan, ".nan"), (math.inf, ".inf"),
        (-math.inf, "-.inf"), (8, "8"), (8.0, "8.0"), ("8", "'8'"), ("None", "'None'"), ({"a": 1}, "{'a': 1}"),
        ("a\nb", r"'a\nb'"), ("x" * 100, "'" + "x" * 56 + "…"),
    ],
)  # fmt: skip
def test_values_are_shown_as_yaml_writes_them(value: object, text: str) -> None:
    assert shown(value) == text


@given(st.recursive(st.floats() | st.text() | st.none() | st.integers(), st.lists))
def test_any_value_is_shown_in_a_short_line(value: object) -> None:
    assert 1 <= len(shown(value)) <= 60
    assert shown(value).isprintable()
