"""Where the points of a sweep run: the seam at which a cluster can be put in.

An executor is a function ``(function, tasks) -> iterator of results as they complete``, in any order; the
tasks and the results can be pickled. Closing the iterator, or an exception in the reader, ends the work.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Protocol, TypeVar

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")


class Executor(Protocol):
    """Runs a function on every task."""

    def __call__(self, function: Callable[[TaskT], ResultT], tasks: Sequence[TaskT]) -> Iterator[ResultT]:
        """Yield the results as they complete."""


def serial(function: Callable[[TaskT], ResultT], tasks: Sequence[TaskT]) -> Iterator[ResultT]:
    """Run the tasks one after the other in this process."""
    return map(function, tasks)


def processes(num_jobs: int) -> Executor:
    """Return an executor that runs `num_jobs` tasks at a time, each in a process."""

    def run(function: Callable[[TaskT], ResultT], tasks: Sequence[TaskT]) -> Iterator[ResultT]:
        if min(num_jobs, len(tasks)) < 2:
            return serial(function, tasks)
        import joblib

        # One task a batch: a result that is held back until its neighbours are done could be lost.
        parallel = joblib.Parallel(
            n_jobs=min(num_jobs, len(tasks)), batch_size=1, return_as="generator_unordered"
        )
        call = partial(joblib.delayed(_in_worker), function, parent_pid=os.getpid())
        with _ignored_interrupts():  # the processes start here
            results: Iterator[ResultT] = parallel(map(call, tasks))
        return results

    return run


@contextmanager
def _ignored_interrupts() -> Iterator[None]:
    """Let what is started meanwhile ignore Ctrl-C: a terminal sends it to all, one process is to act on it."""
    if threading.current_thread() is not threading.main_thread():  # where handlers cannot be set
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # of handlers, a new process inherits this one
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _in_worker(function: Callable[[TaskT], ResultT], task: TaskT, parent_pid: int) -> ResultT:
    _end_with(parent_pid)
    return function(task)


@cache
def _end_with(parent_pid: int) -> None:
    """End this process soon after its parent was killed: nobody would read what it works out."""

    def watch() -> None:
        while os.getppid() == parent_pid:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def executor_for(num_jobs: int | None = None) -> Executor:
    """Return the executor for so many jobs at a time; as many as there are CPUs unless given."""
    num_jobs = num_jobs or os.cpu_count() or 1
    return serial if num_jobs == 1 else processes(num_jobs)
