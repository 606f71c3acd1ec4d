"""Conversations of several turns."""

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from simkv.spec.workload import WorkloadSpec
from simkv.workload import Segment, generate

VOCAB_SIZE = 1000
LENGTHS = st.one_of(
    st.integers(1, 200),
    st.just({"uniform": {"min": 1, "max": 90}}),
    st.just({"preset": "azure_code_2023"}),
)
TURNS = st.integers(1, 6) | st.just({"uniform": {"min": 1, "max": 5}})
SESSIONS = st.fixed_dictionaries(
    {
        "dataset_name": st.just("sessions"),
        "num_sessions": st.integers(1, 8),
        "num_turns": TURNS,
        "prompt_len": LENGTHS,
        "output_len": LENGTHS,
    },
    optional={
        "turn_len": LENGTHS,
        "system_prompt_len": st.integers(0, 50),
        "think_time_s": st.floats(0, 100) | st.just({"exponential": {"mean": 3.0}}),
        "request_rate": st.floats(0.1, 10),
    },
).map(WorkloadSpec.model_validate)


def spec(**fields):
    base = {"num_sessions": 3, "num_turns": 2, "prompt_len": 10, "output_len": 4}
    return WorkloadSpec.model_validate({"dataset_name": "sessions"} | base | fields)


def tokens(segments):
    return [token for start, length in segments for token in range(start, start + length)]


def sessions(workload, seed=0):
    """The requests, a list for each session."""
    numbers = []
    requests = list(generate(workload, VOCAB_SIZE, seed))
    for request in requests:
        numbers.append(len(numbers) and numbers[-1] + (request.after is None))
    return [
        [r for _, r in group] for _, group in groupby(zip(numbers, requests, strict=True), lambda p: p[0])
    ]


@given(SESSIONS, st.integers(0, 2**32))
def test_a_turn_is_all_that_was_said_and_something_new(workload, seed):
    system = tokens([Segment(0, workload.system_prompt_len)])
    said_elsewhere = set()
    for turns in sessions(workload, seed):
        said = system
        for request in turns:
            prompt = tokens(request.prompt)
            assert prompt[: len(said)] == said
            new = prompt[len(said) :]
            outputs = tokens([Segment(request.output_start, request.max_tokens)])
            assert len(new) >= 1
            assert len(set(new + outputs + said)) == len(new + outputs + said)
            said = prompt + outputs
        own = set(said) - set(system)
        assert not own & said_elsewhere
        said_elsewhere |= own


@given(SESSIONS, st.integers(0, 2**32))
def test_a_later_turn_waits_for_the_one_before_and_comes_directly_behind_it(workload, seed):
    stream = generate(workload, VOCAB_SIZE, seed)
    requests = list(stream)
    assert list(stream) == requests
    assert len(requests) == stream.num_requests
    assert [r.request_id for r in requests] == list(range(len(requests)))
    starts = [r.arrival_ns for r in requests if r.after is None]
    assert starts == sorted(starts)
    assert len(starts) == workload.num_sessions
    assert all(r.after in (None, r.request_id - 1) for r in requests)


@given(SESSIONS, st.integers(1, 10))
def test_num_prompts_takes_the_first_requests(workload, n):
    cut = generate(workload.replace(num_prompts=n), VOCAB_SIZE, 0)
    assert list(cut) == list(generate(workload, VOCAB_SIZE, 0))[:n]
    assert cut.num_requests == len(list(cut))


def test_lengths_are_those_of_their_turn():
    workload = spec(num_turns=3, turn_len=2, system_prompt_len=100)
    for turns in sessions(workload):
        assert [r.num_prompt_tokens for r in turns] == [110, 116, 122]
        assert [r.max_tokens for r in turns] == [4, 4, 4]
    assert [r.num_prompt_tokens for r in sessions(spec(num_turns=3))[0]] == [10, 24, 38]


def test_a_prompt_has_two_segments_however_many_turns_came_before():
    last = sessions(spec(num_turns=1000, system_prompt_len=7, num_sessions=1))[0][-1]
    assert last.prompt == (Segment(0, 7), Segment(7, 999 * 14 + 10))


def test_sessions_start_by_the_arrival_process_and_users_think():
    workload = spec(arrival="constant", request_rate=2.0, think_time_s=1.5)
    assert [[r.arrival_ns for r in turns] for turns in sessions(workload)] == [
        [500_000_000, 1_500_000_000],
        [1_000_000_000, 1_500_000_000],
        [1_500_000_000, 1_500_000_000],
    ]
    assert [r.arrival_ns for r in sessions(spec())[0]] == [0, 0]


def test_exponential_thinking_has_its_mean():
    workload = spec(num_sessions=20_000, think_time_s={"exponential": {"mean": 20.0}})
    waits = [r.arrival_ns for r in generate(workload, VOCAB_SIZE, 0) if r.after is not None]
    assert np.mean(waits) == pytest.approx(20e9, rel=0.02)
    assert np.std(waits) == pytest.approx(20e9, rel=0.03)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_sessions": None}, "num_sessions: missing; dataset_name: sessions needs it"),
        ({"num_turns": None}, "num_turns: missing; dataset_name: sessions needs it"),
        ({"prompt_len": None}, "prompt_len: missing; wanted a length"),
        (
            {"num_turns": {"lognormal": {"median": 2.0, "p99": 9.0}}},
            "num_turns: expected a number, uniform, ",
        ),
        (
            {"num_turns": {"preset": "azure_conv_2023"}},
            "num_turns: expected a number, uniform, quantiles, or",
        ),
        ({"num_turns": 10_001}, "num_turns: expected at most 10,000, got 10001"),
        (
            {"num_turns": 10_000, "num_sessions": 1001},
            "num_sessions: 1001 of up to 10000 turns are more than",
        ),
        ({"think_time_s": -1.0}, "greater than or equal to 0"),
        ({"think_time_s": {}}, "exactly one of a number of seconds or exponential"),
        ({"think_time_s": {"exponential": {"mean": 0.0}}}, "greater than 0"),
        ({"request_rate": 1e-9, "num_sessions": 2}, "request_rate: 2 requests at 1e-09 a second take more"),
    ],
)
def test_wrong_sessions(fields, message):
    with pytest.raises(ValidationError, match=message):
        spec(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_sessions": 3}, "num_sessions: dataset_name: lengths has none \\(only sessions\\)"),
        ({"think_time_s": 3.0}, "think_time_s: dataset_name: lengths has none"),
        ({"request_rate_scale": 2.0}, "request_rate_scale: dataset_name: lengths has none \\(only azure, "),
        ({"dataset_path": "x"}, "dataset_path: dataset_name: lengths has none \\(only azure, mooncake, "),
        (
            {"dataset_name": "random", "system_prompt_len": 3},
            "system_prompt_len: dataset_name: random has none",
        ),
    ],
)
def test_a_field_that_would_do_nothing_is_refused(fields, message):
    with pytest.raises(ValidationError, match=message):
        WorkloadSpec.model_validate({"prompt_len": 1, "output_len": 1} | fields)
