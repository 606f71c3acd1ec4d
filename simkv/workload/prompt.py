"""Prompts as segments of an imaginary token axis: two prompts share a prefix where their tokens agree."""

from __future__ import annotations

from typing import NamedTuple


class Segment(NamedTuple):
    """The tokens ``start, start + 1, …`` of length `length`."""

    start: int
    length: int


class RequestSpec(NamedTuple):
    """One request as a client means to send it.

    arrival_ns     when it wants to be sent, from the start of the run; with `after`, from that request's end
    after          the request whose answer it waits for (a later turn of a session), None = none
    prompt         segments, joined; `max_tokens` outputs are generated (end of sequence is ignored)
    output_start   first token id of the outputs on the same axis, so that a later prompt can quote them
    priority       smaller is more urgent (used by ``scheduling_policy: priority``)
    """

    request_id: int
    arrival_ns: int
    prompt: tuple[Segment, ...]
    max_tokens: int
    output_start: int
    priority: int = 0
    after: int | None = None

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return sum(segment.length for segment in self.prompt)
