"""Progress on stderr: a bar on a terminal, a line every tenth elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simkv.engine.simulation import Progress


@contextmanager
def show_progress() -> Iterator[Progress]:
    """Give a run something to report its progress to."""
    if not sys.stderr.isatty():
        yield _LineProgress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[clock]}"),
    )
    with Bar(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, clock="")

        def show(num_done: int, num_requests: int, now_ns: int) -> None:
            bar.update(task, completed=num_done, total=num_requests, clock=f"{now_ns / 1e9:,.0f} s simulated")

        yield show


@contextmanager
def show_points() -> Iterator[Callable[[int, int], None]]:
    """Give a sweep something to report its progress to: points done, points."""
    if not sys.stderr.isatty():
        yield _PointLines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("sweeping"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda num_done, num_points: bar.update(task, completed=num_done, total=num_points)


class _PointLines:
    def __init__(self) -> None:
        self._next_tenth = 0

    def __call__(self, num_done: int, num_points: int) -> None:
        if num_done * 10 >= self._next_tenth * num_points:
            self._next_tenth = num_done * 10 // max(num_points, 1) + 1
            print(f"{num_done} of {num_points} points", file=sys.stderr)


class _LineProgress:
    def __init__(self) -> None:
        self._next_tenth = 1

    def __call__(self, num_done: int, num_requests: int, now_ns: int) -> None:
        if num_done * 10 >= self._next_tenth * num_requests:
            self._next_tenth = num_done * 10 // num_requests + 1
            print(f"{num_done} of {num_requests} requests, {now_ns / 1e9:,.1f} s simulated", file=sys.stderr)
