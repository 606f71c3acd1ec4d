"""What a sweep varies: for each field its values, read from ``--set A=1,2,4 --set B=0.5:4:0.5``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import product
from math import prod
from typing import Any

from simkv.errors import ScenarioError
from simkv.load.document import parse_document
from simkv.load.faults import shown

MAX_POINTS = 100_000  # more is a slip of the keyboard: a range with a step too small
_NUMBER = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
_RANGE = re.compile(rf"({_NUMBER}):({_NUMBER})(?::({_NUMBER}))?")
_BRACKETS = {"[": "]", "{": "}"}

Grid = dict[str, list[Any]]


def parse_settings(settings: Sequence[str]) -> Grid:
    """Return the values of each field, in the order given; of two for one field the later holds.

    >>> parse_settings(["engine.block_size=16,32", "workload.request_rate=0.5:1.5:0.5"])
    {'engine.block_size': [16, 32], 'workload.request_rate': [0.5, 1.0, 1.5]}

    Raises ScenarioError with one line for each fault.
    """
    grid: Grid = {}
    faults: list[str] = []
    for setting in settings:
        field, equals, text = setting.partition("=")
        field = ".".join(key.strip() for key in field.split("."))
        if not equals or not all(field.split(".")):
            faults.append(f"--set: wanted field=value, such as engine.block_size=16,32, got {shown(setting)}")
            continue
        try:
            values = parse_values(text)
        except ScenarioError as error:
            faults += [f"--set: {field}: {fault}" for fault in error.faults]
            continue
        grid.pop(field, None)
        grid[field] = values
    if faults:
        raise ScenarioError(faults)
    return grid


def grid_of(fields: Mapping[str, Any], where: str) -> Grid:
    """Return the values of each field of a mapping: a list, text as after ``--set``, or one value.

    `where` stands before the field in faults.
    """
    grid: Grid = {}
    faults: list[str] = []
    for field, given in fields.items():
        if not all(key.strip() for key in field.split(".")):
            faults.append(f"{where}{field}: wanted the path of a field, such as engine.block_size")
        elif isinstance(given, str):
            try:
                grid[field] = parse_values(given)
            except ScenarioError as error:
                faults += [f"{where}{field}: {fault}" for fault in error.faults]
        elif isinstance(given, Iterable) and not isinstance(given, Mapping):
            grid[field] = list(given)
            if not grid[field]:
                faults.append(f"{where}{field}: wanted a list of values, got none")
        else:
            grid[field] = [given]
    if faults:
        raise ScenarioError(faults)
    return grid


def parse_values(text: str) -> list[Any]:
    """Return the YAML values of a comma list; ``start:stop:step`` stands for its numbers, `stop` included.

    Commas inside brackets, braces and quotes separate nothing here.

    >>> parse_values("1,2,8"), parse_values("0.1:0.3:0.1"), parse_values("{a: 1, b: 2}, [3, 4], 'x, y'")
    ([1, 2, 8], [0.1, 0.2, 0.3], [{'a': 1, 'b': 2}, [3, 4], 'x, y'])
    """
    values: list[Any] = []
    for item in _split(text):
        match = _RANGE.fullmatch(item)
        if match:
            values += _range(item, *match.groups())
        elif not item or item.startswith("#"):
            values.append(None)
        else:
            values.append(_yaml_value(item))
    if len(values) > MAX_POINTS:
        raise ScenarioError(f"wanted at most {MAX_POINTS:,} values, got {len(values):,}")
    return values


def _split(text: str) -> list[str]:
    """Cut at the commas that stand outside brackets, braces and quotes."""
    items: list[str] = []
    closing: list[str] = []
    start, quote = 0, ""
    for index, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"" and not text[start:index].strip(" [{,:"):
            quote = character  # only where a value may begin: it's is text
        elif character in "'\"" and closing:
            quote = character
        elif character in _BRACKETS:
            closing.append(_BRACKETS[character])
        elif closing and character == closing[-1]:
            closing.pop()
        elif character == "," and not closing:
            items.append(text[start:index])
            start = index + 1
    items.append(text[start:])
    return [item.strip() for item in items]


def _yaml_value(text: str) -> Any:
    try:
        return parse_document(text, "value").value
    except ScenarioError as error:
        raise ScenarioError([re.sub("^value(:[0-9]+)?: ", "", fault) for fault in error.faults]) from None


def _range(text: str, first: str, last: str, by: str | None) -> list[int | float]:
    if by is None:
        raise ScenarioError(f"wanted start:stop:step, such as {text}:1, got {shown(text)}")
    start, stop, step = Decimal(first), Decimal(last), Decimal(by)  # as written: 0.1 + 0.2 is 0.3
    try:
        num_steps = (stop - start) / step
    except ArithmeticError:  # a step of 0, or an exponent beyond all
        num_steps = Decimal(-1)
    if num_steps < 0:
        raise ScenarioError(f"wanted a step that leads from {first} to {last}, got {by}")
    if num_steps >= MAX_POINTS:
        raise ScenarioError(f"wanted at most {MAX_POINTS:,} values, got {num_steps + 1:,.0f} in {text}")
    are_ints = all(number.lstrip("+-").isdigit() for number in (first, last, by))
    return [(int if are_ints else float)(start + index * step) for index in range(int(num_steps) + 1)]


def combinations(grid: Grid) -> Iterator[dict[str, Any]]:
    """Yield every combination of the values, the last field varying fastest.

    >>> list(combinations({"a": [1, 2], "b": ["x"]}))
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'x'}]

    Raises ScenarioError if there are too many.
    """
    count = prod(len(values) for values in grid.values())
    if count > MAX_POINTS:
        raise ScenarioError(f"wanted a grid of at most {MAX_POINTS:,} points, got {count:,}")
    for values in product(*grid.values()):
        yield dict(zip(grid, values, strict=True))
