"""Traces of a JSON object a line: Mooncake and lengths under the usual names."""

import contextlib
import json
import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.errors import TraceError
from simkv.spec.workload import WorkloadSpec
from simkv.workload import Trace, TraceRow, generate
from simkv.workload.hashed import block_segments
from simkv.workload.json_traces import read_jsonl, read_mooncake

REPO = Path(__file__).parents[2]
DATA = REPO / "tests" / "data"
MOONCAKE = REPO.parent / "shared" / "traces" / "mooncake_conversation_first3000.jsonl"
needs_mooncake = pytest.mark.skipif(not MOONCAKE.exists(), reason=f"{MOONCAKE.name} is not in the repository")
TOKENS = "a whole number of tokens, 1 or more"

PROMPTS = st.lists(st.integers(0, 4), min_size=1, max_size=5).flatmap(
    lambda ids: st.tuples(st.just(ids), st.integers(512 * (len(ids) - 1) + 1, 512 * len(ids)))
)


def expanded(segments):
    return [token for start, length in segments for token in range(start, start + length)]


def num_shared(a, b):
    """Leading elements that two sequences share."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def requests_of(path, **fields):
    return list(generate(WorkloadSpec(dataset_path=str(path), **fields), 1000, 0))


# laws


@given(PROMPTS, PROMPTS)
def test_two_prompts_share_exactly_their_common_leading_blocks(a, b):
    (ids_a, len_a), (ids_b, len_b) = a, b
    tokens_a, tokens_b = expanded(block_segments(ids_a, len_a)), expanded(block_segments(ids_b, len_b))
    assert (len(tokens_a), len(tokens_b)) == (len_a, len_b)
    assert num_shared(tokens_a, tokens_b) == min(512 * num_shared(ids_a, ids_b), len_a, len_b)


@given(PROMPTS)
def test_segments_are_maximal(prompt):
    segments = block_segments(*prompt)
    assert all(a.start + a.length != b.start for a, b in pairwise(segments))


@given(st.lists(st.tuples(st.integers(0, 10**6), PROMPTS, st.integers(1, 50)), min_size=1, max_size=10))
def test_mooncake_reads_what_is_written_and_no_output_is_shared(tmp_path_factory, rows):
    rows = sorted(rows)
    path = tmp_path_factory.mktemp("trace") / "t"
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    lines = [json.dumps(dict(zip(keys, (t, n, o, ids), strict=True))) for t, (ids, n), o in rows]
    path.write_text("\n".join(lines))
    wanted = [TraceRow(t * 10**6, n, o, tuple(ids)) for t, (ids, n), o in rows]
    assert list(Trace(path, read_mooncake)) == wanted
    requests = requests_of(path, dataset_name="mooncake")
    assert [r.num_prompt_tokens for r in requests] == [n for _, (_, n), _ in rows]
    end = max(sum(segment) for r in requests for segment in r.prompt)
    for request in requests:
        assert request.output_start >= end
        end = request.output_start + request.max_tokens


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 10**8), st.integers(1, 10**8)), min_size=1))
def test_jsonl_reads_what_is_written_under_any_name(tmp_path_factory, rows):
    rows = sorted(rows)
    path = tmp_path_factory.mktemp("trace") / "t"
    arrival = ("arrival_s", "arrived_at", "timestamp_s")
    prompt = ("prompt_len", "input_len", "input_length", "num_prefill_tokens")
    output = ("output_len", "output_length", "num_decode_tokens")
    lines = [
        json.dumps({arrival[i % 3]: t, prompt[i % 4]: p, output[i % 3]: o})
        for i, (t, p, o) in enumerate(rows)
    ]
    path.write_text("\n".join(lines))
    assert list(Trace(path, read_jsonl)) == [TraceRow(round(t * 1e9), p, o) for t, p, o in rows]


@given(st.binary(max_size=200))
def test_any_bytes_give_rows_or_a_trace_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("trace") / "t"
    path.write_bytes(content)
    for read in (read_mooncake, read_jsonl):
        with contextlib.suppress(TraceError):
            assert list(Trace(path, read))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=50),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    )
)
def test_any_value_of_a_key_gives_rows_or_a_trace_error(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("trace") / "t"
    good = {"timestamp": 1, "arrival_s": 1, "input_length": 1, "output_length": 1, "hash_ids": [1]}
    for key in good:
        path.write_text(json.dumps(good | {key: value}))
        for read in (read_mooncake, read_jsonl):
            with contextlib.suppress(TraceError):
                assert list(Trace(path, read))


# examples


def test_the_sample_of_mooncake():
    requests = requests_of(DATA / "mooncake_sample.jsonl", dataset_name="mooncake")
    assert [r.arrival_ns for r in requests] == [0, 0, 250_000_000, 1_333_000_000, 2_000_000_000]
    assert [r.prompt for r in requests] == [
        ((0, 1400),),
        ((0, 1024), (1536, 76)),
        ((2048, 512),),
        ((0, 1536), (2560, 512)),
        ((3072, 513),),
    ]
    assert [r.output_start - 2**73 for r in requests] == [0, 20, 25, 34, 98]


def test_the_sample_of_lengths():
    requests = requests_of(DATA / "lengths_sample.jsonl", dataset_name="jsonl")
    assert [(r.arrival_ns, r.num_prompt_tokens, r.max_tokens, r.priority) for r in requests] == [
        (0, 120, 8, 0),
        (250_000_000, 4000, 90, 0),
        (250_000_000, 33, 1, -2),
        (7_500_000_000, 64, 700, 0),
    ]


@needs_mooncake
def test_the_whole_trace_of_mooncake_shares_as_much_as_its_hash_ids_say():
    with MOONCAKE.open() as file:
        rows = [json.loads(line) for line in file]
    requests = requests_of(MOONCAKE, dataset_name="mooncake")
    assert len(requests) == len(rows) == 3000
    known, seen, shared, shared_blocks = set(), set(), 0, 0
    for request, row in zip(requests, rows, strict=True):
        assert request.num_prompt_tokens == row["input_length"]
        # By the trace: leading blocks whose ids came before; a prompt's last block is no one else's.
        ids = row["hash_ids"]
        shared_blocks += next((i for i, hash_id in enumerate(ids) if hash_id not in known), len(ids))
        known |= set(ids)
        # By the segments: leading tokens that came before, looked up at every 512th.
        starts = [start + k for start, length in request.prompt for k in range(0, length, 512)]
        shared += next((i for i, start in enumerate(starts) if start not in seen), len(starts))
        seen |= set(starts)
    assert shared == shared_blocks == 25_332
    assert shared / sum(len(row["hash_ids"]) for row in rows) == pytest.approx(0.3142, abs=1e-4)


def test_blank_lines_crlf_a_byte_order_mark_and_other_keys(trace):
    path = trace(
        b'\xef\xbb\xbf{"timestamp": 1.5, "input_length": 1, "output_length": 2, "hash_ids": [9], "x": {}}\r\n'
        b'\r\n{"timestamp": 2, "input_length": 513, "output_length": 2, "hash_ids": [9, 10]}'
    )
    rows = [TraceRow(1_500_000, 1, 2, (9,)), TraceRow(2_000_000, 513, 2, (9, 10))]
    assert list(Trace(path, read_mooncake)) == rows


# what is refused: the messages, word for word


def line(**changes):
    row = {"timestamp": 5, "input_length": 600, "output_length": 2, "hash_ids": [0, 1]} | changes
    return json.dumps({key: value for key, value in row.items() if value != "gone"}) + "\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "t:1: timestamp: wanted at least one request, got an empty file"),
        ("\n\n", "t:3: timestamp: wanted at least one request, got the end of the file"),
        (
            line() + '{"timestamp": 5,\n',
            "t:2: row: wanted a JSON object, got '{\"timestamp\": 5,': "
            "Expecting property name enclosed in double quotes at column 17",
        ),
        ("[1, 2]\n", "t:1: row: wanted a JSON object, got a list of 2"),
        ("7\n", "t:1: row: wanted a JSON object, got 7"),
        ("[" * 100_000, f"t:1: row: wanted a JSON object, got '{'[' * 40}…'"),
        ("9" * 5000, f"t:1: row: wanted a JSON object, got '{'9' * 40}…'"),
        (line(timestamp="gone"), "t:1: timestamp: wanted milliseconds, 0 or more, got nothing"),
        (line(timestamp="5"), "t:1: timestamp: wanted milliseconds, 0 or more, got '5'"),
        (line(timestamp=-1), "t:1: timestamp: wanted milliseconds, 0 or more, got -1"),
        (line(timestamp=True), "t:1: timestamp: wanted milliseconds, 0 or more, got true"),
        (line(timestamp=float("nan")), "t:1: timestamp: wanted milliseconds, 0 or more, got nan"),
        (line(timestamp=float("inf")), "t:1: timestamp: wanted milliseconds, 0 or more, got inf"),
        (
            line(timestamp=1e300),
            "t:1: timestamp: wanted at most 1,000,000,000 seconds after the start of the trace, got 1e+300",
        ),
        (
            line(timestamp=7) + line(timestamp=6),
            "t:2: timestamp: wanted a time not before 7 of the request above, got 6; sort the file by timestamp",
        ),
        (line(output_length=0), f"t:1: output_length: wanted {TOKENS}, got 0"),
        (line(output_length=2.0), f"t:1: output_length: wanted {TOKENS}, got 2.0"),
        (line(output_length=10**9), "t:1: output_length: wanted at most 100,000,000 tokens, got 1000000000"),
        (line(input_length=0), f"t:1: input_length: wanted {TOKENS}, got 0"),
        (line(input_length=None), f"t:1: input_length: wanted {TOKENS}, got nothing"),
        (line(hash_ids="gone"), "t:1: hash_ids: wanted a list of whole numbers, got nothing"),
        (line(hash_ids=[0, "1"]), "t:1: hash_ids: wanted a list of whole numbers, got '1' in it"),
        (line(hash_ids=[0, True]), "t:1: hash_ids: wanted a list of whole numbers, got true in it"),
        (line(hash_ids=[0, -1]), "t:1: hash_ids: wanted numbers from 0 to 2^64 − 1, got -1 in it"),
        (line(hash_ids=[0]), "t:1: hash_ids: wanted 2 ids, one for each 512 of 600 tokens, got 1"),
        (line(hash_ids=[0, 1, 2]), "t:1: hash_ids: wanted 2 ids, one for each 512 of 600 tokens, got 3"),
        (
            line().encode() + b"{\xff}\n",
            "t:2: text: wanted UTF-8, got the byte 0xff; save the file as UTF-8",
        ),
    ],
)
def test_one_fault_of_mooncake(trace, faults, content, expected):
    assert faults(trace(content), read_mooncake) == [expected]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"arrival_s": "gone"}, "t:1: arrival_s: wanted seconds, 0 or more, got nothing"),
        ({"arrival_s": "gone", "arrived_at": "x"}, "t:1: arrived_at: wanted seconds, 0 or more, got 'x'"),
        (
            {"arrival_s": 1_700_000_000},
            "t:1: arrival_s: wanted at most 1,000,000,000 seconds after the start of the trace, got 1700000000",
        ),
        ({"prompt_len": "gone"}, f"t:1: prompt_len: wanted {TOKENS}, got nothing"),
        ({"prompt_len": "gone", "input_len": []}, f"t:1: input_len: wanted {TOKENS}, got a list of 0"),
        (
            {"output_len": "gone", "num_decode_tokens": {}},
            f"t:1: num_decode_tokens: wanted {TOKENS}, got an object",
        ),
        ({"priority": 0.5}, "t:1: priority: wanted a whole number, got 0.5"),
    ],
)
def test_one_fault_of_lengths(trace, faults, changes, expected):
    row = {"arrival_s": 1, "prompt_len": 1, "output_len": 1} | changes
    content = json.dumps({key: value for key, value in row.items() if value != "gone"})
    assert faults(trace(content), read_jsonl) == [expected]


def test_a_fault_at_the_end_is_told_before_a_request_is_made_and_the_rest_is_counted(trace):
    bad = line(output_length=0) * 25
    path = trace(line() * 1000 + bad)
    with pytest.raises(TraceError) as caught:
        generate(WorkloadSpec(dataset_name="mooncake", dataset_path=str(path)), 1000, 0)
    assert len(caught.value.faults) == 21
    assert caught.value.faults[0].startswith(f"{path}:1001: output_length: wanted")
    assert caught.value.faults[20] == "… and 5 more"


def test_a_trace_cut_before_its_fault_is_right(trace):
    path = trace(line() * 3 + line(output_length=0))
    assert len(requests_of(path, dataset_name="mooncake", num_prompts=3)) == 3


def test_a_trace_that_is_changed_while_it_is_simulated_is_refused(trace):
    checked = Trace(trace(line() * 3), read_mooncake)
    path = trace(line() * 2)
    with pytest.raises(TraceError) as caught:
        list(checked)
    assert str(caught.value) == (
        f"{path}: wanted 3 requests as when it was checked, got 2; do not change a trace while it is simulated"
    )
    trace(line() + line(output_length=0) + line())
    with pytest.raises(TraceError, match="t:2: output_length: wanted a whole number"):
        list(checked)


def test_a_pipe_is_refused_for_it_cannot_be_read_twice(tmp_path):
    read_end, write_end = os.pipe()
    os.close(write_end)
    path = Path(f"/dev/fd/{read_end}")
    with pytest.raises(TraceError, match="wanted a file that can be read twice, got a pipe or device"):
        Trace(path, read_mooncake)
    os.close(read_end)
