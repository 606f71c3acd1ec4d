"""The schema of measured kernels: what is refused, what survives a file, what no fit may see."""

import zlib

import pandas as pd
import pytest

from simkv.calibrate.measurements import (
    COLUMNS,
    held_out,
    held_out_weights,
    read_measurements,
    validate,
)
from simkv.calibrate.tables import write_measurements
from simkv.errors import TraceError
from tests.calibrate.synthetic import rows_of, table_of

GOOD = {"op": "gemm", "m": 1, "n": 512, "k": 512, "dtype": "bfloat16", "seconds": 1e-5, "device": "x"}


def table(**changes):
    return pd.DataFrame([{**GOOD, **changes}])


def test_a_good_row_gets_all_columns():
    assert tuple(validate(table(), "t").frame.columns) == COLUMNS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"op": "gem"}, "op: wanted one of gemm, .*got 'gem'; did you mean 'gemm'?"),
        ({"m": None}, "row 0: gemm needs m, got None"),
        ({"n": -1}, "row 0: gemm needs n, got -1"),
        ({"k": "wide"}, "row 0: gemm needs k, got 'wide'"),
        ({"seconds": 0.0}, "row 0: seconds: wanted a positive number, got 0.0"),
        ({"seconds": float("inf")}, "row 0: seconds: wanted a positive number, got inf"),
        ({"laten": 3}, "unknown column 'laten'"),
    ],
)
def test_faults_say_where_and_what(changes, message):
    with pytest.raises(TraceError, match=message):
        validate(table(**changes), "t")


def test_missing_columns_are_named():
    with pytest.raises(TraceError, match="column 'device' is missing"):
        validate(table().drop(columns="device"), "t")


def test_the_first_twenty_faults_are_listed():
    with pytest.raises(TraceError) as caught:
        validate(pd.concat([table(m=-1)] * 30, ignore_index=True), "t")
    assert len(caught.value.faults) == 21
    assert "and 10 more faults" in caught.value.faults[-1]


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_a_table_survives_a_file(tmp_path, name):
    measurements, path = table_of("gemm/fp8", "decode_attention/bfloat16"), tmp_path / name
    if name.endswith("csv"):
        measurements.frame.to_csv(path, index=False)
    else:
        write_measurements(measurements, path)
    again = read_measurements(path)
    for op in ("gemm", "decode_attention"):
        ours, theirs = measurements.of(op), again.of(op)
        assert len(ours) == len(theirs)
        assert theirs["seconds"].to_numpy(float) == pytest.approx(ours["seconds"].to_numpy(float), rel=1e-6)


def test_files_that_are_none_are_refused(tmp_path):
    (tmp_path / "t.parquet").write_text("not parquet")
    with pytest.raises(TraceError, match="wanted measurements in Parquet or CSV"):
        read_measurements(tmp_path / "t.parquet")
    with pytest.raises(TraceError, match="cannot be read"):
        read_measurements(tmp_path / "none.csv")
    with pytest.raises(TraceError, match="cannot be written"):
        write_measurements(table_of("gemm/fp8"), tmp_path / "no" / "folder.parquet")


def test_held_out_points_follow_the_rule_whatever_the_column_types():
    rows = rows_of("gemm/bfloat16")
    drawn = held_out(rows, "gemm")
    names = [f"{m},{n},{k}" for m, n, k in rows[["m", "n", "k"]].to_numpy().tolist()]
    assert drawn.tolist() == [zlib.crc32(name.encode()) % 10 < 3 for name in names]
    assert 0.2 < drawn.mean() < 0.4
    as_floats = rows.astype(dict.fromkeys("mnk", float))
    assert held_out(as_floats, "gemm").tolist() == drawn.tolist()
    assert held_out(rows.astype(dict.fromkeys("mnk", "Int32")), "gemm").tolist() == drawn.tolist()


def test_held_out_weights_are_whole_columns():
    rows = rows_of("gemm/bfloat16").assign(drawn=held_out_weights)
    assert rows.groupby(["n", "k"])["drawn"].nunique().eq(1).all()
    assert 0 < rows["drawn"].mean() < 1
