# ruff: noqa: E501 - a case a line, its message whole, so that it can be searched for
"""The command line: the printed answer, JSON, exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd
import pytest

from simkv.cli import main
from tests.sweeping.worlds import write_tiny


@pytest.fixture
def simkv(monkeypatch, capsys, tmp_path):
    """``simkv sweep tiny.yaml …`` in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    write_tiny(tmp_path)

    def run(*arguments, file="tiny.yaml"):
        monkeypatch.setattr(sys, "argv", ["simkv", "sweep", file, "--jobs", "1", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        return int(caught.value.code or 0), *capsys.readouterr()

    return run


def test_help(simkv):
    code, out, err = simkv("--help")
    assert (code, err) == (0, "")
    assert "Usage: " in out


def test_the_answer_is_printed_and_saved(simkv):
    code, out, err = simkv(
        "--set", "parallel.tensor_parallel_size=1,3,2", "--set", "workload.request_rate=2:8:6"
    )
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split("  ")[0] == "layout"
    assert [line.split()[:2] for line in lines[1:5]] == [
        ["TP2", "8"],
        ["TP1", "8"],
        ["TP2", "2"],
        ["TP1", "2"],
    ]
    assert all("idle (too little load): the busiest stage works " in line for line in lines[1:5])
    assert lines[5:] == [
        "",
        "refused: tensor_parallel_size 3, request_rate 2; tensor_parallel_size 3, request_rate 8: parallel.tensor_parallel_size: "
        "3 does not divide 32 attention heads; use 1, 2, 4, 8, 16 or 32",
    ]
    assert err.splitlines()[0] == "0 of 4 points"
    assert err.splitlines()[-2:] == ["4 of 4 points", "saved in results/tiny-sweep"]
    table = pd.read_csv("results/tiny-sweep/points.csv")
    assert table["layout"].tolist()[:2] == ["TP1", "TP1"]
    assert len(table) == 6


def test_what_is_found_reads_as_an_answer(simkv):
    options = ("--find", "max workload.request_rate", "--slo", "ttft_p99_ms=20", "--slo", "goodput=0.9")
    code, out, _ = simkv("--set", "parallel.tensor_parallel_size=1,2", *options)
    assert code == 0
    question, _, header, first, second, _, *rest = out.splitlines()
    assert question == "tiny: max workload.request_rate with ttft_p99_ms ≤ 20, goodput ≥ 0.9"
    assert header.split("  ")[0] == "layout"
    assert "request_rate" in header
    assert header.endswith("stopped by")
    assert (first.split()[0], second.split()[0]) == ("TP2", "TP1")
    assert "ttft_p99_ms " in second
    assert rest[-1].startswith("Best: TP2 at request_rate ")
    assert "; next TP1 at request_rate " in rest[-1]
    assert rest[-1].endswith(" % less).")


def test_no_value_keeps_the_limits(simkv):
    code, out, _ = simkv("--find", "max workload.request_rate", "--slo", "ttft_p99_ms=0.1")
    assert code == 0
    assert out.splitlines()[-1] == "No point keeps the limits at any workload.request_rate tried."


def test_sort(simkv):
    grid = ("--set", "workload.request_rate=1,8,4")

    def rates(*options):
        _, out, _ = simkv(*grid, *options)
        return [line.split()[1] for line in out.splitlines()[1:4]]

    assert rates() == ["8", "4", "1"]
    assert rates("--sort", "workload.request_rate") == ["8", "4", "1"]
    assert rates("--sort", "ttft_p99_ms")[0] == "1"
    assert rates("--sort", "duration") == ["8", "4", "1"]
    code, out, err = simkv(*grid, "--sort", "outputthroughput")
    assert (code, out) == (2, "")
    assert (
        "error: --sort: wanted a column of the table, got 'outputthroughput'; did you mean 'output_throughput'?"
        in err
    )


def test_json(simkv):
    code, out, _ = simkv(
        "--set", "model=llama-3.1-8b,llama-3.1-70b", "--set", "workload.request_rate=", "--json"
    )
    assert code == 0
    answer = json.loads(out)
    assert (answer["name"], answer["find"], answer["slo"], answer["is_complete"]) == ("tiny", None, {}, True)
    assert [point["status"] for point in answer["points"]] == ["done", "infeasible"]
    assert answer["points"][0]["request_rate"] is None  # all at once: JSON has no infinity


def test_nothing_can_work(simkv):
    code, out, _ = simkv("--set", "model=llama-3.1-70b", "--set", "seed=1,2")
    assert code == 2
    assert out.startswith("infeasible: TP1 with seed 1; TP1 with seed 2: weights of ")


def test_a_second_sweep_needs_another_folder_or_force(simkv):
    assert simkv("--set", "seed=1,2")[0] == 0
    code, out, err = simkv("--set", "seed=1,2,3")
    assert (code, out) == (2, "")
    assert err == (
        "error: results/tiny-sweep: wanted the folder of this sweep, got that of another: "
        "its grid is seed=1,2, not seed=1,2,3; use another -o, or --force to replace it\n"
    )
    code, _, err = simkv("--set", "seed=1,2,3", "--force")
    assert code == 0
    assert len(list(Path("results/tiny-sweep/points").iterdir())) == 3
    before = err
    code, _, err = simkv("--set", "seed=1,2,3")
    assert (code, err.splitlines()[0]) == (0, "3 of 3 points")
    assert before != err


@pytest.mark.parametrize(
    ("arguments", "errors"),
    [
        (["--set", "seed"], ["--set: wanted field=value, such as engine.block_size=16,32, got 'seed'"]),
        (["--slo", "ttft_p99_ms"], ["--slo: wanted METRIC=NUMBER, such as ttft_p99_ms=3000, got 'ttft_p99_ms'"]),
        (["--slo", "ttft_p99_ms=x"], ["--slo: wanted METRIC=NUMBER, such as ttft_p99_ms=3000, got 'ttft_p99_ms=x'"]),
        (["--find", "max"], ["--find: wanted max FIELD or min FIELD, such as 'max workload.request_rate', got 'max'"]),
        (
            ["--set", "engine.blok_size=1,2", "--set", "seed=x"],
            [
                "--set: engine.blok_size: unknown key; did you mean 'block_size'?",
                "--set: seed: wanted an integer, got 'x'",
            ],
        ),
    ],
)  # fmt: skip
def test_each_fault_is_a_line_and_nothing_is_written(simkv, arguments, errors):
    code, out, err = simkv(*arguments)
    assert (code, out) == (2, "")
    assert err.splitlines() == [f"error: {error}" for error in errors]
    assert not Path("results").exists()


def test_the_headline_scenario_is_a_sweep():
    from simkv.sweeping.study import prepare

    study = prepare("128k_layouts_h100x8")
    assert len(study.points) == 12
    assert all(point.scenario for point in study.points)
    assert study.find is not None
    assert study.find.field == "workload.request_rate"
    assert set(study.slo) == {"ttft_p99_ms", "tpot_mean_ms"}
