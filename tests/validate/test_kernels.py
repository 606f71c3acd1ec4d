"""``simkv validate kernels``: two tables of held-out errors, as text and as JSON."""

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from simkv.calibrate.collectives import CollectiveCalibration
from simkv.calibrate.measurements import held_out, validate
from simkv.calibrate.readers.silicon import Tables, split_tables
from simkv.cli import app
from simkv.cost.kernels.collectives import RingParameters, ring_seconds
from tests.calibrate.synthetic import table_of

TRUE = RingParameters(6e-6, 2e-6, {2: 3e11, 4: 3.5e11, 8: 4e11}, 0.8, 8e-6, 1e-6, 1e6, 0.5)


def collectives(backend="nccl"):
    rows = pd.DataFrame(
        [(n, 512 << i) for n in (2, 4, 8) for i in range(20)], columns=["world_size", "num_bytes"]
    )
    seconds = [float(ring_seconds(TRUE, "all_reduce", n, size)) for n, size in rows.itertuples(index=False)]
    rows = rows.assign(op="all_reduce", backend=backend, seconds=seconds, device="imaginary", dtype="float16")
    return validate(rows, "synthetic")


@pytest.fixture(scope="module")
def tables():
    return Tables(table_of("gemm/bfloat16", "prefill_attention/fp8", noise=0.02), collectives())


@pytest.fixture
def answer(tables, monkeypatch):
    monkeypatch.setattr("simkv.validate.kernels.read_silicon", lambda *arguments: tables)

    def run(*options):
        done = CliRunner().invoke(app, ["validate", "kernels", "--system", "h100_sxm", *options])
        assert done.exit_code == 0, done.output
        return done.output

    return run


def test_json_has_groups_with_both_metrics(answer):
    found = json.loads(answer("--json"))
    assert found["rows"] == []
    assert set(found["groups"][0]) == {"group", "metric", "n", "mape", "median", "p90"}
    names = {(row["group"], row["metric"]) for row in found["groups"]}
    expected = ("gemm/bfloat16", "prefill_attention/fp8", "all_reduce_nccl")
    assert names == {(group, metric) for group in expected for metric in ("physical", "residual")}
    assert all(row["median"] < 0.05 for row in found["groups"])
    assert {row["group"] for row in found["held_out_weights"]} == {"gemm/bfloat16"}


def test_points_on_request(answer):
    found = json.loads(answer("--json", "--points"))
    sizes = {row["group"]: row["n"] for row in found["groups"]}
    assert len(found["rows"]) == sum(sizes.values())
    assert {"group", "m", "n", "k", "seconds", "physical", "residual", "mark"} <= set(found["rows"][0])


def test_text_has_two_tables(answer):
    assert answer().count("MAPE") == 2


def test_a_ring_is_met_at_sizes_that_were_held_out():
    measured = collectives()
    score = CollectiveCalibration().fit(measured, split=held_out).score(measured)
    assert score.row("all_reduce_nccl", "physical").median < 0.02


def test_one_table_is_divided(tables):
    both = pd.concat([tables.kernels.frame, tables.collectives.frame], ignore_index=True)
    kernels, between = split_tables(validate(both, "both"))
    assert len(kernels.frame) == len(tables.kernels.frame)
    assert len(between.frame) == len(tables.collectives.frame)
