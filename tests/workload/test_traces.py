import contextlib
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.errors import TraceError
from simkv.workload import TraceRow, read_azure

REPO = Path(__file__).parents[2]
DATA = REPO / "tests" / "data"
AZURE_CONV = REPO.parent / "shared" / "traces" / "azure_conv_2023.csv"
TIMESTAMP_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
SECONDS_HEADER = "arrived_at,num_prefill_tokens,num_decode_tokens\n"
LAYOUTS = f"{TIMESTAMP_HEADER.strip()} or {SECONDS_HEADER.strip()}"
TIME = "a time such as 2023-11-16 18:15:46.6805900"
TOKENS = "a whole number of tokens, 1 or more"


@pytest.fixture
def trace(tmp_path):
    def write(content: str | bytes) -> Path:
        path = tmp_path / "t.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def faults(path: Path) -> list[str]:
    """The faults of a trace without the folder it is in."""
    with pytest.raises(TraceError) as caught:
        read_azure(path)
    assert str(caught.value) == "\n".join(caught.value.faults)
    return [fault.replace(str(path), "t.csv") for fault in caught.value.faults]


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
    path = tmp_path_factory.mktemp("trace") / "t.csv"
    path.write_text(SECONDS_HEADER + "".join(f"{t / 1e6:.6f},{p},{o}\n" for t, p, o in rows))
    assert read_azure(path) == [TraceRow(t * 1000, p, o) for t, p, o in rows]


@given(st.integers(1, 40))
def test_a_cut_trace_is_the_beginning_of_the_whole(max_rows):
    path = DATA / "azure_sample_timestamp.csv"
    assert read_azure(path, max_rows) == read_azure(path)[:max_rows]


@pytest.mark.skipif(not AZURE_CONV.exists(), reason="azure_conv_2023.csv is not part of the repository")
def test_the_whole_conversation_trace_of_2023_loads_fast():
    started = time.perf_counter()
    rows = read_azure(AZURE_CONV)
    assert time.perf_counter() - started < 1  # 0.05 s; the limit allows for a busy machine
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


def test_missing_file(tmp_path):
    path = tmp_path / "t.csv"
    assert faults(path) == ["t.csv: wanted a trace file, got No such file or directory"]


def test_a_folder(tmp_path):
    assert faults(tmp_path) == ["t.csv: wanted a trace file, got Is a directory"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", f"t.csv:1: header: wanted {LAYOUTS}, got an empty file"),
        ("\n1,2,3\n", f"t.csv:1: header: wanted {LAYOUTS}, got an empty line"),
        ("a,b\n1,2\n", f"t.csv:1: header: wanted {LAYOUTS}, got 'a,b'"),
        ("TIMESTAMP,ContextTokens\n", f"t.csv:1: header: wanted {LAYOUTS}, got 'TIMESTAMP,ContextTokens'"),
        (SECONDS_HEADER, "t.csv:2: arrived_at: wanted at least one request, got the end of the file"),
        (SECONDS_HEADER + "0,1\n", "t.csv:2: row: wanted 3 columns, got 2"),
        (SECONDS_HEADER + "0,1,234,5\n", "t.csv:2: row: wanted 3 columns, got 4"),
        (SECONDS_HEADER + "x,1,1\n", "t.csv:2: arrived_at: wanted seconds, 0 or more, got 'x'"),
        (SECONDS_HEADER + "nan,1,1\n", "t.csv:2: arrived_at: wanted seconds, 0 or more, got 'nan'"),
        (SECONDS_HEADER + "inf,1,1\n", "t.csv:2: arrived_at: wanted seconds, 0 or more, got 'inf'"),
        (SECONDS_HEADER + "-1,1,1\n", "t.csv:2: arrived_at: wanted seconds, 0 or more, got '-1'"),
        (SECONDS_HEADER + "1_0,1,1\n", "t.csv:2: arrived_at: wanted seconds, 0 or more, got '1_0'"),
        (SECONDS_HEADER + ",1,1\n", "t.csv:2: arrived_at: wanted seconds, 0 or more, got nothing"),
        (TIMESTAMP_HEADER + "12.5,1,1\n", f"t.csv:2: TIMESTAMP: wanted {TIME}, got '12.5'"),
        (
            TIMESTAMP_HEADER + "2023-02-31 00:00:00,1,1\n",
            f"t.csv:2: TIMESTAMP: wanted {TIME}, got '2023-02-31 00:00:00'",
        ),
        (SECONDS_HEADER + "0,0,1\n", f"t.csv:2: num_prefill_tokens: wanted {TOKENS}, got '0'"),
        (SECONDS_HEADER + "0,-3,1\n", f"t.csv:2: num_prefill_tokens: wanted {TOKENS}, got '-3'"),
        (SECONDS_HEADER + "0,1,NaN\n", f"t.csv:2: num_decode_tokens: wanted {TOKENS}, got 'NaN'"),
        (SECONDS_HEADER + "0,1,1.5\n", f"t.csv:2: num_decode_tokens: wanted {TOKENS}, got '1.5'"),
        (SECONDS_HEADER + "0,1,1_0\n", f"t.csv:2: num_decode_tokens: wanted {TOKENS}, got '1_0'"),
        (SECONDS_HEADER + "0,1,²\n", f"t.csv:2: num_decode_tokens: wanted {TOKENS}, got '²'"),
        (SECONDS_HEADER + "0,1, \n", f"t.csv:2: num_decode_tokens: wanted {TOKENS}, got nothing"),
        (
            SECONDS_HEADER + "0,1," + "x" * 90,
            f"t.csv:2: num_decode_tokens: wanted {TOKENS}, got '{'x' * 40}…'",
        ),
        (
            SECONDS_HEADER + "1,1,1\n3,1,1\n2,1,1\n",
            "t.csv:4: arrived_at: wanted a time not before '3' of the request above, got '2'; "
            "sort the file by arrived_at",
        ),
        (
            TIMESTAMP_HEADER + "2023-11-16 18:15:46.2,1,1\n2023-11-16 18:15:46.1,1,1\n",
            "t.csv:3: TIMESTAMP: wanted a time not before '2023-11-16 18:15:46.2' of the request above, "
            "got '2023-11-16 18:15:46.1'; sort the file by TIMESTAMP",
        ),
        (
            SECONDS_HEADER.encode() + b"0,1,1\n1,\xff,1\n",
            "t.csv:3: text: wanted UTF-8, got the byte 0xff; save the file as UTF-8",
        ),
        (
            "\ufeff".encode("utf-16"),
            "t.csv:1: text: wanted UTF-8, got the byte 0xff; save the file as UTF-8",
        ),
        (
            SECONDS_HEADER + '0,"1,1\n',
            "t.csv:2: text: wanted comma-separated values, got unexpected end of data",
        ),
    ],
)
def test_one_fault(trace, content, expected):
    assert faults(trace(content)) == [expected]


def test_every_fault_of_a_row_and_of_a_file_is_told_with_its_line(trace):
    assert faults(trace(SECONDS_HEADER + "x,0,y\n\n1,1,1\n2,2\n")) == [
        "t.csv:2: arrived_at: wanted seconds, 0 or more, got 'x'",
        f"t.csv:2: num_prefill_tokens: wanted {TOKENS}, got '0'",
        f"t.csv:2: num_decode_tokens: wanted {TOKENS}, got 'y'",
        "t.csv:5: row: wanted 3 columns, got 2",
    ]


def test_the_first_20_faults_are_told_and_the_rest_counted(trace):
    got = faults(trace(SECONDS_HEADER + "0,0,1\n" * 1234))
    assert len(got) == 21
    assert got[19].startswith("t.csv:21: num_prefill_tokens")
    assert got[20] == "… and 1,214 more"
    assert len(faults(trace(SECONDS_HEADER + "0,0,1\n" * 20))) == 20


@given(st.binary(max_size=200))
def test_any_bytes_give_rows_or_a_trace_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("trace") / "t.csv"
    for header in ("", SECONDS_HEADER, TIMESTAMP_HEADER):
        path.write_bytes(header.encode() + content)
        with contextlib.suppress(TraceError):
            assert read_azure(path)
