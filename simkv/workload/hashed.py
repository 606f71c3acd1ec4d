"""Prompts given as the hash ids of their blocks, as in Mooncake's traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from simkv.workload.json_traces import HASH_BLOCK_TOKENS, MAX_HASH_ID
from simkv.workload.prompt import RequestSpec, Segment
from simkv.workload.traces import TraceRow

_FIRST_OUTPUT = (MAX_HASH_ID + 1) * HASH_BLOCK_TOKENS


def hashed_requests(rows: Iterable[TraceRow]) -> Iterator[RequestSpec]:
    """Yield requests that share exactly the leading blocks whose hash ids are equal.

    The token axis: hash id `h` is the range from ``512 · h``; outputs lie above all of them, each in a range of
    its own, for a trace does not say where a later prompt quotes an answer.
    """
    output_start = _FIRST_OUTPUT
    for request_id, row in enumerate(rows):
        prompt = block_segments(row.hash_ids, row.num_prompt_tokens)
        yield RequestSpec(
            request_id, row.arrival_ns, prompt, row.num_output_tokens, output_start, row.priority
        )
        output_start += row.num_output_tokens


def block_segments(hash_ids: Sequence[int], num_tokens: int) -> tuple[Segment, ...]:
    """Return the ranges of all but the last block whole, and of the last what is left of `num_tokens`.

    >>> block_segments([7, 8, 3], 1100)
    (Segment(start=3584, length=1024), Segment(start=1536, length=76))
    """
    segments: list[Segment] = []
    for hash_id in hash_ids:
        start, length = hash_id * HASH_BLOCK_TOKENS, min(HASH_BLOCK_TOKENS, num_tokens)
        num_tokens -= length
        if segments and sum(segments[-1]) == start:
            segments[-1] = Segment(segments[-1].start, segments[-1].length + length)
        else:
            segments.append(Segment(start, length))
    return tuple(segments)
