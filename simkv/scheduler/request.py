"""One request inside the scheduler: counters only, no clock, no token lists."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum


class RequestStatus(Enum):
    """Where a request is."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


class Request:
    """A request whose `num_computed_tokens` catches up with its known tokens.

    prompt         (start, length) segments of the token axis; output k is the id ``output_start + k``
    arrival        orders requests; any number (a step, a nanosecond)
    stop_after     the output that is a stop token, which the scheduler cannot know in advance
    """

    __slots__ = (
        "arrival", "first_call_to_decode", "max_tokens", "num_batches_in_flight", "num_computed_tokens",
        "num_ever_computed_tokens", "num_output_placeholders", "num_output_tokens", "num_preemptions",
        "num_prompt_tokens", "num_recomputed_tokens", "num_tokens", "output_start", "priority", "prompt",
        "request_id", "status", "stop_after",
    )  # fmt: skip

    def __init__(
        self,
        request_id: int,
        prompt: Sequence[tuple[int, int]],
        max_tokens: int,
        output_start: int,
        arrival: float = 0,
        priority: int = 0,
        stop_after: int | None = None,
    ):
        self.request_id = request_id
        self.prompt = prompt
        self.num_prompt_tokens = sum(length for _, length in prompt)
        self.max_tokens = max_tokens
        self.output_start = output_start
        self.arrival = arrival
        self.priority = priority
        self.stop_after = stop_after
        self.status = RequestStatus.WAITING
        self.num_tokens = self.num_prompt_tokens  # known: prompt and outputs so far
        self.num_output_tokens = 0
        self.num_computed_tokens = 0
        self.num_output_placeholders = 0  # tokens scheduled to be sampled, not yet known (async scheduling)
        self.num_batches_in_flight = 0
        self.num_preemptions = 0
        self.num_ever_computed_tokens = 0  # kept up for preempted requests only
        self.num_recomputed_tokens = 0
        self.first_call_to_decode = 0  # async pipelines: the call of schedule() from which it may run again

    @property
    def urgency(self) -> tuple[int, float, int]:
        """The order of the ``priority`` policy: smaller is served first, the largest is preempted."""
        return (self.priority, self.arrival, self.request_id)

    def __repr__(self) -> str:
        return (
            f"Request({self.request_id}, {self.status.value}, computed {self.num_computed_tokens} of "
            f"{self.num_tokens}, outputs {self.num_output_tokens} of {self.max_tokens})"
        )
