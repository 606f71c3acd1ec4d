# ruff: noqa: E501 - a case a line, its message whole, so that it can be searched for
"""From Python: rows, their order and their columns; searches; faults of the question."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import simkv
from simkv.errors import ScenarioError
from simkv.spec.sweep import FindSpec, SweepSpec
from simkv.sweeping.executor import processes, serial
from simkv.sweeping.study import prepare
from simkv.sweeping.trial import run_trial
from tests.sweeping.worlds import TINY, files_of, write_tiny

GRID = {"workload.request_rate": [1, 5], "parallel.tensor_parallel_size": [1, 3, 2], "seed": [0]}


@pytest.fixture
def tiny():
    return simkv.parse_scenario(TINY)


def sweep(scenario, grid=None, **options):
    return simkv.sweep(scenario, grid, **{"jobs": 1, **options})


def test_a_row_for_each_combination_in_the_order_of_the_grid(tiny):
    table = sweep(tiny, GRID)
    assert table["workload.request_rate"].tolist() == [1, 1, 1, 5, 5, 5]
    assert table["parallel.tensor_parallel_size"].tolist() == [1, 3, 2] * 2
    assert list(table)[:6] == [
        "workload.request_rate", "parallel.tensor_parallel_size", "layout", "status", "reason", "binds",
    ]  # fmt: skip
    assert table["status"].tolist() == ["done", "refused", "done"] * 2
    assert table["layout"].dropna().tolist() == ["TP1", "TP2"] * 2


def test_a_row_has_what_a_run_and_a_plan_of_its_scenario_say(tiny):
    row = sweep(tiny, GRID).iloc[5]
    scenario = tiny.replace(workload={"request_rate": 5}, parallel={"tensor_parallel_size": 2})
    summary, plan = simkv.simulate(scenario).summary, simkv.plan(scenario)
    for name, value in summary.items():
        if name == "max_concurrency":  # the plan's, not the clients'
            assert row[name] == plan.ledger.max_concurrency
        elif name == "stage_utilization":
            assert row["max_stage_utilization"] == max(value)
        elif value is not None:
            assert row[name] == value, name
    assert row["kv_tokens"] == plan.ledger.kv_tokens
    assert row["users_that_fit"] == int(plan.ledger.max_concurrency)


def test_points_that_cannot_work_say_why(tiny):
    table = sweep(tiny, {"model": ["llama-3.1-8b", "llama-3.1-70b"], "engine.max_model_len": [4096, 10**6]})
    assert table["status"].tolist() == ["done", "refused", "infeasible", "refused"]
    assert table["reason"][1].startswith("engine.max_model_len: 1000000 is beyond the 131072 positions")
    assert table["reason"][2].startswith("weights of ")
    assert table["reason"][2].endswith("parallel.pipeline_parallel_size=2")
    assert table.loc[2, "num_gpu_blocks"] == 0
    assert math.isnan(table.loc[2, "mean_ttft_ms"])


def test_columns_have_types(tiny):
    table = sweep(
        tiny,
        {
            "engine.kv_cache_dtype": ["auto", "fp8"],
            "workload.request_rate": [0.5, 2],
            "parallel": [{"tensor_parallel_size": 2}, {"pipeline_parallel_size": 2}],
            "workload.ignore_eos": [True, False],
        },
    )
    assert table["workload.request_rate"].dtype == np.float64
    assert table["completed"].dtype == "Int64"
    assert table["workload.ignore_eos"].dtype == "boolean"
    assert table["parallel"].unique().tolist() == [
        '{"tensor_parallel_size": 2}',
        '{"pipeline_parallel_size": 2}',
    ]
    assert table["layout"].unique().tolist() == ["TP2", "TP1×PP2"]


def test_equal_points_are_run_once_and_are_rows_each(tiny):
    calls = []

    def counting(function, tasks):
        calls.extend(tasks)
        return serial(function, tasks)

    table = sweep(tiny, {"engine.kv_cache_dtype": ["auto", "bfloat16"], "seed": [0, 0]}, executor=counting)
    assert (len(table), len(calls)) == (4, 1)
    assert table["mean_ttft_ms"].nunique() == 1


def test_the_table_is_the_same_whoever_works_it_out(tmp_path, tiny):
    def backwards(function, tasks):
        return iter([function(task) for task in reversed(tasks)])

    find = {"find": "max workload.request_rate", "slo": {"ttft_p99_ms": 20}}
    grid = {"parallel.tensor_parallel_size": [1, 3, 2], "seed": [0, 1]}
    tables = []
    for name, executor in (("a", serial), ("b", processes(2)), ("c", backwards)):
        tables.append(sweep(tiny, grid, folder=tmp_path / name, executor=executor, **find))
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b") == files_of(tmp_path / "c")
    pd.testing.assert_frame_equal(tables[0], tables[1])
    read = pd.read_parquet(tmp_path / "a" / "points.parquet")
    pd.testing.assert_frame_equal(read, tables[0], check_dtype=False)
    assert len(files_of(tmp_path / "a" / "points")) == 4


def test_the_section_of_a_file_is_the_question_and_arguments_add_to_it(tmp_path):
    section = """
sweep:
  grid: {workload.request_rate: '1:3:1', seed: [0, 1]}
  slo: {ttft_p99_ms: 1000}
"""
    path = write_tiny(tmp_path, section)
    study = prepare(path, {"seed": 7, "engine.block_size": [16, 32]}, slo={"goodput": 0.9})
    assert study.grid == {"workload.request_rate": [1, 2, 3], "seed": [7], "engine.block_size": [16, 32]}
    assert study.swept == ["workload.request_rate", "engine.block_size"]
    assert study.slo == {"ttft_p99_ms": 1000, "goodput": 0.9}
    assert len(study.points) == 6
    scenario = simkv.load_scenario(path)
    again = prepare(scenario, {"seed": 7, "engine.block_size": [16, 32]}, slo={"goodput": 0.9})
    assert again.question == study.question


# Searches


@pytest.mark.parametrize(
    ("find", "slo", "more"),
    [
        ("max workload.request_rate", {"ttft_p99_ms": 20}, {}),
        ("max workload.request_rate", {"e2el_mean_ms": 80, "tpot_mean_ms": 50}, {"parallel": [{}]}),
        ("max workload.max_concurrency", {"ttft_p99_ms": 40}, {"workload.request_rate": [None]}),
        ("max workload.prompt_len", {"ttft_p99_ms": 60}, {}),
        ("min engine.max_num_batched_tokens", {"ttft_p99_ms": 26}, {"engine.max_num_seqs": [8]}),
        ("max workload.request_rate", {"goodput": 0.8}, {"slo.ttft_ms": [12]}),
    ],
)
def test_what_is_found_meets_the_limits_and_more_does_not(tiny, find, slo, more):
    grid = {"workload.num_prompts": [20], **more}
    row = sweep(tiny, grid, find=find, slo=slo).iloc[0]
    study = prepare(tiny, grid, find, slo)
    assert row["status"] == "done"
    for value, meets in ((row["found"], True), (row["fails_at"], False)):
        scenario = study.points[0].scenario.model_copy(deep=True)
        section, _, name = study.find.field.partition(".")
        number = value if name == "request_rate" else int(value)
        trial = run_trial(scenario.replace(**{section: {name: number}}), None, slo)
        assert trial.meets is meets
        if not meets:
            assert ", ".join(trial.misses) == row["fails"]
    low, high = sorted((row["found"], row["fails_at"]))
    assert high <= low * 1.025 or high - low == 1


def test_a_queue_that_does_not_drain_is_never_an_answer(tiny):
    grid = {"workload.num_prompts": [40], "workload.prompt_len": [2000]}
    row = sweep(tiny, grid, find="max workload.request_rate", slo={"ttft_p99_ms": 1e9}).iloc[0]
    assert 0.95 < row["rho"] < 1
    assert row["fails"] == "load 1.00 of capacity, the queue does not drain"
    assert row["notes"].startswith(f"load {row['rho']:.2f} of capacity: so near 1, TTFT depends on how long")
    overloaded = sweep(
        tiny, grid | {"workload.request_rate": row["fails_at"]}, slo={"ttft_p99_ms": 1e9}
    ).iloc[0]
    assert not overloaded["meets_slo"]
    assert overloaded["fails"] == row["fails"]


def test_limits_without_a_search_are_checked(tiny):
    table = sweep(tiny, {"workload.prompt_len": [100, 4000]}, slo={"ttft_p99_ms": 40})
    assert table["meets_slo"].tolist() == [True, False]
    assert table["fails"][1].startswith("ttft_p99_ms ")
    assert table["fails"][1].endswith(" > 40")


def test_a_limit_that_no_value_meets(tiny):
    row = sweep(tiny, find="max workload.request_rate", slo={"ttft_p99_ms": 0.1}).iloc[0]
    assert (row["status"], row["meets_slo"]) == ("done", False)
    assert math.isnan(float(row["found"] or "nan"))
    assert row["reason"].startswith(f"no value found: at {row['fails_at']:g} ttft_p99_ms ")
    assert row["reason"].endswith(" > 0.1")


def test_a_search_over_a_scenario_that_cannot_start(tiny):
    row = sweep(
        tiny, {"model": "llama-3.1-70b"}, find="max workload.request_rate", slo={"ttft_p99_ms": 9}
    ).iloc[0]
    assert row["status"] == "infeasible"
    assert row["reason"].startswith("weights of ")


def test_a_value_at_the_end_of_the_range_is_said_to_be_one(tiny):
    find = {"max": "workload.request_rate", "high": 2}
    row = sweep(tiny, find=find, slo={"ttft_p99_ms": 1000}).iloc[0]
    assert row["found"] == 2
    assert row["notes"] == "2 is the largest tried and meets every limit"


# Faults


@pytest.mark.parametrize(
    ("grid", "find", "slo", "faults"),
    [
        ({"engine.blok_size": [1, 2]}, None, None, ["--set: engine.blok_size: unknown key; did you mean 'block_size'?"]),
        (
            {"parallel.tensor_parallel_size": [3, 5]}, None, None,
            [f"--set: parallel.tensor_parallel_size: {size} does not divide 32 attention heads; use 1, 2, 4, 8, 16 or 32" for size in (3, 5)],
        ),
        ({"workload": None}, None, None, ["workload: missing; 'simkv sweep' needs one"]),
        ({"seed": []}, None, None, ["--set: seed: wanted a list of values, got none"]),
        (
            {}, "workload.request_rate", {"ttft_p99_ms": 1},
            ["--find: wanted max FIELD or min FIELD, such as 'max workload.request_rate', got 'workload.request_rate'"],
        ),
        ({}, "max workload.request_rate 1", {"ttft_p99_ms": 1}, ["--find: wanted LOW:HIGH, such as 0.1:10, got '1'"]),
        ({}, "max workload.request_rate 9:1", {"ttft_p99_ms": 1}, ["--find: low: 9 is above high 1"]),
        ({}, {"low": 1}, {"ttft_p99_ms": 1}, ["--find: wanted exactly one of max: FIELD and min: FIELD"]),
        ({}, {"max": "seed", "hihg": 1}, {"ttft_p99_ms": 1}, ["--find: hihg: unknown key; did you mean 'high'?"]),
        ({}, "max workload.request_rat", {"ttft_p99_ms": 1}, ["find: workload.request_rat: unknown field; did you mean 'request_rate'?"]),
        ({}, "max engine.kv_cache_dtype", {"ttft_p99_ms": 1}, ["find: engine.kv_cache_dtype: wanted a field that holds a number"]),
        ({}, "max engine", {"ttft_p99_ms": 1}, ["find: engine: wanted a field that holds a number"]),
        ({}, "max workload.request_rate", {}, ["find: wanted limits to find it within, such as --slo ttft_p99_ms=3000, got none"]),
        (
            {"seed": [1, 2]}, "max seed", {"ttft_p99_ms": 1},
            ["find: seed is swept as well; give it one value, or search for another"],
        ),
        (
            {"workload.arrival": "inf"}, "max workload.request_rate", {"ttft_p99_ms": 1},
            ["find: workload.request_rate has no effect with arrival: inf; remove arrival"],
        ),
        (
            {"slo": None}, None, {"goodput": 0.9},
            ["--set: slo: wanted a mapping, got nothing"],
        ),
        (
            {"slo": {}}, None, {"goodput": 0.9},
            ["slo: goodput: wanted limits in the scenario's slo (ttft_ms, tpot_ms, e2el_ms), got none"],
        ),
        ({}, None, {"goodput": 95}, ["--slo: goodput: wanted a share of the requests, 0 to 1, got 95"]),
        ({}, None, {"ttft_p99_ms": 0}, ["--slo.ttft_p99_ms: wanted a number above 0, got 0"]),
        (
            {}, None, {"ttft_p99": 3},
            ["--slo: ttft_p99: unknown metric; did you mean 'ttft_p99_ms'?; known: goodput and ttft, tpot, itl, e2el "
             "with _mean, _median, _p50, _p90, _p95, _p99 and _ms, such as ttft_p99_ms"],
        ),
        (
            {}, None, {"p99_ttft_ms": 3},
            ["--slo: p99_ttft_ms: unknown metric; did you mean 'ttft_p99_ms'?; known: goodput and ttft, tpot, itl, e2el "
             "with _mean, _median, _p50, _p90, _p95, _p99 and _ms, such as ttft_p99_ms"],
        ),
    ],
)  # fmt: skip
def test_faults(tiny, grid, find, slo, faults):
    with pytest.raises(ScenarioError) as caught:
        sweep(tiny, grid, find=find, slo=slo)
    assert list(caught.value.faults) == faults


def test_faults_of_a_file_name_its_lines(tmp_path):
    path = write_tiny(tmp_path, "sweep:\n  grid: {seed: []}\n")
    with pytest.raises(ScenarioError) as caught:
        sweep(path)
    assert caught.value.faults == (f"{path}:8: sweep.grid.seed: wanted a list of values, got none",)
    path = write_tiny(tmp_path, "sweep:\n  slo: {ttft_p99_ms: 5}\n  find: {maxx: seed}\n")
    with pytest.raises(ScenarioError) as caught:
        sweep(path)
    assert caught.value.faults[0] == f"{path}:9: sweep.find.maxx: unknown key; did you mean 'max'?"


def test_a_scenario_with_a_sweep_runs_as_any_other(tmp_path):
    path = write_tiny(tmp_path, "sweep:\n  grid: {seed: [1, 2]}\n")
    results = simkv.simulate(simkv.load_scenario(path))
    plain = simkv.simulate(simkv.load_scenario(write_tiny(tmp_path)))
    assert results.summary == plain.summary


def test_the_page_has_every_field_and_column(tiny):
    page = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text(encoding="utf-8")
    table = sweep(tiny, find="max workload.request_rate", slo={"ttft_p99_ms": 20})
    own = set(table) - set(simkv.simulate(tiny).summary)
    assert not {
        name for name in (*FindSpec.model_fields, *SweepSpec.model_fields, *own) if f"`{name}`" not in page
    }
