"""Error tables count held-out points only, spikes included."""

import numpy as np
import pytest

from simkv.calibrate.fit import Calibration
from simkv.calibrate.measurements import held_out
from tests.calibrate.synthetic import GROUP, HARDWARE, table_of

NAME = "prefill_attention/fp8"


@pytest.fixture(scope="module")
def measurements():
    return table_of(NAME, noise=0.05)


@pytest.fixture(scope="module")
def scored(measurements):
    return Calibration(HARDWARE, (GROUP[NAME],)).fit(measurements, split=held_out).score(measurements)


def test_points_are_the_reported_held_out_ones(scored, measurements):
    rows = measurements.of("prefill_attention")
    expected = rows[held_out(rows, "prefill_attention") & (rows["chunk"] >= 512)]
    assert len(scored.points[NAME]) == len(expected) == scored.row(NAME, "physical").num_points


def test_errors_are_those_of_the_points(scored):
    points = scored.points[NAME]
    for metric in ("physical", "residual"):
        errors = np.abs(points[metric] / points["seconds"] - 1)
        row = scored.row(NAME, metric)
        assert (row.median, row.p90, row.mape) == pytest.approx(
            (errors.median(), errors.quantile(0.9), errors.mean())
        )
        assert 0.01 < row.median < 0.1


def test_ranges_partition_the_points(scored):
    rows = [row for row in scored.rows if row.metric == "physical" and row.range != "all"]
    assert sum(row.num_points for row in rows) == scored.row(NAME, "physical").num_points
    assert [row.range for row in rows] == ["chunk 1-1024", "chunk 1025-4096", "chunk 4097-12288"]


def test_a_table_and_a_text(scored):
    assert list(scored.frame()["group"].unique()) == [NAME]
    text = scored.to_text()
    assert text.splitlines()[0].split() == ["group", "range", "n", "median", "p90", "MAPE"]
    assert len(text.splitlines()) == 1 + len(scored.rows)
    with pytest.raises(KeyError):
        scored.row("gemm/fp8", "physical")
