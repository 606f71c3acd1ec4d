"""Faults of a trace file, and the checks that all formats share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from simkv.errors import TraceError
from simkv.spec.lengths import MAX_LEN_TOKENS
from simkv.spec.workload import MAX_DURATION_S
from simkv.units import NS_PER_S

MAX_FAULTS = 20
TOKENS = "a whole number of tokens, 1 or more"
SECONDS = "seconds, 0 or more"
_MAX_DURATION_NS = round(MAX_DURATION_S * NS_PER_S)


class Faults:
    """Collects faults as ``path:line: column: wanted …, got …``; keeps the first `MAX_FAULTS`.

    num_skipped   failed requests, which are no fault but are left out
    """

    def __init__(self, path: Path):
        self.path = path
        self.lines: list[str] = []
        self.count = 0
        self.num_skipped = 0

    def add(self, line: int, column: str, wanted: str, got: str) -> None:
        """Note what is wrong in a column of a line."""
        self.count += 1
        if self.count <= MAX_FAULTS:
            self.lines.append(f"{self.path}:{line}: {column}: wanted {wanted}, got {got}")

    def error(self) -> TraceError:
        """Return the error that tells the faults."""
        more = self.count - len(self.lines)
        return TraceError([*self.lines, f"… and {more:,} more"] if more else self.lines)

    def num_tokens(self, line: int, column: str, count: int | None, got: object) -> int | None:
        """Return the count of tokens that `got` was read as, None after noting that it is none or too large."""
        if count is None or count < 1:
            self.add(line, column, TOKENS, shown_value(got))
        elif count > MAX_LEN_TOKENS:
            self.add(line, column, f"at most {MAX_LEN_TOKENS:,} tokens", shown_value(got))
        else:
            return count
        return None


class Arrivals:
    """Checks the arrival times of a trace: they neither go back nor lie beyond all bounds.

    from_first   times count from the first one: those of a clock, not of the trace
    """

    def __init__(self, faults: Faults, column: str, wanted: str, from_first: bool):
        self.faults = faults
        self.column = column
        self.wanted = wanted
        self.from_first = from_first
        self._origin_ns: int | None = None if from_first else 0
        self._last_ns: int | None = None
        self._last_got: object = None

    def check(self, line: int, arrival_ns: int | None, got: object) -> int | None:
        """Return nanoseconds from the start of the trace for what `got` was read as, None after noting a fault."""
        if arrival_ns is None:
            self.faults.add(line, self.column, self.wanted, shown_value(got))
            return None
        if self._last_ns is not None and arrival_ns < self._last_ns:
            wanted = f"a time not before {shown_value(self._last_got)} of the request above"
            hint = f"; sort the file by {self.column}"
            self.faults.add(line, self.column, wanted, f"{shown_value(got)}{hint}")
            return None
        if self._origin_ns is None:
            self._origin_ns = arrival_ns
        if arrival_ns - self._origin_ns > _MAX_DURATION_NS:
            after = "after the first request" if self.from_first else "after the start of the trace"
            wanted = f"at most {MAX_DURATION_S:,.0f} seconds {after}"
            self.faults.add(line, self.column, wanted, shown_value(got))
            return None
        self._last_ns, self._last_got = arrival_ns, got
        return arrival_ns - self._origin_ns


def decoded(file: BinaryIO) -> Iterator[str]:
    """Lines as text, decoded one by one so that a wrong byte is reported with its line."""
    encoding = "utf-8-sig"  # spreadsheets write a byte order mark
    for line in file:
        yield line.decode(encoding)
        encoding = "utf-8"


def add_not_utf8(faults: Faults, line: int, error: UnicodeDecodeError) -> None:
    """Note a byte that is no text."""
    byte = f"the byte 0x{error.object[error.start]:02x}"
    faults.add(line, "text", "UTF-8", f"{byte}; save the file as UTF-8")


def shown(text: str, limit: int = 40) -> str:
    """Return the text of a cell as a message quotes it."""
    return repr(text if len(text) <= limit else text[:limit] + "…") if text.strip() else "nothing"


def shown_value(value: object) -> str:
    """Return a JSON value or the text of a cell as a message quotes it."""
    if value is None or isinstance(value, str):
        return shown(value or "")
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 40 else text[:40] + "…"


def units_ns(value: Any, ns_per_unit: int) -> int | None:
    """Return a JSON number of seconds or milliseconds in nanoseconds, None if it is none of 0 or more."""
    if type(value) is int:  # exact; not a bool
        return value * ns_per_unit if value >= 0 else None
    if isinstance(value, float) and math.isfinite(value) and value >= 0:
        # The largest floats become integers first, for their product would be infinite.
        return round(value * ns_per_unit) if value < 1e200 else int(value) * ns_per_unit
    return None
