"""A whole run: clients, a router, replicas, one clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from simkv.engine.audit import Auditor
from simkv.engine.clients import Clients
from simkv.engine.clock import Clock
from simkv.engine.replica import Replica, StepCost
from simkv.engine.routing import ROUTERS
from simkv.results.log import RequestOutcome, RequestRecord, RunLog
from simkv.scheduler import Request, Scheduler
from simkv.spec.engine import BroadcastWait
from simkv.workload import RequestSpec

Progress = Callable[[int, int, int], None]  # finished requests, all requests, simulated nanoseconds


class Simulation:
    """Serves `requests` on `num_replicas` engines until every one has finished or was rejected.

    requests         read as their times come (see `Clients`); `num_requests` of them
    make_scheduler   called once a replica
    round_trip_ns    see `Clients`
    broadcast_wait   see `Replica`
    ignore_eos       False: outputs end with a stop token that the scheduler cannot foresee
    check            audit block and request conservation at every step
    progress         called now and then
    """

    def __init__(
        self,
        requests: Iterable[RequestSpec],
        num_requests: int,
        make_scheduler: Callable[[], Scheduler],
        cost: StepCost,
        num_gpu_blocks: int,
        num_stages: int = 1,
        num_replicas: int = 1,
        max_concurrency: int | None = None,
        round_trip_ns: int = 0,
        router: str = "round_robin",
        ignore_eos: bool = True,
        broadcast_wait: BroadcastWait = "never",
        check: bool = False,
        progress: Progress | None = None,
    ):
        self.env = Clock()
        self.log = RunLog(num_gpu_blocks, num_stages, num_replicas)
        self.num_requests = num_requests
        self.progress = progress
        self.route = ROUTERS[router]()
        self.ignore_eos = ignore_eos
        self._in_flight: dict[int, RequestRecord] = {}
        self._num_done = 0
        self._num_delivered = [0] * num_replicas
        self._all_done = self.env.event()
        self.auditors: list[Auditor] = []
        self.replicas: list[Replica] = []
        for index in range(num_replicas):
            scheduler = make_scheduler()
            auditor = Auditor(scheduler, partial(self._num_delivered.__getitem__, index)) if check else None
            if auditor is not None:
                self.auditors.append(auditor)
            self.replicas.append(
                Replica(
                    self.env,
                    index,
                    scheduler,
                    cost,
                    self.log,
                    self._in_flight,
                    self._on_finish,
                    auditor,
                    broadcast_wait,
                )
            )
        self.max_model_len = self.replicas[0].scheduler.config.max_model_len
        self.clients = Clients(self.env, requests, max_concurrency, round_trip_ns, self._send, self._deliver)

    def run(self) -> RunLog:
        """Run to the end; Ctrl-C ends the run early and leaves the log of what happened, marked incomplete."""
        try:
            if self.num_requests:
                self.env.run(until=self._all_done)
            for auditor in self.auditors:
                auditor.audit_all()
        except KeyboardInterrupt:
            self.log.is_complete = False
        for replica in self.replicas:
            replica.stop()
        for record in self._in_flight.values():
            self.log.requests.append(record)
        self.log.end_ns = self.env.now_ns
        return self.log

    def _send(self, spec: RequestSpec, arrived_ns: int) -> bool:
        """The front end: a prompt that leaves no room for a token is refused, as by vLLM's API server."""
        num_prompt_tokens = spec.num_prompt_tokens
        record = RequestRecord(spec.request_id, num_prompt_tokens, spec.max_tokens, arrived_ns)
        record.sent_ns = self.env.now_ns
        self._in_flight[spec.request_id] = record
        if num_prompt_tokens >= self.max_model_len:
            record.outcome = RequestOutcome.REJECTED
            self._close(spec.request_id)
            return False
        return True

    def _deliver(self, spec: RequestSpec) -> None:
        index = self.route(self.replicas, spec)
        self._num_delivered[index] += 1
        self._in_flight[spec.request_id].replica = index
        # An output that ends with a stop token could have gone on to max_model_len for all the engine knows.
        room = self.max_model_len - spec.num_prompt_tokens
        request = Request(
            spec.request_id,
            spec.prompt,
            max_tokens=spec.max_tokens if self.ignore_eos else room,
            output_start=spec.output_start,
            arrival=self.env.now_ns,
            priority=spec.priority,
            stop_after=None if self.ignore_eos else spec.max_tokens,
        )
        self.replicas[index].submit(request)

    def _on_finish(self, request: Request) -> None:
        self._close(request.request_id)
        self.clients.on_finish(request.request_id)

    def _close(self, request_id: int) -> None:
        """A request has come to its end: pack its record away."""
        self.log.requests.append(self._in_flight.pop(request_id))
        self._num_done += 1
        if self.progress is not None:
            self.progress(self._num_done, self.num_requests, self.env.now_ns)
        if self._num_done == self.num_requests:
            self._all_done.succeed()
