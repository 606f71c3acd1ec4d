"""What `generate` returns: the requests of a run, made as they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from simkv.workload.prompt import RequestSpec


class RequestStream:
    """The requests of a run with ids 0, 1, …; may be iterated again and again, the same every time.

    Requests come in order of arrival; a later turn of a session, whose arrival counts from the answer that it
    waits for, comes directly behind the turn before it.

    num_requests   how many there are, known before the first is read
    num_skipped    failed requests of a trace that were left out
    """

    def __init__(self, make: Callable[[], Iterable[RequestSpec]], num_requests: int, num_skipped: int = 0):
        self._make = make
        self.num_requests = num_requests
        self.num_skipped = num_skipped

    @classmethod
    def of(cls, requests: list[RequestSpec]) -> RequestStream:
        """Return a stream over requests that are there already."""
        return cls(lambda: requests, len(requests))

    def __iter__(self) -> Iterator[RequestSpec]:
        return iter(self._make())

    def __len__(self) -> int:
        return self.num_requests

    def __repr__(self) -> str:
        return f"RequestStream({self.num_requests} requests)"
