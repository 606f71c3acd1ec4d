# ruff: noqa: E501 - a case a line, its message whole, so that it can be searched for
"""The folder of a sweep survives anything, and belongs to one sweep."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import simkv
from simkv.errors import ResultsError
from simkv.sweeping.executor import serial
from tests.sweeping.worlds import files_of, write_tiny

NUM_POINTS = 40
GRID = {"seed": list(range(NUM_POINTS))}


def num_done(folder):
    return len(list(folder.glob("points/[!.]*.json")))


def start(folder, output, *options):
    command = [sys.executable, "-m", "simkv", "sweep", "tiny.yaml", "--set", f"seed=0:{NUM_POINTS - 1}:1"]
    return subprocess.Popen(
        [*command, "-o", output, *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(process, folder, more_than):
    while num_done(folder) <= more_than and process.poll() is None:
        time.sleep(0.001)


# Imports once and is then forked: most of a sweep's life is not to be its start.
NURSERY = """
import os, sys
import pandas, simkv.cli, simkv.sweeping.study, simkv.sweeping.table
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.argv = line.split()
        simkv.cli.main()
    print(child, flush=True)
    os.waitpid(child, 0)
    print("ended", flush=True)
"""


@pytest.fixture
def nursery(tmp_path):
    """Starts a command line and returns its process id; the next line it says is that the process ended."""
    with subprocess.Popen(
        [sys.executable, "-c", NURSERY],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        yield process
        process.stdin.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="wants processes that fork")
def test_killed_ten_times_a_sweep_ends_as_if_undisturbed(tmp_path, nursery):
    path, rng = write_tiny(tmp_path), random.Random(0)
    simkv.sweep(path, GRID, folder=tmp_path / "calm", jobs=1)
    killed = tmp_path / "killed"
    counts = [0]
    command = f"simkv sweep tiny.yaml --set seed=0:{NUM_POINTS - 1}:1 -o killed --jobs 1"
    for number in range(10):
        print(command, file=nursery.stdin, flush=True)
        child = int(nursery.stdout.readline())
        deadline = time.monotonic() + 30
        # every third time before its first point
        while number % 3 and num_done(killed) <= counts[-1] and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        assert nursery.stdout.readline() == "ended\n"
        counts.append(num_done(killed))
    assert counts == sorted(counts), "a finished point was lost"
    assert 0 < counts[-1] < NUM_POINTS, f"the test wants kills in the middle, got {counts}"
    for file in killed.glob("points/[!.]*.json"):
        assert json.loads(file.read_text(encoding="utf-8"))["status"] == "done"
    left = []

    def counting(function, tasks):
        left.extend(tasks)
        return serial(function, tasks)

    simkv.sweep(path, GRID, folder=killed, executor=counting)
    assert len(left) == NUM_POINTS - counts[-1], "a finished point was run again"
    assert files_of(killed) == files_of(tmp_path / "calm")


@pytest.mark.parametrize("num_jobs", ["1", "2"])
def test_ctrl_c_leaves_a_partial_table_and_says_so(tmp_path, num_jobs):
    write_tiny(tmp_path)
    folder = tmp_path / "out"
    with start(tmp_path, "out", "--jobs", num_jobs) as process:
        wait_for(process, folder, 2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 130, err
    lines = (folder / "points.csv").read_text(encoding="utf-8").splitlines()
    assert 2 < num_done(folder) == len(lines) - 1 < NUM_POINTS
    assert err.splitlines()[-1] == (
        f"stopped early: {len(lines) - 1} of {NUM_POINTS} points are done; the same command continues with the others"
    )
    assert "Traceback" not in err
    assert out.startswith("layout")


def test_an_exception_leaves_what_is_done(tmp_path):
    def failing(function, tasks):
        yield from map(function, tasks[:3])
        raise KeyboardInterrupt

    path, folder = write_tiny(tmp_path), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        simkv.sweep(path, {"seed": [1, 2, 3, 4, 5]}, folder=folder, executor=failing)
    assert len((folder / "points.csv").read_text(encoding="utf-8").splitlines()) == 4
    assert len(simkv.sweep(path, {"seed": [1, 2, 3, 4, 5]}, folder=folder, jobs=1)) == 5


def test_a_damaged_point_is_worked_out_again(tmp_path):
    path, folder = write_tiny(tmp_path), tmp_path / "out"
    simkv.sweep(path, {"seed": [1, 2]}, folder=folder, jobs=1)
    before = files_of(folder)
    next(folder.glob("points/*.json")).write_text("{", encoding="utf-8")
    (folder / "points" / ".unfinished-123-x.json").write_text("{", encoding="utf-8")
    simkv.sweep(path, {"seed": [1, 2]}, folder=folder, jobs=1)
    assert files_of(folder) == before


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"grid": {"seed": [1]}}, "its grid is seed=1,2, not seed=1"),
        ({"slo": {"ttft_p99_ms": 5}}, "its slo is none, not ttft_p99_ms=5"),
        ({"slo": {"ttft_p99_ms": 5}, "find": "max workload.request_rate"}, "its find is none, not max=workload.request_rate tolerance=0.025"),
        ({"scenario": "engine: {block_size: 32}\n"}, "the scenario is another"),
    ],
)  # fmt: skip
def test_the_folder_of_another_sweep_is_refused(tmp_path, change, difference):
    path, folder = write_tiny(tmp_path), tmp_path / "out"
    simkv.sweep(path, {"seed": [1, 2]}, folder=folder, jobs=1)
    before = files_of(folder)
    if extra := change.pop("scenario", None):
        path.write_text(
            path.read_text(encoding="utf-8").replace("engine: {max_model_len: 4096}\n", extra),
            encoding="utf-8",
        )
    with pytest.raises(ResultsError) as caught:
        simkv.sweep(path, **{"grid": {"seed": [1, 2]}, **change}, folder=folder, jobs=1)
    assert caught.value.faults == (
        f"{folder}: wanted the folder of this sweep, got that of another: {difference}; "
        "use another -o, or --force to replace it",
    )
    assert files_of(folder) == before


def test_a_folder_of_something_else_is_refused_and_an_empty_one_is_taken(tmp_path):
    path = write_tiny(tmp_path)
    with pytest.raises(ResultsError) as caught:
        simkv.sweep(path, folder=tmp_path, jobs=1)
    assert caught.value.faults == (
        f"{tmp_path}: wanted a new folder or that of a sweep, got something else; use another -o",
    )
    with pytest.raises(ResultsError, match="wanted a folder that can be written, got: Not a directory"):
        simkv.sweep(path, folder=path, jobs=1)
    (tmp_path / "empty").mkdir()
    assert len(simkv.sweep(path, folder=tmp_path / "empty", jobs=1)) == 1


def test_a_trace_with_other_contents_is_another_sweep(tmp_path):
    trace = Path(__file__).parents[1] / "data" / "azure_sample_seconds.csv"
    path = write_tiny(tmp_path)
    (tmp_path / "trace.csv").write_bytes(trace.read_bytes())
    workload = {"workload": {"dataset_name": "azure", "dataset_path": "trace.csv", "num_prompts": 2}}
    simkv.sweep(path, workload, folder=tmp_path / "out", jobs=1)
    (tmp_path / "trace.csv").write_bytes(trace.read_bytes().rpartition(b"\n")[0])
    with pytest.raises(ResultsError, match="the scenario is another"):
        simkv.sweep(path, workload, folder=tmp_path / "out", jobs=1)
