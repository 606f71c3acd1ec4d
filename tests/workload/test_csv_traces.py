import contextlib
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.errors import TraceError
from simkv.workload import Trace, TraceRow, csv_traces

REPO = Path(__file__).parents[2]
DATA = REPO / "tests" / "data"
AZURE_CONV = REPO.parent / "shared" / "traces" / "azure_conv_2023.csv"
TIMESTAMP_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
SECONDS_HEADER = "arrived_at,num_prefill_tokens,num_decode_tokens\n"
LAYOUTS = f"{TIMESTAMP_HEADER.strip()} or {SECONDS_HEADER.strip()}"
TIME = "a time such as 2023-11-16 18:15:46.6805900"
TOKENS = "a whole number of tokens, 1 or more"


def read_azure(path: Path, max_rows: int | None = None) -> list[TraceRow]:
    return list(Trace(path, csv_traces.read_azure, max_rows))


def read_burstgpt(path: Path) -> list[TraceRow]:
    return list(Trace(path, csv_traces.read_burstgpt))


# laws


def test_both_layouts_give_the_same_requests():
    rows = read_azure(DATA / "azure_sample_timestamp.csv")
    assert rows == read_azure(DATA / "azure_sample_seconds.csv")
    assert len(rows) == 20
    assert rows[0].arrival_ns == 0
    assert rows[2].arrival_ns == 1_561_464_900  # ticks of 100 ns are kept, datetime alone would cut them


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 10**6), st.integers(1, 10**5)), min_size=1))
def test_what_is_written_is_read(tmp_path_factory, rows):
    rows = sorted(rows)
    path = tmp_path_factory.mktemp("trace") / "t"
    path.write_text(SECONDS_HEADER + "".join(f"{t / 1e6:.6f},{p},{o}\n" for t, p, o in rows))
    assert read_azure(path) == [TraceRow(t * 1000, p, o) for t, p, o in rows]


@given(st.integers(1, 40))
def test_a_cut_trace_is_the_beginning_of_the_whole(max_rows):
    path = DATA / "azure_sample_timestamp.csv"
    assert read_azure(path, max_rows) == read_azure(path)[:max_rows]


@pytest.mark.skipif(not AZURE_CONV.exists(), reason="azure_conv_2023.csv is not part of the repository")
def test_the_whole_conversation_trace_of_2023_loads_fast():
    started = time.process_time()
    rows = read_azure(AZURE_CONV)
    assert time.process_time() - started < 1  # 0.15 s for reading it twice
    assert len(rows) == 19_366
    assert rows[0] == TraceRow(0, 374, 44)
    assert rows[-1].arrival_ns == 3_501_721_937_000


# what is accepted


def test_seconds_are_kept_as_given(trace):
    assert read_azure(trace(SECONDS_HEADER + "12.5,3,4\n")) == [TraceRow(12_500_000_000, 3, 4)]


def test_timestamps_with_zones_fewer_decimals_and_across_midnight(trace):
    path = trace(
        TIMESTAMP_HEADER
        + "2024-05-10 23:59:59.5+00:00,1,1\n2024-05-11T00:00:00Z,2,2\n2024-05-11 01:00:01+01:00,3,3\n"
    )
    assert [row.arrival_ns for row in read_azure(path)] == [0, 500_000_000, 1_500_000_000]


def test_columns_in_another_order_further_columns_blank_lines_crlf_and_a_byte_order_mark(trace):
    path = trace(
        b"\xef\xbb\xbfGeneratedTokens, TIMESTAMP ,user,ContextTokens\r\n"
        b'5,2023-11-16 18:15:46,"a, b",6\r\n\r\n7,2023-11-16 18:15:47,c,8\r\n'
    )
    assert read_azure(path) == [TraceRow(0, 6, 5), TraceRow(10**9, 8, 7)]


# what is refused: the messages, word for word


def test_missing_file(tmp_path, faults):
    path = tmp_path / "t"
    assert faults(path, csv_traces.read_azure) == ["t: wanted a trace file, got No such file or directory"]


def test_a_folder(tmp_path, faults):
    assert faults(tmp_path, csv_traces.read_azure) == ["t: wanted a trace file, got Is a directory"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", f"t:1: header: wanted {LAYOUTS}, got an empty file"),
        ("\n1,2,3\n", f"t:1: header: wanted {LAYOUTS}, got an empty line"),
        ("a,b\n1,2\n", f"t:1: header: wanted {LAYOUTS}, got 'a,b'"),
        ("TIMESTAMP,ContextTokens\n", f"t:1: header: wanted {LAYOUTS}, got 'TIMESTAMP,ContextTokens'"),
        (SECONDS_HEADER, "t:2: arrived_at: wanted at least one request, got the end of the file"),
        (SECONDS_HEADER + "0,1\n", "t:2: row: wanted 3 columns, got 2"),
        (SECONDS_HEADER + "0,1,234,5\n", "t:2: row: wanted 3 columns, got 4"),
        (SECONDS_HEADER + "x,1,1\n", "t:2: arrived_at: wanted seconds, 0 or more, got 'x'"),
        (SECONDS_HEADER + "nan,1,1\n", "t:2: arrived_at: wanted seconds, 0 or more, got 'nan'"),
        (SECONDS_HEADER + "inf,1,1\n", "t:2: arrived_at: wanted seconds, 0 or more, got 'inf'"),
        (SECONDS_HEADER + "-1,1,1\n", "t:2: arrived_at: wanted seconds, 0 or more, got '-1'"),
        (SECONDS_HEADER + "1_0,1,1\n", "t:2: arrived_at: wanted seconds, 0 or more, got '1_0'"),
        (SECONDS_HEADER + ",1,1\n", "t:2: arrived_at: wanted seconds, 0 or more, got nothing"),
        (TIMESTAMP_HEADER + "12.5,1,1\n", f"t:2: TIMESTAMP: wanted {TIME}, got '12.5'"),
        (
            TIMESTAMP_HEADER + "2023-02-31 00:00:00,1,1\n",
            f"t:2: TIMESTAMP: wanted {TIME}, got '2023-02-31 00:00:00'",
        ),
        (SECONDS_HEADER + "0,0,1\n", f"t:2: num_prefill_tokens: wanted {TOKENS}, got '0'"),
        (SECONDS_HEADER + "0,-3,1\n", f"t:2: num_prefill_tokens: wanted {TOKENS}, got '-3'"),
        (SECONDS_HEADER + "0,1,NaN\n", f"t:2: num_decode_tokens: wanted {TOKENS}, got 'NaN'"),
        (SECONDS_HEADER + "0,1,1.5\n", f"t:2: num_decode_tokens: wanted {TOKENS}, got '1.5'"),
        (SECONDS_HEADER + "0,1,1_0\n", f"t:2: num_decode_tokens: wanted {TOKENS}, got '1_0'"),
        (SECONDS_HEADER + "0,1,²\n", f"t:2: num_decode_tokens: wanted {TOKENS}, got '²'"),
        (SECONDS_HEADER + "0,1, \n", f"t:2: num_decode_tokens: wanted {TOKENS}, got nothing"),
        (
            SECONDS_HEADER + "0,1," + "x" * 90,
            f"t:2: num_decode_tokens: wanted {TOKENS}, got '{'x' * 40}…'",
        ),
        (
            SECONDS_HEADER + "0,100000001,1\n",
            "t:2: num_prefill_tokens: wanted at most 100,000,000 tokens, got '100000001'",
        ),
        (
            SECONDS_HEADER + "1e300,1,1\n",
            "t:2: arrived_at: wanted at most 1,000,000,000 seconds after the start of the trace, got '1e300'",
        ),
        (
            TIMESTAMP_HEADER + "1970-01-01 00:00:00,1,1\n2023-11-16 18:15:46,1,1\n",
            "t:3: TIMESTAMP: wanted at most 1,000,000,000 seconds after the first request, "
            "got '2023-11-16 18:15:46'",
        ),
        (
            SECONDS_HEADER + "1,1,1\n3,1,1\n2,1,1\n",
            "t:4: arrived_at: wanted a time not before '3' of the request above, got '2'; "
            "sort the file by arrived_at",
        ),
        (
            TIMESTAMP_HEADER + "2023-11-16 18:15:46.2,1,1\n2023-11-16 18:15:46.1,1,1\n",
            "t:3: TIMESTAMP: wanted a time not before '2023-11-16 18:15:46.2' of the request above, "
            "got '2023-11-16 18:15:46.1'; sort the file by TIMESTAMP",
        ),
        (
            SECONDS_HEADER.encode() + b"0,1,1\n1,\xff,1\n",
            "t:3: text: wanted UTF-8, got the byte 0xff; save the file as UTF-8",
        ),
        (
            "\ufeff".encode("utf-16"),
            "t:1: text: wanted UTF-8, got the byte 0xff; save the file as UTF-8",
        ),
        (
            SECONDS_HEADER + '0,"1,1\n',
            "t:2: text: wanted comma-separated values, got unexpected end of data",
        ),
    ],
)
def test_one_fault(trace, faults, content, expected):
    assert faults(trace(content), csv_traces.read_azure) == [expected]


def test_every_fault_of_a_row_and_of_a_file_is_told_with_its_line(trace, faults):
    path = trace(SECONDS_HEADER + "x,0,y\n\n1,1,1\n2,2\n")
    assert faults(path, csv_traces.read_azure) == [
        "t:2: arrived_at: wanted seconds, 0 or more, got 'x'",
        f"t:2: num_prefill_tokens: wanted {TOKENS}, got '0'",
        f"t:2: num_decode_tokens: wanted {TOKENS}, got 'y'",
        "t:5: row: wanted 3 columns, got 2",
    ]


def test_the_first_20_faults_are_told_and_the_rest_counted(trace, faults):
    got = faults(trace(SECONDS_HEADER + "0,0,1\n" * 1234), csv_traces.read_azure)
    assert len(got) == 21
    assert got[19].startswith("t:21: num_prefill_tokens")
    assert got[20] == "… and 1,214 more"
    assert len(faults(trace(SECONDS_HEADER + "0,0,1\n" * 20), csv_traces.read_azure)) == 20


@given(st.binary(max_size=200))
def test_any_bytes_give_rows_or_a_trace_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("trace") / "t"
    for header in ("", SECONDS_HEADER, TIMESTAMP_HEADER):
        path.write_bytes(header.encode() + content)
        with contextlib.suppress(TraceError):
            assert read_azure(path)


# BurstGPT


def test_burstgpt_begins_at_0_and_leaves_failed_requests_out():
    trace = Trace(DATA / "burstgpt_sample.csv", csv_traces.read_burstgpt)
    assert trace.num_skipped == 2
    assert trace.num_rows == 5
    assert list(trace) == [
        TraceRow(0, 310, 22),
        TraceRow(13 * 10**9, 1204, 187),
        TraceRow(50 * 10**9, 57, 410),
        TraceRow(96_500_000_000, 2211, 64),
        TraceRow(185 * 10**9, 640, 1),
    ]
    assert trace.last_arrival_ns == 185 * 10**9


def test_burstgpt_with_the_columns_of_its_third_file(trace):
    header = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    path = trace(header + "19440110.0,,4,GPT-4,906,446,1352,API log\n")
    assert read_burstgpt(path) == [TraceRow(0, 906, 446)]


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 9), st.integers(0, 3)), min_size=1))
def test_a_cut_counts_requests_that_did_not_fail(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("trace") / "t"
    header = "Timestamp,Request tokens,Response tokens\n"
    path.write_text(header + "".join(f"{t},{p},{o}\n" for t, p, o in sorted(rows)) + "100,1,1\n")
    kept = [(t, p, o) for t, p, o in sorted(rows) if o] + [(100, 1, 1)]
    for max_rows in range(1, len(kept) + 1):
        got = list(Trace(path, csv_traces.read_burstgpt, max_rows))
        assert [row[1:3] for row in got] == [(p, o) for _, p, o in kept[:max_rows]]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a\n", "t:1: header: wanted Timestamp,Request tokens,Response tokens, got 'a'"),
        ("1,2,0\n", "t:3: Timestamp: wanted at least one request, got failed ones only"),
        ("1,0,2\n", f"t:2: Request tokens: wanted {TOKENS}, got '0'"),
        ("1,2,-1\n", f"t:2: Response tokens: wanted {TOKENS}, got '-1'"),
        ("x,2,1\n", "t:2: Timestamp: wanted seconds, 0 or more, got 'x'"),
    ],
)
def test_faults_of_burstgpt(trace, faults, content, expected):
    header = "" if content == "a\n" else "Timestamp,Request tokens,Response tokens\n"
    assert faults(trace(header + content), csv_traces.read_burstgpt) == [expected]
