"""Readers of public request traces."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

from simkv.errors import TraceError
from simkv.units import NS_PER_S, to_ns

MAX_FAULTS = 20

_TIMESTAMP_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_SECONDS_COLUMNS = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")
_LAYOUTS = f"{','.join(_TIMESTAMP_COLUMNS)} or {','.join(_SECONDS_COLUMNS)}"
# 2023-11-16 18:15:46.6805900, and 2024-05-10 00:00:00.009930+00:00 in the files of the year after
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", flags=re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TraceRow(NamedTuple):
    """One request of a trace: arrival in ns from the start of the trace, lengths in tokens."""

    arrival_ns: int
    num_prompt_tokens: int
    num_output_tokens: int


class _Faults:
    """Collects faults as ``path:line: column: wanted …, got …``; keeps the first `MAX_FAULTS`."""

    def __init__(self, path: Path):
        self.path = path
        self.lines: list[str] = []
        self.count = 0

    def add(self, line: int, column: str, wanted: str, got: str) -> None:
        self.count += 1
        if self.count <= MAX_FAULTS:
            self.lines.append(f"{self.path}:{line}: {column}: wanted {wanted}, got {got}")

    def error(self) -> TraceError:
        more = self.count - len(self.lines)
        return TraceError([*self.lines, f"… and {more:,} more"] if more else self.lines)


def read_azure(path: Path, max_rows: int | None = None) -> list[TraceRow]:
    """Read an Azure LLM inference trace (CSV), its first `max_rows` requests if given.

    Two column layouts are known; other columns may stand beside them:

    * ``TIMESTAMP,ContextTokens,GeneratedTokens``: as published in AzurePublicDataset (2023 and 2024), date
      and time with up to 9 decimals; the first request becomes time 0.
    * ``arrived_at,num_prefill_tokens,num_decode_tokens``: as prepared by Vidur, seconds, kept as given.

    Raises `TraceError` with a line per fault, the first 20 of them: a file that is missing, empty or not
    UTF-8, missing columns, anything but a number, lengths below 1, times that go backwards.
    """
    faults = _Faults(path)
    rows: list[TraceRow] = []
    try:
        with path.open("rb") as file:
            rows = _read_rows(file, faults, max_rows)
    except OSError as error:
        raise TraceError(f"{path}: wanted a trace file, got {error.strerror or error}") from None
    if faults.count:
        raise faults.error()
    return rows


def _read_rows(file: BinaryIO, faults: _Faults, max_rows: int | None) -> list[TraceRow]:
    """Return the rows that are right and add the others to `faults`."""
    reader = csv.reader(_decoded(file), strict=True)
    rows: list[TraceRow] = []
    columns = None
    try:
        header = [name.strip() for name in next(reader, [])]
        columns = _layout(header, faults)
        if columns is None:
            return []
        parse_row = _row_parser(header, columns, faults)
        num_read = 0
        for cells in reader:
            if not cells:
                continue
            row = parse_row(reader.line_num, cells)
            if row is not None:
                rows.append(row)
            num_read += 1
            if num_read == max_rows:
                break
        if num_read == 0:
            faults.add(reader.line_num + 1, columns[0], "at least one request", "the end of the file")
    except UnicodeDecodeError as error:
        byte = f"the byte 0x{error.object[error.start]:02x}"
        faults.add(reader.line_num + 1, "text", "UTF-8", f"{byte}; save the file as UTF-8")
    except csv.Error as error:
        faults.add(reader.line_num, "text", "comma-separated values", str(error))
    if rows and columns == _TIMESTAMP_COLUMNS:
        first_ns = rows[0].arrival_ns
        rows = [row._replace(arrival_ns=row.arrival_ns - first_ns) for row in rows]
    return rows


def _decoded(file: BinaryIO) -> Iterator[str]:
    """Lines as text, decoded one by one so that a wrong byte is reported with its line."""
    encoding = "utf-8-sig"  # spreadsheets write a byte order mark
    for line in file:
        yield line.decode(encoding)
        encoding = "utf-8"


def _layout(header: Sequence[str], faults: _Faults) -> tuple[str, str, str] | None:
    """Return the names of the arrival, prompt and output columns."""
    if not header:
        faults.add(1, "header", _LAYOUTS, "an empty line" if faults.path.stat().st_size else "an empty file")
        return None
    for columns in (_TIMESTAMP_COLUMNS, _SECONDS_COLUMNS):
        if set(columns) <= set(header):
            return columns
    faults.add(1, "header", _LAYOUTS, _shown(",".join(header), limit=200))
    return None


def _row_parser(
    header: Sequence[str], columns: tuple[str, str, str], faults: _Faults
) -> Callable[[int, list[str]], TraceRow | None]:
    """Return a function of a line number and its cells that checks them and remembers the last arrival."""
    num_cells = len(header)
    arrival, prompt, output = columns
    arrival_at, prompt_at, output_at = (header.index(name) for name in columns)
    is_timestamp = columns == _TIMESTAMP_COLUMNS
    parse_arrival = _timestamp_ns if is_timestamp else _seconds_ns
    wanted_arrival = "a time such as 2023-11-16 18:15:46.6805900" if is_timestamp else "seconds, 0 or more"
    last_ns, last_text = -(2**63), ""

    def parse_row(line: int, cells: list[str]) -> TraceRow | None:
        nonlocal last_ns, last_text
        if len(cells) != num_cells:
            faults.add(line, "row", f"{num_cells} columns", f"{len(cells)}")
            return None
        text = cells[arrival_at]
        arrival_ns = parse_arrival(text)
        if arrival_ns is None:
            faults.add(line, arrival, wanted_arrival, _shown(text))
        elif arrival_ns < last_ns:
            wanted = f"a time not before {last_text!r} of the request above"
            faults.add(line, arrival, wanted, f"{_shown(text)}; sort the file by {arrival}")
        else:
            last_ns, last_text = arrival_ns, text
        num_prompt_tokens = _num_tokens(cells[prompt_at])
        if num_prompt_tokens is None:
            faults.add(line, prompt, "a whole number of tokens, 1 or more", _shown(cells[prompt_at]))
        num_output_tokens = _num_tokens(cells[output_at])
        if num_output_tokens is None:
            faults.add(line, output, "a whole number of tokens, 1 or more", _shown(cells[output_at]))
        if arrival_ns is None or num_prompt_tokens is None or num_output_tokens is None:
            return None
        return TraceRow(arrival_ns, num_prompt_tokens, num_output_tokens)

    return parse_row


def _shown(text: str, limit: int = 40) -> str:
    return repr(text if len(text) <= limit else text[:limit] + "…") if text.strip() else "nothing"


def _num_tokens(text: str) -> int | None:
    """Return a count of tokens, None if it is none: int() alone would take '1_000' and '-3'."""
    text = text.strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        return None
    return int(text) or None


def _seconds_ns(text: str) -> int | None:
    """Return seconds in nanoseconds, None if they are not a finite number of 0 or more."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    if not (math.isfinite(seconds) and seconds >= 0) or "_" in text:
        return None
    return to_ns(seconds)


def _timestamp_ns(text: str) -> int | None:
    """Return a date and time as integer nanoseconds since 1970, None if it is none; without a zone it is UTC.

    datetime holds microseconds and the trace has ticks of 100 ns, so the decimals are read apart.
    """
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        return None
    to_the_second, decimals, zone = match.groups()
    try:
        moment = datetime.fromisoformat(to_the_second + (zone or "Z"))
    except ValueError:  # the 31st of February
        return None
    since = moment - _EPOCH
    fraction_ns = int(decimals.ljust(9, "0")) if decimals else 0
    return (since.days * 86_400 + since.seconds) * NS_PER_S + fraction_ns
