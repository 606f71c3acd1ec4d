"""Who sends the requests: an open loop at given times, or a closed loop with `max_concurrency` slots."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

import simpy

from simkv.engine.clock import Clock
from simkv.workload import RequestSpec


class Clients:
    """One SimPy process that sends all requests in the order of their arrival.

    max_concurrency  requests that may be on their way at once; None = no limit. A request that finds no slot
                     waits, first in first out, as at the semaphore of ``vllm bench serve``.
    round_trip_ns    time between a client's deciding to send and the engine's seeing the request
    send             called when a request gets its slot; False = the server refused it at once
    deliver          called when it reaches the engine
    """

    def __init__(
        self,
        env: Clock,
        requests: Iterable[RequestSpec],
        max_concurrency: int | None,
        round_trip_ns: int,
        send: Callable[[RequestSpec], bool],
        deliver: Callable[[RequestSpec], None],
    ):
        self.env = env
        self.requests = requests
        self.max_concurrency = max_concurrency
        self.round_trip_ns = round_trip_ns
        self.send = send
        self.deliver = deliver
        self._num_on_their_way = 0
        self._slot_freed: simpy.Event | None = None
        self.done = env.process(self.run())

    def run(self) -> Generator[simpy.Event, None, None]:
        """Send each request at its time, or when a slot frees."""
        for request in self.requests:
            if request.arrival_ns > self.env.now_ns:
                yield self.env.until_ns(request.arrival_ns)
            while self.max_concurrency is not None and self._num_on_their_way >= self.max_concurrency:
                self._slot_freed = self.env.event()
                yield self._slot_freed
            if self.send(request):
                self._num_on_their_way += 1
                if self.round_trip_ns == 0:
                    self.deliver(request)
                else:
                    arrival = self.env.timeout(self.round_trip_ns, value=request)
                    assert arrival.callbacks is not None
                    arrival.callbacks.append(lambda event: self.deliver(event.value))

    def on_finish(self) -> None:
        """A request came back: its slot is free."""
        self._num_on_their_way -= 1
        if self._slot_freed is not None and not self._slot_freed.triggered:
            self._slot_freed.succeed()
