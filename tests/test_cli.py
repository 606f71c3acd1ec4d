# ruff: noqa: E501 - a case a line, its message whole, so that it can be searched for
"""The command line: what goes to stdout, what to stderr, which exit code; never a traceback, nothing half-written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from simkv.cli import main
from simkv.load.hardware import shipped_hardware
from simkv.load.model import shipped_models
from simkv.load.scenario import shipped_scenarios
from simkv.plots import KINDS

REFERENCE = Path(__file__).parents[2] / "shared" / "reference" / "vllm_scheduler"
FIVE_REQUESTS = """\
# Do five requests pass?
model: llama-3.1-8b
hardware: h100_sxm
engine: {max_model_len: 4096}
workload: {request_rate: 5, num_prompts: 5, prompt_len: 200, output_len: 4}
slo: {ttft_ms: 1000}
"""
TOO_LARGE = ("plan", "five.yaml", "--set", "model=llama-3.1-70b")


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def simkv(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """The command line in a folder with one scenario, ``five.yaml``."""
    monkeypatch.chdir(tmp_path)
    Path("five.yaml").write_text(FIVE_REQUESTS, encoding="utf-8")

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["simkv", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        return Done(int(caught.value.code or 0), *capsys.readouterr())

    return run


def files() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


# Help and lists


@pytest.mark.parametrize("command", ["", "run", "plan", "plot", "list", "validate", "validate scheduler"])
def test_help(simkv: Run, command: str) -> None:
    done = simkv(*command.split(), "--help")
    assert (done.code, done.err) == (0, "")
    assert "Usage: " in done.out


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("models", list(shipped_models())),
        ("hardware", shipped_hardware()),
        ("scenarios", list(shipped_scenarios())),
    ],
)
def test_list(simkv: Run, what: str, names: list[str]) -> None:
    done = simkv("list", what)
    assert (done.code, done.err) == (0, "")
    assert [line.split()[0] for line in done.out.splitlines()[: len(names)]] == names


@pytest.mark.parametrize(
    "arguments",
    [(), ("list", "cats"), ("plan",), ("plan", "quickstart", "--set"), ("plan", "a", "b"), ("fly",)],
)
def test_wrong_usage(simkv: Run, arguments: tuple[str, ...]) -> None:
    done = simkv(*arguments)
    assert done.code == 2
    assert "Usage: " in done.out + done.err or "requires an argument" in done.err
    assert "Traceback" not in done.err


def test_as_a_module_in_a_process_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "simkv", "plan", "quickstrt", "--set", "engine.block_size=32"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: quickstrt: no such file; did you mean 'quickstart'? (see 'simkv list scenarios')\n"
    )


# plan


@pytest.mark.parametrize("name", sorted(shipped_scenarios()))
def test_every_shipped_scenario_plans(simkv: Run, name: str) -> None:
    done = simkv("plan", name)
    assert (done.code, done.err) == (0, "")
    assert "GPU KV cache size: " in done.out
    assert "Maximum concurrency for " in done.out
    as_json = json.loads(simkv("plan", f"scenarios/{name}.yaml", "--json").out)
    assert as_json["fits"] is True
    assert as_json["refusal"] is None
    assert f"({as_json['num_gpu_blocks']:,} blocks of {as_json['block_size']})" in done.out
    assert files() == ["five.yaml"]


def test_plan_takes_overrides(simkv: Run) -> None:
    options = ("--set", "engine.block_size=32", "--set", "parallel={pipeline_parallel_size: 4}", "--json")
    answer = json.loads(simkv("plan", "five.yaml", *options).out)
    assert (answer["block_size"], answer["layout"], len(answer["ranks"])) == (32, "TP1×PP4", 4)


def test_a_plan_that_does_not_fit_says_what_would_help(simkv: Run) -> None:
    done = simkv(*TOO_LARGE)
    assert (done.code, done.err) == (2, "")
    assert "Does not start: weights of " in done.out
    assert "  try parallel.tensor_parallel_size=2" in done.out
    done = simkv(*TOO_LARGE, "--json")
    assert done.code == 2
    answer = json.loads(done.out)
    assert answer["fits"] is False
    assert answer["refusal"].startswith("weights of ")
    assert "parallel.tensor_parallel_size=2" in answer["remedies"]
    for remedy in answer["remedies"]:
        assert simkv(*TOO_LARGE, "--set", remedy).code == 0


def test_idle_gpus_are_a_warning_not_an_error(simkv: Run) -> None:
    done = simkv("plan", "five.yaml", "--set", "hardware=h100_sxm_x8")
    assert done.code == 0
    assert "Warning: 7 of 8 GPUs idle: the layout TP1 uses 1." in done.out


# Errors


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(
    ("arguments", "errors"),
    [
        (["."], [".: wanted a file, got a folder"]),
        (["nowhere.yaml"], ["nowhere.yaml: no such file (see 'simkv list scenarios')"]),
        (
            ["five.yaml", "--set", "engine.blok_size=1", "--set", "seed=x", "--set", "y"],
            [
                "--set: wanted field=value, such as engine.block_size=32, got 'y'",
                "--set: engine.blok_size: unknown key; did you mean 'block_size'?",
                "--set: seed: wanted an integer, got 'x'",
            ],
        ),
        (
            ["five.yaml", "--set", "workload.num_prompts=1000000000000"],
            ["--set: workload.num_prompts: wanted a number at most 10,000,000, got 1000000000000"],
        ),
        (["bad.yaml"], ["bad.yaml:6: slo: duplicate key, first on line 1; remove one"]),
        (["worse.yaml"], ["worse.yaml: wanted text in UTF-8, got byte 0xff at offset 0"]),
    ],
)
def test_each_fault_is_one_line_on_stderr_and_the_code_is_2(
    simkv: Run, command: str, arguments: list[str], errors: list[str]
) -> None:
    Path("bad.yaml").write_text("slo: {}\n" + FIVE_REQUESTS.partition("\n")[2], encoding="utf-8")
    Path("worse.yaml").write_bytes(b"\xff")
    before = files()
    done = simkv(command, *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [f"error: {error}" for error in errors]
    assert files() == before


def test_a_run_that_cannot_start_writes_nothing(simkv: Run) -> None:
    done = simkv("run", *TOO_LARGE[1:])
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: weights of ")
    assert "try parallel.tensor_parallel_size=2" in done.err
    done = simkv("run", "five.yaml", "--set", "workload=")
    assert done == (2, "", "error: workload: missing; 'simkv run' needs one ('simkv plan' does not)\n")
    trace = "workload={dataset_name: azure, dataset_path: no.csv}"
    done = simkv("run", "five.yaml", "--set", trace)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: no.csv: wanted an existing trace file, got none in ")
    assert files() == ["five.yaml"]


# run and plot


def test_run_reports_and_saves(simkv: Run) -> None:
    done = simkv("run", "five.yaml", "-o", "out")
    assert done.code == 0
    assert "Serving Benchmark Result" in done.out
    assert "Successful requests:                     5" in done.out
    assert "Maximum concurrency for 4,096 tokens per request" in done.out
    assert done.err.endswith("saved in out; draw it with: simkv plot out\n")
    assert files() == ["five.yaml", "out"]
    assert json.loads(Path("out/summary.json").read_text(encoding="utf-8"))["completed"] == 5


def test_runs_never_overwrite_each_other_unless_told_to(simkv: Run) -> None:
    for folder in ("five", "five-2", "five-3"):
        assert f"saved in results/{folder};" in simkv("run", "five.yaml").err
    before = Path("results/five/summary.json").read_bytes()
    done = simkv("run", "five.yaml", "-o", "results/five", "--set", "seed=1")
    assert done == (
        2,
        "",
        "error: results/five: wanted a folder that does not exist yet, got one that does; "
        "use --force to replace it or another -o\n",
    )
    assert Path("results/five/summary.json").read_bytes() == before
    assert simkv("run", "five.yaml", "-o", "results/five", "--set", "seed=1", "--force").code == 0
    assert Path("results/five/summary.json").read_bytes() != before
    done = simkv("run", "five.yaml", "-o", ".", "--force")
    assert done.code == 2
    assert done.err.startswith("error: .: wanted a simkv result folder to replace, got something else")
    assert files() == ["five.yaml", "results"]


@pytest.mark.parametrize(
    "override",
    [
        "workload.request_rate=1e9",
        "workload.request_rate=5e-9",
        "workload={num_prompts: 5, prompt_len: 200, output_len: 4, request_rate: 5, burstiness: 1e-6}",
        "workload.prompt_len={lognormal: {median: 1e4, p99: 1e8}}",
        "workload.output_len=100000000",
        "workload.prompt_len=100000000",
        "workload={dataset_name: random, random_input_len: 100000000, num_prompts: 2}",
        "workload.max_concurrency=" + "9" * 30,
        "seed=" + "9" * 30,
        "slo={ttft_ms: 1e-308, tpot_ms: 1e308}",
        "engine.block_size=1",
        "engine.max_model_len=1",
        "hardware.gpu.hbm_bandwidth_bytes_per_s={value: 1 MB/s, source: a test}",
        "hardware.kernels.gemm_compute_efficiency={value: 0.001, source: a test}",
    ],
)
def test_the_extremes_of_what_is_allowed_run_to_the_end(simkv: Run, override: str) -> None:
    done = simkv("run", "five.yaml", "-o", "out", "--set", override, "--json")
    assert done.code == 0, done.err
    summary = json.loads(done.out)
    assert summary["completed"] + summary["failed"] == (2 if "random" in override else 5)


def test_run_prints_json_alone_on_stdout(simkv: Run) -> None:
    done = simkv("run", "five.yaml", "-o", "out", "--check", "--json")
    assert done.code == 0
    summary = json.loads(done.out)
    assert summary == json.loads(Path("out/summary.json").read_text(encoding="utf-8"))
    assert summary["completed"] == 5


def test_the_resolved_scenario_can_be_run_again_with_the_same_result(simkv: Run) -> None:
    first = json.loads(simkv("run", "five.yaml", "-o", "out", "--json").out)
    again = simkv("run", "out/scenario.yaml", "-o", "again", "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out) == first


def test_ctrl_c_saves_what_was_served_until_then(simkv: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from simkv.scheduler import Scheduler

    schedule, num_calls = Scheduler.schedule, 0

    def schedule_until_stopped(self: Scheduler) -> Any:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 8:
            raise KeyboardInterrupt
        return schedule(self)

    monkeypatch.setattr(Scheduler, "schedule", schedule_until_stopped)
    done = simkv("run", "five.yaml", "-o", "out", "--json")
    assert done.code == 130
    assert json.loads(done.out)["completed"] < 5
    assert done.err.endswith("stopped early: the result holds what was served until then\n")


def test_plot_draws_a_result_folder(simkv: Run) -> None:
    assert simkv("run", "five.yaml", "-o", "out").code == 0
    done = simkv("plot", "out", "--kind", "timeline", "-o", "timeline.png")
    assert (done.code, done.out.strip()) == (0, "timeline.png")
    assert Path("timeline.png").read_bytes().startswith(b"\x89PNG")
    done = simkv("plot", "out")
    assert done.code == 0
    assert [Path(line).is_file() for line in done.out.splitlines()] == [True] * len(KINDS)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["nowhere"], "nowhere: wanted a simkv result folder, got nothing there"),
        (["five.yaml"], "five.yaml: wanted a simkv result folder, got a file"),
        (["."], "format.json: wanted a simkv result folder, got one without this file"),
    ],
)
def test_plot_of_something_else(simkv: Run, arguments: list[str], error: str) -> None:
    done = simkv("plot", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {error}")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("command", [["run", "five.yaml", "-o"], ["plot"]])
def test_what_the_system_refuses_is_an_error_too(simkv: Run, command: list[str]) -> None:
    name = "x" * 400
    assert simkv(*command, name) == (2, "", f"error: {name}: File name too long\n")
    assert files() == ["five.yaml"]


# validate scheduler

RECORDING: dict[str, Any] = {
    "name": "two blocks, two steps",
    "out_base": 1000,
    "config": {
        "block_size": 2, "num_gpu_blocks": 5, "max_num_seqs": 4, "max_num_batched_tokens": 8, "max_model_len": 8,
        "enable_chunked_prefill": True, "enable_prefix_caching": False, "long_prefill_token_threshold": 0,
        "long_prefill_token_threshold_adaptive": False, "policy": "fcfs", "watermark": 0.0,
        "scheduler_reserve_full_isl": True, "pipeline_parallel_size": 1, "async_scheduling": False,
    },
    "requests": [{"id": 0, "arrival": 0, "prompt": [[0, 3]], "max_tokens": 2, "priority": 0}],
    "steps": [
        {
            "step": 0, "scheduled": [[0, 3]], "new": {"0": 0}, "blocks": {"0": "1-2"}, "running": 1, "waiting": 0,
            "free_blocks": 2, "kv_usage": 0.5, "retired": 0, "free_after": 2,
        },
        {
            "step": 1, "scheduled": [[0, 1]], "running": 1, "waiting": 0, "free_blocks": 2, "kv_usage": 0.5,
            "retired": 1, "finished": [0], "free_after": 4,
        },
    ],
}  # fmt: skip


def recorded(name: str, **changes: Any) -> str:
    """Write the recording with fields of its parts changed (``steps_1={"running": 2}``); return its name."""
    recording = json.loads(json.dumps(RECORDING))
    for path, change in changes.items():
        part, _, index = path.partition("_")
        target = recording[part][int(index)] if index else recording[part]
        if isinstance(target, dict):
            target.update(change)
        else:
            recording[part] = change
    Path(name).write_text(json.dumps(recording), encoding="utf-8")
    return name


def test_an_equal_recording(simkv: Run) -> None:
    name = recorded("good.json")
    assert simkv("validate", "scheduler", name) == (0, "good.json: 2 steps, equal\n", "")
    done = simkv("validate", "scheduler", name, "--json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out) == {
        "files": [{"file": "good.json", "equal": True, "steps": 2, "first_difference": None}],
        "passed": True,
    }


def test_an_altered_recording_names_step_and_field_and_the_code_is_1(simkv: Run) -> None:
    names = recorded("good.json"), recorded("bad.json", steps_1={"free_blocks": 3})
    done = simkv("validate", "scheduler", *names)
    assert done == (
        1,
        "good.json: 2 steps, equal\n"
        "bad.json: 2 steps, differs at step 1, free_blocks: recorded 3, replayed 2\n",
        "",
    )
    done = simkv("validate", "scheduler", *names, "--json")
    assert done.code == 1
    answer = json.loads(done.out)
    assert answer["passed"] is False
    assert [file["equal"] for file in answer["files"]] == [True, False]
    assert answer["files"][1]["first_difference"] == "step 1, free_blocks: recorded 3, replayed 2"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"config": {"block_size": 0}}, "config.block_size: wanted an integer from 1 to 1,000,000,000, got 0"),
        ({"config": {"block_size": True}}, "config.block_size: wanted an integer from 1 to 1,000,000,000, got true"),
        ({"config": {"num_gpu_blocks": 10**12}}, "config.num_gpu_blocks: wanted an integer from 1 to 10,000,000, got 1000000000000"),
        ({"config": {"policy": "lifo"}}, 'config.policy: wanted fcfs or priority, got "lifo"'),
        ({"config": {"policy": []}}, "config.policy: wanted fcfs or priority, got []"),
        ({"config": {"watermark": float("nan")}}, "config.watermark: wanted a number from 0 to 1, got NaN"),
        ({"config": {"async_scheduling": 1}}, "config.async_scheduling: wanted true or false, got 1"),
        ({"requests": 3}, "requests: wanted a list, got 3"),
        ({"requests": [3]}, "requests.0: wanted an object, got 3"),
        ({"requests_0": {"arrival": float("inf")}}, "requests.0.arrival: wanted a number from 0 to 1,000,000,000, got Infinity"),
        ({"requests_0": {"prompt": []}}, "requests.0.prompt: wanted a list of [start, length], got []"),
        ({"requests_0": {"prompt": [[0, 0]]}}, "requests.0.prompt: wanted a list of [start, length], got [[0, 0]]"),
        ({"requests_0": {"prompt": [[0, 10**12]]}}, "requests.0.prompt: wanted a list of [start, length], got [[0, 1000000000000]]"),
        ({"requests_0": {"stop_after": 0}}, "requests.0.stop_after: wanted an integer from 1 to 1,000,000,000, got 0"),
        ({"requests": RECORDING["requests"] * 2}, "requests: wanted ids that differ, got 0 2 times"),
        ({"steps": [{}]}, "steps.0.step: missing"),
        ({"steps": [[]]}, "steps.0: wanted an object, got []"),
        ({"steps": None}, "steps: wanted a list, got null"),
    ],
)  # fmt: skip
def test_a_recording_with_an_odd_value(simkv: Run, changes: dict[str, Any], fault: str) -> None:
    done = simkv("validate", "scheduler", recorded("odd.json", **changes))
    assert done == (2, "", f"error: odd.json: {fault}\n")


def test_all_faults_of_a_recording_at_once_up_to_20(simkv: Run) -> None:
    Path("empty.json").write_text("{}", encoding="utf-8")
    done = simkv("validate", "scheduler", "empty.json")
    assert done.err.splitlines() == [
        f"error: empty.json: {key}: missing" for key in ("config", "requests", "steps", "out_base")
    ]
    done = simkv("validate", "scheduler", recorded("many.json", requests=[None] * 50))
    assert len(done.err.splitlines()) == 21
    assert done.err.endswith("error: … and 30 more\n")


@pytest.mark.parametrize(
    ("content", "start"),
    [
        (
            b"",
            "x.json: wanted a recording in JSON, got text that is not JSON (Expecting value: line 1 column 1",
        ),
        (
            b"model: a\n",
            "x.json: wanted a recording in JSON, got text that is not JSON (Expecting value: line 1",
        ),
        (
            b"\xff\xfe",
            "x.json: wanted a recording in JSON, got text that is not JSON ('utf-8' codec can't decode",
        ),
        (
            b"[" * 100_000,
            "x.json: wanted a recording in JSON, got text that is not JSON (maximum recursion depth",
        ),
        (b"[1, 2]", "x.json: wanted an object with config, requests and steps, got [1, 2]"),
        (b"null", "x.json: wanted an object with config, requests and steps, got null"),
    ],
)
def test_what_is_no_recording(simkv: Run, content: bytes, start: str) -> None:
    Path("x.json").write_bytes(content)
    done = simkv("validate", "scheduler", "x.json")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {start}")
    assert done.err.count("\n") == 1


def test_a_recording_that_is_not_there(simkv: Run) -> None:
    done = simkv("validate", "scheduler", "nowhere.json")
    assert done == (2, "", "error: nowhere.json: cannot be read: No such file or directory\n")


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the recordings of ../shared/reference are not here")
def test_recordings_of_the_real_scheduler(simkv: Run) -> None:
    paths = [str(path) for path in sorted(REFERENCE.glob("*.json"))]
    done = simkv("validate", "scheduler", "--json", *paths)
    assert done.code == 0
    answer = json.loads(done.out)
    assert answer["passed"] is True
    assert [file["file"] for file in answer["files"]] == paths
