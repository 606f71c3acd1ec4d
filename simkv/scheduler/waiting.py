"""The waiting queues of the two policies: fcfs is a line, priority a sorted list."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from simkv.scheduler.request import Request


class WaitingQueue(Protocol):
    """Requests that wait for admission, in the order in which they are tried."""

    def add(self, request: Request) -> None:
        """Queue a new request."""

    def put_back(self, request: Request) -> None:
        """Queue a preempted request."""

    def remove(self, request: Request) -> None:
        """Take a request out."""

    def __iter__(self) -> Iterator[Request]: ...

    def __len__(self) -> int: ...


class FcfsQueue:
    """First come, first served; a preempted request goes to the front, so the last victim is the first."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()

    def add(self, request: Request) -> None:
        """Queue a new request at the end."""
        self._requests.append(request)

    def put_back(self, request: Request) -> None:
        """Queue a preempted request at the front."""
        self._requests.appendleft(request)

    def remove(self, request: Request) -> None:
        """Take a request out, in most cases the first."""
        if self._requests[0] is request:
            self._requests.popleft()
        else:
            self._requests.remove(request)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def __len__(self) -> int:
        return len(self._requests)


class PriorityQueue:
    """Ordered by (priority, arrival, id); preempted requests too."""

    def __init__(self) -> None:
        self._requests: list[Request] = []

    def add(self, request: Request) -> None:
        """Queue a request in its place."""
        insort(self._requests, request, key=_urgency)

    put_back = add

    def remove(self, request: Request) -> None:
        """Take a request out."""
        self._requests.remove(request)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def __len__(self) -> int:
        return len(self._requests)


def _urgency(request: Request) -> tuple[int, float, int]:
    return request.urgency


WAITING_QUEUES: dict[str, Callable[[], WaitingQueue]] = {"fcfs": FcfsQueue, "priority": PriorityQueue}
