"""``simkv plan``: --vary, --check and --plot, with exact outputs."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
SERVE = ("--vllm", "vllm serve Llama-3.1-8B --max-model-len 8192", "--hardware", "h100_sxm")
OLD = ("--set", "engine.vllm_version=0.19.0")

TABLE = """\
engine.gpu_memory_utilization    outcome  stage   KV GiB     blocks      tokens  concurrency
0.1                              refused      0    -9.22          0           0        0.00x
0.5                              started      0    22.46     11,499     183,984       22.46x
0.9                              started      0    54.14     27,717     443,472       54.13x
1                                    oom      0    62.06     31,772     508,352       62.05x
"""
CHECK = """\
against startup.log                predicted      logged    difference
weights, GiB, stage 0                  15.30       15.30     +0.00 GiB
weights + non-torch, GiB, stage 0       17.40       17.41     -0.01 GiB
activation + graphs, GiB, stage 0        1.90        1.92     -0.02 GiB
graphs, GiB, stage 0                    0.79        0.81     -0.02 GiB
KV cache, GiB, stage 0                 53.55       53.40     +0.15 GiB
weights, GiB, stage 1                  15.30       15.30     +0.00 GiB
KV cache, GiB, stage 1                 52.27       52.20     +0.07 GiB
KV cache, tokens                     856,416     855,244        +0.14%
max concurrency                        26.14       26.10        +0.14%
outcome                              started     started
taken from startup.log: model Qwen/Qwen3-32B, parallel.tensor_parallel_size 2, \
parallel.pipeline_parallel_size 2, engine.max_model_len 32768, model.dtype bfloat16, \
engine.vllm_version 0.32.0, hardware.gpu.memory_bytes 79.19 GiB, engine.gpu_memory_utilization 0.92
"""


@pytest.fixture
def simkv(simkv, monkeypatch, tmp_path):
    """``simkv plan`` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return partial(simkv, "plan")


def use(name):
    shutil.copy(DATA / f"startup_{name}.log", "startup.log")


# --vary


def test_a_table_over_a_field(simkv):
    field = "engine.gpu_memory_utilization=0.1,0.5:0.9:0.4,1.0"
    assert simkv(*SERVE, *OLD, "--vary", field) == (0, TABLE, "")


def test_several_fields_and_values_that_are_no_scenario(simkv):
    fields = ("--vary", "parallel.tensor_parallel_size=2,3", "--vary", "engine.kv_cache_dtype=auto,fp8")
    code, out, err = simkv(*SERVE, *OLD, *fields)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["parallel.tensor_parallel_size", "engine.kv_cache_dtype", "outcome"]
    assert [line.split()[:3] for line in lines[1:5]] == [
        ["2", "auto", "started"], ["2", "fp8", "started"], ["3", "auto", "invalid"], ["3", "fp8", "invalid"],
    ]  # fmt: skip
    assert lines[5:] == [
        "--vary: parallel.tensor_parallel_size: 3 does not divide 32 attention heads; use 1, 2, 4, 8, 16 or 32"
    ]


def test_the_table_as_data(simkv):
    code, out, _ = simkv(*SERVE, *OLD, "--vary", "engine.gpu_memory_utilization=0.1,0.9", "--json")
    low, high = json.loads(out)["rows"]
    assert code == 0
    assert low["values"] == {"engine.gpu_memory_utilization": 0.1}
    assert (low["outcome"], low["num_gpu_blocks"]) == ("refused", 0)
    assert low["reason"].startswith("weights of 14.99 GiB do not leave room")
    assert (high["outcome"], high["reason"], high["kv_tokens"]) == ("started", None, 443_472)
    assert simkv(*SERVE, *OLD, "--vary", "engine.gpu_memory_utilization=0.1")[0] == 2


@pytest.mark.parametrize(
    ("vary", "error"),
    [
        ("engine.gpu_memory_utilisation=0.9", "--vary: engine.gpu_memory_utilisation: unknown "),
        (
            "engine.block_size=16:32:0",
            "--vary: engine.block_size: wanted a step that leads from 16 to 32, got 0",
        ),
        ("block_size", "--vary: wanted field=value, such as engine.block_size=16,32, got "),
    ],
)
def test_a_wrong_vary_is_one_error(simkv, vary, error):
    code, out, err = simkv(*SERVE, "--vary", vary)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {error}")
    assert err.count("\n") == 1


# --check


def test_a_log_alone_with_its_gpus(simkv):
    use("v1_0.32_pp")
    code, out, err = simkv("--check", "startup.log", "--hardware", "h100_sxm")
    assert (code, err) == (0, "")
    assert out.startswith("Qwen/Qwen3-32B on h100_sxm, TP2×PP2, vLLM 0.32.0, gpu_memory_utilization 0.92,")
    assert out.partition("\n\nagainst")[2] == CHECK.removeprefix("against")


def test_predicted_and_logged_as_data(simkv):
    use("v0_0.7")
    code, out, _ = simkv("--check", "startup.log", "--hardware", "a100_sxm", "--json")
    data = json.loads(out)
    terms = {term["term"]: term for term in data["check"]["terms"]}
    assert code == 0
    assert data["num_gpu_blocks"] == terms["blocks"]["predicted"]
    assert terms["blocks"]["logged"] == 29_647
    assert abs(terms["blocks"]["difference"]) < 0.01
    assert terms["activation"]["difference"] == pytest.approx(0, abs=0.01)
    assert data["check"]["taken"]["parallel.tensor_parallel_size"] == 4


def test_a_refusal_that_was_logged_is_predicted(simkv):
    use("refused")
    code, out, _ = simkv("--check", "startup.log", "--hardware", "h100_sxm")
    assert code == 2
    assert "one request, GiB                       20.00       20.00     +0.00 GiB" in out
    assert "outcome                              refused     refused" in out
    assert "The log says: (EngineCore pid=42) ERROR" in out


def test_an_outcome_that_differs_is_said(simkv):
    use("oom")
    code, out, _ = simkv(*SERVE, "--check", "startup.log")
    assert code == 0
    assert "outcome                              started         oom       differs" in out
    assert "not taken, as you say otherwise: engine.max_model_len 131072" in out


def test_what_cannot_be_checked_is_one_error(simkv):
    Path("empty.log").write_text("INFO hello\n", encoding="utf-8")
    assert simkv("quickstart", "--check", "empty.log") == (
        2,
        "",
        "error: empty.log: wanted a vLLM start-up log, with a line such as 'Model loading took 14.99 GiB' or "
        "'GPU KV cache size: 399,024 tokens', got none\n",
    )
    assert simkv("quickstart", "--check", "none.log")[2] == (
        "error: none.log: cannot be read: No such file or directory\n"
    )
    use("v1_0.19")
    assert simkv("--check", "startup.log")[2].startswith("error: --hardware: missing; wanted the GPUs")
    Path("startup.log").write_text("Model loading took 14.99 GiB\n", encoding="utf-8")
    assert simkv("--check", "startup.log") == (
        2,
        "",
        "error: startup.log: names no model; wanted a scenario, --vllm or --set model=NAME beside it\n",
    )
    said = ("--set", "model=Qwen/Qwen3-8B", "--hardware", "h100_sxm")
    assert simkv("--check", "startup.log", *said)[0] == 0


@pytest.mark.parametrize(
    ("hardware", "warnings"),
    [
        ("h100_sxm_x8", []),
        (
            "a100_sxm_40gb",
            ["the log states 79.19 GiB of GPU memory, a100_sxm_40gb has 39.39 GiB: it ran on other hardware"],
        ),
    ],
)
def test_memory_that_is_not_the_hardwares_is_said(simkv, hardware, warnings):
    use("v1_0.19")
    _, out, _ = simkv("--check", "startup.log", "--hardware", hardware)
    assert [line for line in out.splitlines() if "Warning: the log" in line] == [
        f"Warning: {w}." for w in warnings
    ]
    _, out, _ = simkv("--check", "startup.log", "--hardware", hardware, "--json")
    assert json.loads(out)["check"]["warnings"] == warnings


@pytest.mark.parametrize(
    "named", ["device_name=NVIDIA_A100-SXM4-80GB.json", "GPU 0: NVIDIA A100-SXM4-80GB (UUID: x)"]
)
def test_a_gpu_that_is_not_the_hardwares_is_said(simkv, named):
    use("v1_0.19")
    with Path("startup.log").open("a", encoding="utf-8") as file:
        file.write(f"WARNING {named}\n")
    _, out, _ = simkv("--check", "startup.log", "--hardware", "h100_sxm")
    assert (
        "Warning: the log names the GPU NVIDIA A100-SXM4-80GB, the scenario has h100_sxm: the comparison is "
        "between two GPUs."
    ) in out
    assert "Warning" not in simkv("--check", "startup.log", "--hardware", "a100_sxm")[1]


# --plot


def test_the_ledger_is_drawn(simkv):
    code, out, _ = simkv("tp4_pp2_128k", "--plot", "ledger.png")
    assert code == 0
    assert "Maximum concurrency" in out
    assert Path("ledger.png").read_bytes().startswith(b"\x89PNG")
    assert simkv("quickstart", "--plot", "x.docx")[2].startswith("error: x.docx: cannot be written: ")
    assert simkv("quickstart", "--plot", "x.png", "--vary", "engine.block_size=16")[0] == 2
