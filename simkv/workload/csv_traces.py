"""Readers of traces as comma-separated values: Azure and BurstGPT."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import BinaryIO, NamedTuple

from simkv.units import NS_PER_S
from simkv.workload.faults import SECONDS, Arrivals, Faults, add_not_utf8, decoded, shown, units_ns
from simkv.workload.traces import TraceRow


class Layout(NamedTuple):
    """The columns of a format, and how its times are written.

    parse_arrival_ns   nanoseconds from the text of a cell, None if it is no time
    from_first         the first request comes at 0, whatever the clock says
    has_failures       a request without outputs failed, and is left out
    """

    arrival: str
    prompt: str
    output: str
    wanted_arrival: str
    parse_arrival_ns: Callable[[str], int | None]
    from_first: bool
    has_failures: bool = False

    @property
    def columns(self) -> tuple[str, str, str]:
        """The columns that a file must have."""
        return self.arrival, self.prompt, self.output


def read_azure(file: BinaryIO, faults: Faults) -> Iterator[TraceRow | None]:
    """Yield the rows of an Azure LLM inference trace.

    Two column layouts are known; other columns may stand beside them:

    * ``TIMESTAMP,ContextTokens,GeneratedTokens``: as published in AzurePublicDataset (2023 and 2024), date
      and time with up to 9 decimals; the first request becomes time 0.
    * ``arrived_at,num_prefill_tokens,num_decode_tokens``: as prepared by Vidur, seconds, kept as given.
    """
    return _read(file, faults, _AZURE)


def read_burstgpt(file: BinaryIO, faults: Faults) -> Iterator[TraceRow | None]:
    """Yield the rows of a BurstGPT trace; those without response tokens failed, and are skipped and counted.

    Columns ``Timestamp,Request tokens,Response tokens`` (seconds, tokens); Model, Total tokens, Log Type and
    the Session ID and Elapsed time of later files do not matter. The second file begins two months after the
    first, so the first request becomes time 0.
    """
    return _read(file, faults, _BURSTGPT)


def _read(file: BinaryIO, faults: Faults, layouts: Sequence[Layout]) -> Iterator[TraceRow | None]:
    reader = csv.reader(decoded(file), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        layout = _layout(header, layouts, faults)
        if layout is None:
            return
        parse_row = _row_parser(header, layout, faults)
        is_empty = True
        for cells in reader:
            if not cells:
                continue
            num_skipped = faults.num_skipped
            row = parse_row(reader.line_num, cells)
            if faults.num_skipped == num_skipped:
                is_empty = False
                yield row
        if is_empty:
            got = "failed ones only" if faults.num_skipped else "the end of the file"
            faults.add(reader.line_num + 1, layout.arrival, "at least one request", got)
    except UnicodeDecodeError as error:
        add_not_utf8(faults, reader.line_num + 1, error)
    except csv.Error as error:
        faults.add(reader.line_num, "text", "comma-separated values", str(error))


def _layout(header: Sequence[str], layouts: Sequence[Layout], faults: Faults) -> Layout | None:
    """Return the layout whose columns the file has."""
    wanted = " or ".join(",".join(layout.columns) for layout in layouts)
    if not header:
        faults.add(1, "header", wanted, "an empty line" if faults.path.stat().st_size else "an empty file")
        return None
    for layout in layouts:
        if set(layout.columns) <= set(header):
            return layout
    faults.add(1, "header", wanted, shown(",".join(header), limit=200))
    return None


def _row_parser(
    header: Sequence[str], layout: Layout, faults: Faults
) -> Callable[[int, list[str]], TraceRow | None]:
    """Return a function of a line number and its cells that checks them against the line before."""
    num_cells = len(header)
    arrival_at, prompt_at, output_at = (header.index(name) for name in layout.columns)
    arrivals = Arrivals(faults, layout.arrival, layout.wanted_arrival, layout.from_first)

    def parse_row(line: int, cells: list[str]) -> TraceRow | None:
        if len(cells) != num_cells:
            faults.add(line, "row", f"{num_cells} columns", f"{len(cells)}")
            return None
        text = cells[output_at]
        num_outputs = _count(text)
        if layout.has_failures and num_outputs == 0:
            faults.num_skipped += 1
            return None
        arrival = cells[arrival_at]
        arrival_ns = arrivals.check(line, layout.parse_arrival_ns(arrival), arrival)
        prompt = cells[prompt_at]
        num_prompt_tokens = faults.num_tokens(line, layout.prompt, _count(prompt), prompt)
        num_output_tokens = faults.num_tokens(line, layout.output, num_outputs, text)
        if arrival_ns is None or num_prompt_tokens is None or num_output_tokens is None:
            return None
        return TraceRow(arrival_ns, num_prompt_tokens, num_output_tokens)

    return parse_row


def _count(text: str) -> int | None:
    """Return a whole number of 0 or more, None if it is none: int() alone would take '1_000' and '-3'."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 40 else None


def _seconds_ns(text: str) -> int | None:
    """Return seconds in nanoseconds, None if they are not a finite number of 0 or more."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return None if "_" in text else units_ns(seconds, NS_PER_S)


# 2023-11-16 18:15:46.6805900, and 2024-05-10 00:00:00.009930+00:00 in the files of the year after
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", flags=re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


_TIME = "a time such as 2023-11-16 18:15:46.6805900"
_AZURE = (
    Layout("TIMESTAMP", "ContextTokens", "GeneratedTokens", _TIME, _timestamp_ns, from_first=True),
    Layout("arrived_at", "num_prefill_tokens", "num_decode_tokens", SECONDS, _seconds_ns, from_first=False),
)
_BURSTGPT = (
    Layout("Timestamp", "Request tokens", "Response tokens", SECONDS, _seconds_ns, True, has_failures=True),
)
