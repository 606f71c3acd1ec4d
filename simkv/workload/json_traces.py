"""Readers of traces with a JSON object on every line: Mooncake, and lengths under the usual names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

from simkv.units import NS_PER_S, ceil_div
from simkv.workload.faults import (
    SECONDS,
    Arrivals,
    Faults,
    add_not_utf8,
    decoded,
    shown,
    shown_value,
    units_ns,
)
from simkv.workload.traces import TraceRow

HASH_BLOCK_TOKENS = 512  # of Mooncake's traces
MAX_HASH_ID = 2**64 - 1
_NS_PER_MS = 1_000_000

_ARRIVAL_KEYS = ("arrival_s", "arrived_at", "timestamp_s")
_PROMPT_KEYS = ("prompt_len", "input_len", "input_length", "num_prefill_tokens")
_OUTPUT_KEYS = ("output_len", "output_length", "num_decode_tokens")

Row = Mapping[str, Any]


def read_mooncake(file: BinaryIO, faults: Faults) -> Iterator[TraceRow | None]:
    """Yield the rows of a Mooncake trace: ``timestamp`` (ms), ``input_length``, ``output_length``, ``hash_ids``.

    A hash id stands for 512 tokens of the prompt and all before them; the last one may stand for fewer.
    """
    arrivals = Arrivals(faults, "timestamp", "milliseconds, 0 or more", from_first=False)

    def parse(line: int, row: Row) -> TraceRow | None:
        got = row.get("timestamp")
        arrival_ns = arrivals.check(line, units_ns(got, _NS_PER_MS), got)
        num_prompt_tokens = _num_tokens(faults, line, row, ("input_length",))
        num_output_tokens = _num_tokens(faults, line, row, ("output_length",))
        hash_ids = _hash_ids(faults, line, row.get("hash_ids"), num_prompt_tokens)
        if arrival_ns is None or num_prompt_tokens is None or num_output_tokens is None or hash_ids is None:
            return None
        return TraceRow(arrival_ns, num_prompt_tokens, num_output_tokens, hash_ids)

    return _read(file, faults, "timestamp", parse)


def read_jsonl(file: BinaryIO, faults: Faults) -> Iterator[TraceRow | None]:
    """Yield rows of arrival, prompt length and output length, each under one of several names.

    ``arrival_s`` (or ``arrived_at``, ``timestamp_s``; seconds, kept as given), ``prompt_len`` (``input_len``,
    ``input_length``, ``num_prefill_tokens``), ``output_len`` (``output_length``, ``num_decode_tokens``) and,
    if given, ``priority``; other keys do not matter. Of two names for one thing the first listed counts.
    """
    arrivals = Arrivals(faults, _ARRIVAL_KEYS[0], SECONDS, from_first=False)

    def parse(line: int, row: Row) -> TraceRow | None:
        arrivals.column, got = _find(row, _ARRIVAL_KEYS)
        arrival_ns = arrivals.check(line, units_ns(got, NS_PER_S), got)
        num_prompt_tokens = _num_tokens(faults, line, row, _PROMPT_KEYS)
        num_output_tokens = _num_tokens(faults, line, row, _OUTPUT_KEYS)
        priority = row.get("priority", 0)
        if type(priority) is not int or abs(priority) >= 2**63:
            faults.add(line, "priority", "a whole number", shown_value(priority))
            return None
        if arrival_ns is None or num_prompt_tokens is None or num_output_tokens is None:
            return None
        return TraceRow(arrival_ns, num_prompt_tokens, num_output_tokens, priority=priority)

    return _read(file, faults, _ARRIVAL_KEYS[0], parse)


def _read(
    file: BinaryIO, faults: Faults, first_key: str, parse: Callable[[int, Row], TraceRow | None]
) -> Iterator[TraceRow | None]:
    line = 0
    is_empty = True
    try:
        for line, text in enumerate(decoded(file), start=1):
            if not text.strip():
                continue
            is_empty = False
            row = _parse_object(text)
            if isinstance(row, dict):
                yield parse(line, row)
            else:
                faults.add(line, "row", "a JSON object", row)
                yield None
    except UnicodeDecodeError as error:
        add_not_utf8(faults, line + 1, error)
        return
    if is_empty:
        faults.add(
            line + 1, first_key, "at least one request", "the end of the file" if line else "an empty file"
        )


def _parse_object(text: str) -> dict[str, Any] | str:
    """Return the object that a line holds, or how a message shows what it holds instead."""
    try:
        value = json.loads(text.rstrip())
    except json.JSONDecodeError as error:
        return f"{shown(text.strip())}: {error.msg} at column {error.colno}"
    except (ValueError, RecursionError):  # an integer of thousands of digits; brackets by the thousand
        return shown(text.strip())
    return value if isinstance(value, dict) else shown_value(value)


def _find(row: Row, keys: tuple[str, ...]) -> tuple[str, Any]:
    """Return the first of `keys` that the row has and its value; the first of all if it has none."""
    for key in keys:
        if key in row:
            return key, row[key]
    return keys[0], None


def _num_tokens(faults: Faults, line: int, row: Row, keys: tuple[str, ...]) -> int | None:
    key, value = _find(row, keys)
    return faults.num_tokens(line, key, value if type(value) is int else None, value)


def _hash_ids(faults: Faults, line: int, value: Any, num_prompt_tokens: int | None) -> tuple[int, ...] | None:
    """Return the ids, None after noting that they are wrong or not as many as the prompt needs."""
    if not isinstance(value, list) or set(map(type, value)) - {int}:
        got = shown_value(value)
        if isinstance(value, list):
            got = f"{shown_value(next(item for item in value if type(item) is not int))} in it"
        faults.add(line, "hash_ids", "a list of whole numbers", got)
        return None
    wrong = next((item for item in value if not 0 <= item <= MAX_HASH_ID), None)
    if wrong is not None:
        faults.add(line, "hash_ids", "numbers from 0 to 2^64 − 1", f"{shown_value(wrong)} in it")
        return None
    if num_prompt_tokens is None:
        return None
    wanted = ceil_div(num_prompt_tokens, HASH_BLOCK_TOKENS)
    if len(value) != wanted:
        ids = f"{wanted} ids, one for each {HASH_BLOCK_TOKENS} of {num_prompt_tokens} tokens"
        faults.add(line, "hash_ids", ids, f"{len(value)}")
        return None
    return tuple(value)
