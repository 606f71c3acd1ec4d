"""The JSON of ``vllm bench serve`` as a trace."""

import contextlib
import json
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.errors import TraceError
from simkv.spec.workload import WorkloadSpec
from simkv.workload import Trace, TraceRow, generate
from simkv.workload.bench_trace import read_vllm_bench

SAMPLE = Path(__file__).parents[1] / "data" / "vllm_bench_sample.json"
READ = partial(read_vllm_bench, seed=0)
TOKENS = "a whole number of tokens, 1 or more"


def result(**changes):
    fields = {"input_lens": [10, 20, 30], "output_lens": [1, 2, 3], "start_times": [7.0, 7.5, 9.0]} | changes
    return json.dumps({name: value for name, value in fields.items() if value != "gone"})


# laws

ROWS = st.lists(
    st.tuples(st.floats(0, 1e6), st.integers(1, 10**6), st.integers(0, 10**5)), min_size=1
).filter(lambda rows: any(output for _, _, output in rows))


@given(ROWS)
def test_requests_come_in_the_order_of_their_start_times_without_the_failed_ones(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("trace") / "t"
    starts, prompts, outputs = (list(column) for column in zip(*rows, strict=True))
    path.write_text(result(start_times=starts, input_lens=prompts, output_lens=outputs))
    trace = Trace(path, READ)
    kept = sorted(((round(t * 1e9), p, o) for t, p, o in rows if o), key=lambda row: row[0])
    assert trace.num_skipped == len(rows) - len(kept)
    assert list(trace) == [TraceRow(t - kept[0][0], p, o) for t, p, o in kept]


@given(st.integers(1, 20), st.sampled_from([0.5, 3, 100.0]), st.sampled_from([1.0, 0.3]), st.integers(0, 9))
def test_without_start_times_they_are_those_of_vllm_bench_serve(tmp_path_factory, n, rate, burstiness, seed):
    path = tmp_path_factory.mktemp("trace") / "t"
    path.write_text(
        result(
            start_times="gone",
            input_lens=[8] * n,
            output_lens=[1] * n,
            request_rate=rate,
            burstiness=burstiness,
        )
    )
    read = WorkloadSpec(dataset_name="vllm_bench", dataset_path=str(path))
    drawn = WorkloadSpec(dataset_name="random", num_prompts=n, request_rate=rate, burstiness=burstiness)
    assert [r.arrival_ns for r in generate(read, 1000, seed)] == [
        r.arrival_ns for r in generate(drawn, 1000, seed)
    ]


@given(
    st.sampled_from(["input_lens", "output_lens", "start_times", "request_rate", "burstiness"]),
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9), st.lists),
    st.booleans(),
)
def test_any_value_gives_rows_or_a_trace_error(tmp_path_factory, name, value, has_times):
    path = tmp_path_factory.mktemp("trace") / "t"
    path.write_text(
        result(**{"start_times": [1, 2, 3] if has_times else "gone", "request_rate": 1, name: value})
    )
    with contextlib.suppress(TraceError):
        assert list(Trace(path, READ))


# examples


def test_the_sample():
    trace = Trace(SAMPLE, READ)
    assert list(trace) == [
        TraceRow(0, 1000, 10),
        TraceRow(250_000_000, 200, 16),
        TraceRow(1_750_000_000, 300, 1),
    ]
    assert trace.num_skipped == 1
    stream = generate(WorkloadSpec(dataset_name="vllm_bench", dataset_path=str(SAMPLE)), 1000, 0)
    assert (stream.num_requests, stream.num_skipped) == (3, 1)


@pytest.mark.parametrize("fields", [{}, {"request_rate": "inf"}, {"request_rate": float("inf")}])
def test_without_times_or_a_rate_all_come_at_once(trace, fields):
    rows = list(Trace(trace(result(start_times="gone", **fields)), READ))
    assert [row.arrival_ns for row in rows] == [0, 0, 0]


def test_an_infinite_burstiness_means_constant_intervals(trace):
    path = trace(result(start_times="gone", request_rate=4, burstiness=float("inf")))
    assert [row.arrival_ns for row in Trace(path, READ)] == [250_000_000, 500_000_000, 750_000_000]


# what is refused: the messages, word for word


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "t:1: text: wanted the JSON object that vllm bench serve writes, got an empty file"),
        ("[1]", "t:1: text: wanted the JSON object that vllm bench serve writes, got a list of 1"),
        (
            '{\n"a": }',
            "t:2: text: wanted the JSON object that vllm bench serve writes, got Expecting value at column 6",
        ),
        (
            result() + "\n" + result(),
            "t:2: text: wanted the JSON object that vllm bench serve writes, "
            "got more after it; keep one of the results that --append-result has joined",
        ),
        (b'{"a":\n"\xff"}', "t:2: text: wanted UTF-8, got the byte 0xff; save the file as UTF-8"),
        (
            result(output_lens="gone"),
            "t:1: output_lens: wanted a list with a number for every request, "
            "got nothing; have vllm bench serve write it with --save-detailed",
        ),
        (result(input_lens=7), "t:1: input_lens: wanted a list with a number for every request, got 7"),
        (result(output_lens=[1, 2]), "t:1: output_lens: wanted 3 numbers as in input_lens, got 2"),
        (result(start_times=[1.0]), "t:1: start_times: wanted 3 numbers as in input_lens, got 1"),
        (result(start_times=[1, None, 2]), "t:1: start_times[1]: wanted seconds, 0 or more, got nothing"),
        (result(input_lens=[1, 0, 1]), f"t:1: input_lens[1]: wanted {TOKENS}, got 0"),
        (result(output_lens=[1, 1.5, 1]), f"t:1: output_lens[1]: wanted {TOKENS}, got 1.5"),
        (result(output_lens=[0, 0, 0]), "t:1: input_lens: wanted at least one request, got failed ones only"),
        (
            result(input_lens=[], output_lens=[], start_times=[]),
            "t:1: input_lens: wanted at least one request, got an empty list",
        ),
        (
            result(start_times="gone", request_rate="fast"),
            "t:1: request_rate: wanted requests per second or 'inf', got 'fast'",
        ),
        (
            result(start_times="gone", request_rate=1, burstiness=-1),
            "t:1: burstiness: wanted a number above 0, got -1",
        ),
        (
            result(start_times="gone", request_rate="inf", ramp_up_strategy="linear"),
            "t:1: start_times: wanted times, for the rate was not constant (ramp_up_strategy), got nothing",
        ),
    ],
)
def test_one_fault(trace, faults, content, expected):
    assert faults(trace(content), READ) == [expected]
