"""A whole run: clients, a router, replicas, one clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from simkv.engine.audit import Auditor
from simkv.engine.clients import Clients
from simkv.engine.clock import Clock
from simkv.engine.replica import Replica, StepCost
from simkv.engine.routing import ROUTERS
from simkv.results.log import RequestOutcome, RequestRecord, RunLog
from simkv.scheduler import Request, Scheduler
from simkv.workload import RequestSpec

Progress = Callable[[int, int, int], None]  # finished requests, all requests, simulated nanoseconds


class Simulation:
    """Serves `requests` on `num_replicas` engines until every one has finished or was rejected.

    make_scheduler   called once a replica
    round_trip_ns    see `Clients`
    ignore_eos       False: outputs end with a stop token that the scheduler cannot foresee
    check            audit block and request conservation at every step
    progress         called now and then
    """

    def __init__(
        self,
        requests: Sequence[RequestSpec],
        make_scheduler: Callable[[], Scheduler],
        cost: StepCost,
        num_gpu_blocks: int,
        num_stages: int = 1,
        num_replicas: int = 1,
        max_concurrency: int | None = None,
        round_trip_ns: int = 0,
        router: str = "round_robin",
        ignore_eos: bool = True,
        check: bool = False,
        progress: Progress | None = None,
    ):
        self.env = Clock()
        self.log = RunLog(num_gpu_blocks, num_stages, num_replicas)
        self.requests = requests
        self.progress = progress
        self.route = ROUTERS[router]
        self.ignore_eos = ignore_eos
        self._records: dict[int, RequestRecord] = {}
        self._num_left = len(requests)
        self._num_routed = 0
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
                Replica(self.env, index, scheduler, cost, self.log, self._records, self._on_finish, auditor)
            )
        self.max_model_len = self.replicas[0].scheduler.config.max_model_len
        for request in requests:
            record = RequestRecord(
                request.request_id, request.num_prompt_tokens, request.max_tokens, request.arrival_ns
            )
            self._records[request.request_id] = record
            self.log.requests.append(record)
        self.clients = Clients(self.env, requests, max_concurrency, round_trip_ns, self._send, self._deliver)

    def run(self) -> RunLog:
        """Run to the end; Ctrl-C ends the run early and leaves the log of what happened, marked incomplete."""
        try:
            if self._num_left:
                self.env.run(until=self._all_done)
            for auditor in self.auditors:
                auditor.audit_all()
        except KeyboardInterrupt:
            self.log.is_complete = False
        self.log.end_ns = self.env.now_ns
        return self.log

    def _send(self, spec: RequestSpec) -> bool:
        """The front end: a prompt that leaves no room for a token is refused, as by vLLM's API server."""
        record = self._records[spec.request_id]
        record.sent_ns = self.env.now_ns
        if record.num_prompt_tokens >= self.max_model_len:
            record.outcome = RequestOutcome.REJECTED
            self._count_down()
            return False
        return True

    def _deliver(self, spec: RequestSpec) -> None:
        index = self.route(self.replicas, self._num_routed)
        self._num_routed += 1
        self._num_delivered[index] += 1
        self._records[spec.request_id].replica = index
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
        self.clients.on_finish()
        self._count_down()

    def _count_down(self) -> None:
        self._num_left -= 1
        if self.progress is not None:
            self.progress(len(self.requests) - self._num_left, len(self.requests), self.env.now_ns)
        if self._num_left == 0:
            self._all_done.succeed()
