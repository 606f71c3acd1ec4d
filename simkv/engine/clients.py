"""Who sends the requests: an open loop at given times, a closed loop of slots, sessions of turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator

import simpy

from simkv.engine.clock import Clock
from simkv.workload import RequestSpec


class Clients:
    """Sends requests in the order in which they arrive; one that finds no slot waits, first in first out.

    requests         read one by one as their times come, never all at once; in the order of arrival, a later
                     turn of a session directly behind the turn that it waits for
    max_concurrency  requests that may be on their way at once, as at the semaphore of ``vllm bench serve``;
                     None = no limit
    round_trip_ns    time between a client's deciding to send and the engine's seeing the request
    send             called with a request that has its slot, and when it had wanted to be sent; False = the
                     server refused it at once
    deliver          called when it reaches the engine
    """

    def __init__(
        self,
        env: Clock,
        requests: Iterable[RequestSpec],
        max_concurrency: int | None,
        round_trip_ns: int,
        send: Callable[[RequestSpec, int], bool],
        deliver: Callable[[RequestSpec], None],
    ):
        self.env = env
        self.requests = requests
        self.max_concurrency = max_concurrency
        self.round_trip_ns = round_trip_ns
        self.send = send
        self.deliver = deliver
        self._num_on_their_way = 0
        self._waiting: deque[tuple[RequestSpec, int]] = deque()  # for a slot, with when they arrived
        self._next_turns: dict[int, RequestSpec] = {}  # by the request whose answer they wait for
        self._none_waits: simpy.Event | None = None
        env.process(self.run())

    def run(self) -> Generator[simpy.Event, None, None]:
        """Let each request arrive at its time; read no further while one waits for a slot."""
        for request in self._first_turns():
            if request.arrival_ns > self.env.now_ns:
                yield self.env.until_ns(request.arrival_ns)
            self._arrive(request)
            if self._waiting:
                self._none_waits = self.env.event()
                yield self._none_waits

    def _first_turns(self) -> Iterator[RequestSpec]:
        """The requests that wait for no answer, each when the turns behind it are known."""
        ahead: RequestSpec | None = None
        for request in self.requests:
            if request.after is not None:
                self._next_turns[request.after] = request
                continue
            if ahead is not None:
                yield ahead
            ahead = request
        if ahead is not None:
            yield ahead

    def on_finish(self, request_id: int) -> None:
        """A request came back: its slot is free, and its session goes on after the user has thought."""
        self._num_on_their_way -= 1
        self._continue_session(request_id)
        self._send_waiting()

    def _arrive(self, request: RequestSpec) -> None:
        self._waiting.append((request, self.env.now_ns))
        self._send_waiting()

    def _send_waiting(self) -> None:
        limit = self.max_concurrency
        while self._waiting and (limit is None or self._num_on_their_way < limit):
            request, arrived_ns = self._waiting.popleft()
            if self.send(request, arrived_ns):
                self._num_on_their_way += 1
                self._after(self.round_trip_ns, self.deliver, request)
            else:
                self._continue_session(request.request_id)
        if not self._waiting and self._none_waits is not None and not self._none_waits.triggered:
            self._none_waits.succeed()

    def _continue_session(self, request_id: int) -> None:
        next_turn = self._next_turns.pop(request_id, None)
        if next_turn is not None:
            self._after(next_turn.arrival_ns, self._arrive, next_turn)

    def _after(self, delay_ns: int, action: Callable[[RequestSpec], None], request: RequestSpec) -> None:
        if delay_ns == 0:
            action(request)
            return
        timeout = self.env.timeout(delay_ns)
        assert timeout.callbacks is not None
        timeout.callbacks.append(lambda _: action(request))
