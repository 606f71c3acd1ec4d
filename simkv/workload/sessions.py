"""Conversations of several turns: each waits for the answer before it and quotes all that was said."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from simkv.spec.workload import WorkloadSpec
from simkv.workload.arrivals import arrival_times_ns
from simkv.workload.lengths import sample_lengths, sample_times_ns
from simkv.workload.prompt import RequestSpec, Segment
from simkv.workload.request_stream import RequestStream
from simkv.workload.rng import stream


def session_requests(workload: WorkloadSpec, seed: int) -> RequestStream:
    """Return the turns of all sessions, in order of the sessions' starts, the turns of one behind each other.

    Drawn session by session as they are read, so that long conversations of many users need little memory.
    """
    assert workload.num_sessions is not None, "WorkloadSpec wants it for this data set"
    assert workload.num_turns is not None, "WorkloadSpec wants it for this data set"
    num_turns = sample_lengths(workload.num_turns, workload.num_sessions, stream(seed, "num_turns"))
    num_requests = min(sum(num_turns), workload.num_prompts or sum(num_turns))
    return RequestStream(lambda: islice(_turns(workload, num_turns, seed), num_requests), num_requests)


def _turns(workload: WorkloadSpec, num_turns: list[int], seed: int) -> Iterator[RequestSpec]:
    """The token axis: what all share at 0, then a range for each session, in the order in which it is said.

    So the user's words and the answers follow each other on the axis as they do in the conversation, and a
    prompt is at most two segments however many turns came before.
    """
    assert workload.prompt_len is not None, "WorkloadSpec wants it for this data set"
    assert workload.output_len is not None, "WorkloadSpec wants it for this data set"
    starts_ns = arrival_times_ns(workload, len(num_turns), stream(seed, "arrivals"))
    prompt_rng, turn_rng = stream(seed, "prompt_lens"), stream(seed, "turn_lens")
    output_rng, think_rng = stream(seed, "output_lens"), stream(seed, "think_times")
    shared = (Segment(0, workload.system_prompt_len),) if workload.system_prompt_len else ()
    request_id = 0
    start = workload.system_prompt_len
    for start_ns, n in zip(starts_ns, num_turns, strict=True):
        turn_lens = sample_lengths(workload.turn_len or workload.prompt_len, n - 1, turn_rng)
        user_lens = sample_lengths(workload.prompt_len, 1, prompt_rng) + turn_lens
        output_lens = sample_lengths(workload.output_len, n, output_rng, side="output")
        waits_ns = [start_ns, *sample_times_ns(workload.think_time_s, n - 1, think_rng)]
        said = 0
        for turn, (wait_ns, user_len, output_len) in enumerate(
            zip(waits_ns, user_lens, output_lens, strict=True)
        ):
            said += user_len
            prompt = (*shared, Segment(start, said))
            after = request_id - 1 if turn else None
            yield RequestSpec(request_id, wait_ns, prompt, output_len, start + said, after=after)
            request_id += 1
            said += output_len
        start += said
