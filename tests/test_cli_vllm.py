# ruff: noqa: E501 - a case a line, its message whole, so that it can be searched for
"""``simkv run`` and ``simkv plan`` with vLLM's own command lines, ``--save`` and ``--prometheus``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from simkv.cli import main
from simkv.load.scenario import load_scenario
from simkv.load.vllm_cli import read_commands

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
SERVE = f"vllm serve {MODEL} -tp 2 --max-model-len 4096 --port 8000 --api-key sk-secret"
BENCH = "vllm bench serve --random-input-len 200 --random-output-len 4 --num-prompts 5 --request-rate 5 --save-result"
NOTES = [
    "ignored: --vllm: --port, --api-key: no effect on the simulation",
    "ignored: --bench: --save-result: no effect on the simulation",
]


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def simkv(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """The command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["simkv", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        return Done(int(caught.value.code or 0), *capsys.readouterr())

    return run


def files() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def test_a_plan_of_a_command_line(simkv: Run) -> None:
    done = simkv("plan", "--vllm", SERVE, "--hardware", "h100_sxm_x2")
    assert (done.code, done.err) == (0, NOTES[0] + "\n")
    assert done.out.startswith(f"{MODEL} on h100_sxm_x2, TP2, vLLM 0.32.0, gpu_memory_utilization 0.92, ")
    assert "Maximum concurrency for 4,096 tokens per request: " in done.out
    assert files() == []


def test_a_run_of_two_command_lines(simkv: Run) -> None:
    done = simkv("run", "--vllm", SERVE, "--bench", BENCH, "--hardware", "h100_sxm_x2")
    assert done.code == 0
    assert done.err.splitlines()[:2] == NOTES
    assert "sk-secret" not in done.out + done.err
    assert "Successful requests:                     5" in done.out
    assert done.err.endswith(
        "saved in results/Llama-3.1-8B-Instruct; draw it with: simkv plot results/Llama-3.1-8B-Instruct\n"
    )
    assert "sk-secret" not in Path("results/Llama-3.1-8B-Instruct/scenario.yaml").read_text(encoding="utf-8")


def test_command_lines_override_a_file_and_set_overrides_them(simkv: Run) -> None:
    options = (
        "--vllm",
        "vllm serve --block-size 32 --max-num-seqs 64",
        "--set",
        "engine.block_size=64",
        "--json",
    )
    answer = json.loads(simkv("plan", "quickstart", *options).out)
    assert (answer["block_size"], answer["max_num_seqs"], answer["layout"]) == (64, 64, "TP8")
    answer = json.loads(simkv("plan", "quickstart", "--hardware", "h200_sxm_x8", "--json").out)
    assert (answer["hardware"], answer["block_size"]) == ("h200_sxm_x8", 16)


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(
    ("arguments", "errors"),
    [
        (["--vllm", "vllm serve a/b --max-model-len abc -tp", "--bench", "vllm bench serve --num-promts 4"], ["--vllm: --max-model-len: wanted a number, got 'abc'", "--vllm: -tp: wanted a number, got nothing", "--bench: --num-promts: unknown flag; did you mean '--num-prompts'?"]),
        (["--vllm", f"vllm serve {MODEL} -tp 3", "--hardware", "h100_sxm"], ["--vllm: -tp: parallel.tensor_parallel_size: 3 does not divide 32 attention heads; use 1, 2, 4, 8, 16 or 32"]),
        (["quickstart", "--bench", "vllm bench latency"], ["--bench: wanted 'vllm bench serve …', got 'vllm bench latency', which has no server"]),
        (["quickstart", "--save", "taken.yaml"], ["taken.yaml: wanted a file that does not exist yet, got one that does; use another --save"]),
        (["quickstart", "--save", "no/where.yaml"], ["no/where.yaml: cannot be written: No such file or directory"]),
    ],
)  # fmt: skip
def test_faults(simkv: Run, command: str, arguments: list[str], errors: list[str]) -> None:
    Path("taken.yaml").write_text("mine", encoding="utf-8")
    done = simkv(command, *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [f"error: {error}" for error in errors]
    assert files() == ["taken.yaml"]
    assert Path("taken.yaml").read_text(encoding="utf-8") == "mine"


def test_the_gpus_must_be_said(simkv: Run) -> None:
    done = simkv("plan", "--vllm", SERVE)
    assert done.code == 2
    assert "error: --hardware: missing; wanted the GPUs, one of a100_pcie, " in done.err


@pytest.mark.parametrize("arguments", [["plan"], ["run"], ["plan", "--bench", BENCH]])
def test_a_scenario_or_a_server_is_wanted(simkv: Run, arguments: list[str]) -> None:
    done = simkv(*arguments)
    assert done.code == 2
    assert "Usage: " in done.err
    assert "wanted a scenario or --vllm" in done.err


def test_what_is_saved_can_be_planned_and_run_with_the_same_result(simkv: Run) -> None:
    options = ("--vllm", SERVE, "--bench", BENCH, "--hardware", "h100_sxm_x2")
    first = simkv("run", *options, "--save", "mine.yaml", "-o", "first", "--json")
    again = simkv("run", "mine.yaml", "-o", "again", "--json")
    assert (first.code, again.code) == (0, 0)
    assert again.out == first.out
    assert load_scenario("mine.yaml") == load_scenario(None, (), read_commands(SERVE, BENCH, "h100_sxm_x2"))
    assert files() == ["again", "first", "mine.yaml"]


def test_metrics_at_the_end(simkv: Run) -> None:
    options = ("--vllm", SERVE, "--bench", BENCH, "--hardware", "h100_sxm_x2")
    assert simkv("run", *options, "-o", "out", "--prometheus", "metrics.txt").code == 0
    text = Path("metrics.txt").read_text(encoding="utf-8")
    samples = {s.name: s.value for f in text_string_to_metric_families(text) for s in f.samples}
    assert samples["vllm:generation_tokens_total"] == 20
    assert samples["vllm:time_to_first_token_seconds_count"] == 5
    assert "sk-secret" not in text

    before = files()
    done = simkv("run", *options, "-o", "other", "--prometheus", "metrics.txt")
    assert done.code == 2
    assert done.err.splitlines()[-1] == (
        "error: metrics.txt: wanted a file that does not exist yet, got one that does; "
        "use --force to replace it or another --prometheus"
    )
    assert files() == before
    assert simkv("run", *options, "-o", "other", "--prometheus", "metrics.txt", "--force").code == 0


# Files beside the result folder


@pytest.mark.parametrize("option", ["--prometheus", "--trace"])
def test_a_file_is_replaced_only_when_told_to(simkv: Run, option: str) -> None:
    options = ("quickstart", "--set", "workload.num_prompts=3", option, "mine")
    Path("mine").write_text("mine", encoding="utf-8")
    done = simkv("run", *options, "-o", "out")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "error: mine: wanted a file that does not exist yet, got one that does; "
        f"use --force to replace it or another {option}\n"
    )
    assert files() == ["mine"]
    assert Path("mine").read_text(encoding="utf-8") == "mine"
    assert simkv("run", *options, "-o", "out", "--force").code == 0
    assert Path("mine").read_text(encoding="utf-8") != "mine"
    assert files() == ["mine", "out"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--trace", "no/where.json"], "no/where.json: cannot be written: No such file or directory"),
        (["--prometheus", "no/where.txt"], "no/where.txt: cannot be written: No such file or directory"),
        (["--trace", "taken/x.json"], "taken/x.json: cannot be written: Not a directory"),
        (["--trace", ".", "--force"], ".: cannot be written: Is a directory"),
        (["--trace", "x", "--prometheus", "./x"], "--trace: wanted a file of its own, got that of --prometheus, x"),
        (["--trace", "x", "--save", "x", "--force"], "--trace: wanted a file of its own, got that of --save, x"),
        (["--prometheus", "x", "--save", "x"], "--prometheus: wanted a file of its own, got that of --save, x"),
        (["--trace", "out"], "--trace: wanted a file of its own, got that of -o, out"),
        (["--trace", "taken", "--save", "new.yaml"], "taken: wanted a file that does not exist yet, got one that does; use --force to replace it or another --trace"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_written_is_refused_before_the_run(
    simkv: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], error: str
) -> None:
    Path("taken").write_text("mine", encoding="utf-8")
    monkeypatch.setattr("simkv.run.simulate", None)
    assert simkv("run", "quickstart", "-o", "out", *arguments) == (2, "", f"error: {error}\n")
    assert files() == ["taken"]


def test_a_trace_may_lie_in_the_result_folder(simkv: Run) -> None:
    options = ("quickstart", "--set", "workload.num_prompts=3", "-o", "out", "--trace", "out/trace.json")
    for more in ((), ("--force",)):
        assert simkv("run", *options, *more).code == 0
        assert json.loads(Path("out/trace.json").read_text(encoding="utf-8"))["traceEvents"]


# The executor


@pytest.mark.parametrize("name", ["uni", "uniproc"])
def test_one_process_runs_one_gpu(simkv: Run, name: str) -> None:
    option = f"--distributed-executor-backend {name}"
    served = f"vllm serve {MODEL} --max-model-len 4096 {option}"
    assert simkv("plan", "--vllm", served, "--hardware", "h100_sxm_x2").code == 0
    done = simkv("plan", "--vllm", f"{served} -tp 2", "--hardware", "h100_sxm_x2")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "error: --vllm: --distributed-executor-backend: engine.distributed_executor_backend: "
        "uniproc runs one GPU, the layout TP2 has 2 a replica; use mp or ray\n"
    )


# The length that a workload suggests


def test_a_plan_suggests_a_length_for_the_workload(simkv: Run) -> None:
    Path("a.yaml").write_text(
        f"model: {MODEL}\nhardware: h100_sxm\nworkload: {{num_prompts: 9, prompt_len: 9000, output_len: 100}}\n",
        encoding="utf-8",
    )
    done = simkv("plan", "a.yaml")
    line = done.out.splitlines()[-1]
    assert line.startswith(
        "Workload: P99 of prompt + output 9,100 tokens; max_model_len 10,928 (20 % more): "
    )
    assert line.endswith("x, the same KV cache.")
    answer = json.loads(simkv("plan", "a.yaml", "--json").out)
    suggestion = answer["suggestion"]
    assert suggestion["num_gpu_blocks"] == answer["num_gpu_blocks"]
    changed = json.loads(simkv("plan", "a.yaml", "--set", "engine.max_model_len=10928", "--json").out)
    assert changed["max_concurrency"] == suggestion["max_concurrency"] > answer["max_concurrency"]
    assert simkv("plan", "a.yaml", "--set", "engine.max_model_len=10928").out.splitlines()[-1] == (
        "Workload: P99 of prompt + output 9,100 tokens; max_model_len suits it."
    )
    assert "Workload: " not in simkv("plan", "a.yaml", "--set", "workload=").out
