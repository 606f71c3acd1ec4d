"""A trace file: checked whole before anything is simulated, then read row by row."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from simkv.errors import TraceError
from simkv.workload.faults import Faults


class TraceRow(NamedTuple):
    """One request of a trace: arrival in ns from the start of the trace, lengths in tokens.

    hash_ids   for each 512 tokens of the prompt the id of their contents, where the trace has them
    priority   smaller is more urgent
    """

    arrival_ns: int
    num_prompt_tokens: int
    num_output_tokens: int
    hash_ids: tuple[int, ...] = ()
    priority: int = 0


# Yields one row a request, None for a faulty one, and notes the faults.
Reader = Callable[[BinaryIO, Faults], Iterator[TraceRow | None]]


class Trace:
    """The requests of a trace file, its first `max_rows` if given; never more than one row in memory.

    Making a `Trace` reads the file once from end to end, so that a fault late in it is told before a run
    begins. Iterating reads it again.

    num_rows         requests
    num_skipped      failed requests left out
    last_arrival_ns  when the last request comes

    Raises `TraceError` with a line per fault, the first 20 of them.
    """

    def __init__(self, path: Path, read: Reader, max_rows: int | None = None):
        self.path = path
        self.read = read
        self.max_rows = max_rows
        self.num_rows = 0
        self.last_arrival_ns = 0
        faults = Faults(path)
        for row in self._rows(faults):
            self.num_rows += 1
            self.last_arrival_ns = row.arrival_ns
        if faults.count:
            raise faults.error()
        self.num_skipped = faults.num_skipped

    def __iter__(self) -> Iterator[TraceRow]:
        faults = Faults(self.path)
        num_read = 0
        for row in islice(self._rows(faults), self.num_rows):
            if faults.count:
                raise faults.error()
            yield row
            num_read += 1
        if faults.count:
            raise faults.error()
        if num_read < self.num_rows:
            raise TraceError(
                f"{self.path}: wanted {self.num_rows:,} requests as when it was checked, got {num_read:,}; "
                "do not change a trace while it is simulated"
            )

    def _rows(self, faults: Faults) -> Iterator[TraceRow]:
        """Yield the rows that are right and add the others to `faults`."""
        try:
            with self.path.open("rb") as file:
                if not stat.S_ISREG(self.path.stat().st_mode):
                    raise TraceError(
                        f"{self.path}: wanted a file that can be read twice, got a pipe or device"
                    )
                for row in islice(self.read(file, faults), self.max_rows):
                    if row is not None:
                        yield row
        except OSError as error:
            raise TraceError(f"{self.path}: wanted a trace file, got {error.strerror or error}") from None
