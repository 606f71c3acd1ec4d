"""Start-up logs of V0 and V1: what is read of them, and what a user's own words hold against them.

The logs are of our own making, with vLLM's wordings.
"""

from pathlib import Path

import pytest

from simkv.errors import TraceError
from simkv.load.scenario import load_scenario
from simkv.load.startup_log import parse_startup_log, read_startup_log
from simkv.load.startup_settings import fill_in
from simkv.load.vllm_cli import Commands, read_commands

DATA = Path(__file__).parents[1] / "data"


def log_of(name):
    return read_startup_log(DATA / f"startup_{name}.log")


def figures(log):
    return {name: {s: stated.value for s, stated in values.items()} for name, values in log.figures.items()}


def settings(log):
    return {".".join(path): stated.value for path, stated in log.settings.items() if path[0] != "hardware"}


def test_v1_with_its_debug_lines():
    log = log_of("v1_0.19")
    assert figures(log) == {
        "weights": {0: 14.99},
        "activation": {0: 1.89},
        "non_torch": {0: 0.25},
        "kv": {0: 58.10},
        "kv_tokens": {0: 475_872},
        "max_concurrency": {0: 58.09},
        "graphs": {0: 0.87},
        "graph_pool": {0: 0.87},
        "graphs_estimated": {0: 0.84},
        "total": {0: 79.19},
    }
    assert settings(log) == {
        "engine.vllm_version": "0.19.0",
        "model": "meta-llama/Llama-3.1-8B",
        "engine.max_model_len": 8192,
        "engine.gpu_memory_utilization": 0.95,
        "engine.max_num_batched_tokens": 8192,
        "parallel.tensor_parallel_size": 1,
        "parallel.pipeline_parallel_size": 1,
        "parallel.data_parallel_size": 1,
        "parallel.decode_context_parallel_size": 1,
        "model.dtype": "bfloat16",
        "engine.enforce_eager": False,
    }
    assert log.settings["engine", "max_model_len"].line == 3
    assert (log.outcome, log.error) == ("started", "")


def test_v0_says_it_in_two_lines_and_counts_blocks():
    log = log_of("v0_0.7")
    assert figures(log) == {
        "weights": {0: 32.8888},
        "total": {0: 79.25},
        "non_torch": {0: 0.90},
        "activation": {0: 1.35},
        "kv": {0: 36.19},
        "num_gpu_blocks": {0: 29_647},
        "max_concurrency": {0: 57.90},
        "graphs": {0: 0.92},
    }
    assert settings(log)["engine.vllm_version"] == "0.7.3"
    assert settings(log)["parallel.tensor_parallel_size"] == 4
    assert settings(log)["engine.gpu_memory_utilization"] == 0.9
    assert log.outcome == "started"


def test_stages_of_a_pipeline_and_the_single_line_of_0_32():
    log = log_of("v1_0.32_pp")
    assert figures(log) == {
        "weights": {0: 15.30, 1: 15.30},  # of ranks of one stage the first
        "kv": {0: 53.40, 1: 52.20},
        "kv_tokens": {0: 855_244},
        "max_concurrency": {0: 26.10},
        "graphs": {0: 0.81},  # not the estimate before
        "graph_pool": {0: 0.81},
        "graphs_estimated": {0: 0.78},
        "total": {0: 79.19},
        "consumed": {0: 17.41},
        "headroom": {0: 1.92},
    }
    assert log.settings["engine", "gpu_memory_utilization"].value == 0.92


def test_refused_and_out_of_memory():
    refused = log_of("refused")
    assert refused.outcome == "refused"
    assert [refused.figure(name) for name in ("need", "kv", "longest")] == [20.0, 1.45, 9488]
    assert "ValueError: To serve at least one request" in refused.error
    oom = log_of("oom")  # it had printed its concurrency already
    assert (oom.outcome, oom.figure("max_concurrency")) == ("oom", 17.0)
    busy = parse_startup_log(
        "ValueError: Free memory on device cuda:0 (60.87/79.19 GiB) on startup is less than desired GPU memory "
        "utilization (0.95, 75.23 GiB). Decrease GPU memory utilization"
    )
    assert (busy.outcome, busy.figure("total")) == ("refused", 79.19)
    assert busy.settings["engine", "gpu_memory_utilization"].value == 0.95


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("INFO: Loading model weights took 14.9888 GB", "weights", 14.9888),
        ("INFO # GPU blocks: 27,863, # CPU blocks: 2048", "num_gpu_blocks", 27_863),
        ("Available KV cache memory: -3.20 GiB", "kv", -3.2),
        ("Estimated CUDA graph memory: 0.62 GiB total", "graphs_estimated", 0.62),
        ("(VllmWorker rank=0 pid=7) INFO Model loading took 7.5 GiB and 3 seconds", "weights", 7.5),
    ],
)
def test_wordings(line, name, value):
    assert parse_startup_log(f"INFO something else\n{line}\n\nmore").figure(name) == value


def test_ranks_belong_to_the_stages_that_tp_says():
    text = "with config: model='m', tensor_parallel_size=2, pipeline_parallel_size=2, quantization=fp8, dtype=weird"
    lines = [f"(VllmWorker rank={rank} pid=1) Model loading took {rank + 1}.5 GiB" for rank in (3, 2, 1, 0)]
    log = parse_startup_log("\n".join([text, *lines]))
    assert figures(log) == {"weights": {1: 4.5, 0: 2.5}}
    assert log.settings["model", "quantization"].value == {"method": "fp8"}


@pytest.mark.parametrize("text", ["", "INFO hello\n", "model='x'\n", "a,b\n1,2\n"])
def test_a_log_with_none_of_the_lines_is_one_clear_error(text, tmp_path):
    path = tmp_path / "x.log"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TraceError) as caught:
        read_startup_log(path)
    assert caught.value.faults == (
        f"{path}: wanted a vLLM start-up log, with a line such as 'Model loading took 14.99 GiB' or "
        "'GPU KV cache size: 399,024 tokens', got none",
    )
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        read_startup_log(tmp_path / "nowhere.log")


# Below what a user says


def test_a_log_fills_in_what_nobody_named(tmp_path):
    log = log_of("v1_0.19")
    filled = fill_in(log, read_commands(hardware="h100_sxm"), None, ())
    scenario = load_scenario(None, (), filled.commands)
    assert scenario.model.name == "meta-llama/Llama-3.1-8B"
    assert scenario.resolved_engine.gpu_memory_utilization == 0.95
    assert round(scenario.hardware.gpu.memory_bytes.value / 2**30, 2) == 79.19
    assert list(filled.notes(log, scenario)) == [
        f"taken from {log.path}: engine.vllm_version 0.19.0, model meta-llama/Llama-3.1-8B, "
        "engine.max_model_len 8192, engine.gpu_memory_utilization 0.95, engine.max_num_batched_tokens 8192, "
        "model.dtype bfloat16, hardware.gpu.memory_bytes 79.19 GiB"
    ]


def test_a_file_a_command_line_and_set_hold_against_it(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "model: Llama-3.1-70B\nhardware: h100_sxm\nengine: {max_model_len: 4096}\n", encoding="utf-8"
    )
    log = log_of("v1_0.19")
    commands = read_commands("vllm serve Llama-3.1-70B -tp 2")
    overrides = ["engine.gpu_memory_utilization=0.8"]
    filled = fill_in(log, commands, file, overrides)
    scenario = load_scenario(file, overrides, filled.commands)
    assert scenario.model.name == "meta-llama/Llama-3.1-70B"
    assert scenario.parallel.tensor_parallel_size == 2
    assert (scenario.engine.max_model_len, scenario.engine.gpu_memory_utilization) == (4096, 0.8)
    assert scenario.engine.vllm_version == "0.19.0"
    assert list(filled.notes(log, scenario))[1] == (
        "not taken, as you say otherwise: model meta-llama/Llama-3.1-8B, engine.max_model_len 8192, "
        "engine.gpu_memory_utilization 0.95, parallel.tensor_parallel_size 1"
    )


def test_what_a_log_says_wrongly_names_its_line():
    log = parse_startup_log("with config: model='nobody/nothing'\nModel loading took 1.0 GiB", "a.log")
    filled = fill_in(log, Commands({("hardware",): "h100_sxm"}, {("hardware",): "--hardware"}), None, ())
    with pytest.raises(Exception, match=r"--check: a\.log:1: .*nobody/nothing"):
        load_scenario(None, (), filled.commands)


@pytest.mark.parametrize(
    ("line", "gpu"),
    [
        (
            "Using default MoE config at /x/E=8,N=7,device_name=NVIDIA_H100_80GB_HBM3.json",
            "NVIDIA H100 80GB HBM3",
        ),
        ("at /x/N=7168,K=2048,device_name=NVIDIA_L40S,dtype=fp8_w8a8.json", "NVIDIA L40S"),
        ("GPU 0: NVIDIA H100 NVL (UUID: GPU-1)", "NVIDIA H100 NVL"),
        ("device_name=None", ""),
    ],
)
def test_the_name_of_the_gpu(line, gpu):
    assert parse_startup_log(f"Model loading took 14.99 GiB\n{line}").gpu == gpu


def test_an_out_of_memory_error_states_the_memory():
    log = parse_startup_log(
        "torch.OutOfMemoryError: CUDA out of memory. GPU 0 has a total capacity of 39.39 GiB"
    )
    assert (log.figure("total"), log.outcome) == (39.39, "oom")


def test_v0_states_the_peak_with_the_weights_in_it():
    """Versions 0.6.4 and 0.6.5."""
    log = parse_startup_log(
        "INFO model_runner.py:1077] Loading model weights took 14.9888 GB\n"
        "INFO worker.py:232] Memory profiling results: total_gpu_memory=23.58GiB initial_memory_usage=15.34GiB "
        "peak_torch_memory=17.06GiB memory_usage_post_profile=15.35GiB non_torch_memory=0.35GiB "
        "kv_cache_size=3.81GiB gpu_memory_utilization=0.90\n"
        "INFO gpu_executor.py:113] # GPU blocks: 1952, # CPU blocks: 2048\n"
    )
    known = {name: log.figure(name) for name in ("total", "activation", "non_torch", "kv", "num_gpu_blocks")}
    assert known == {
        "total": 23.58,
        "activation": 2.07,
        "non_torch": 0.35,
        "kv": 3.81,
        "num_gpu_blocks": 1952,
    }
    assert log.settings["engine", "gpu_memory_utilization"].value == 0.9


def test_v1_states_the_utilization_where_it_asks_for_memory():
    text = (
        "DEBUG [gpu_worker.py:420] Initial free memory: 78.65 GiB; Requested memory: 0.95 (util), 75.23 GiB"
    )
    log = parse_startup_log(f"{text}\nModel loading took 7.51 GiB")
    assert log.settings["engine", "gpu_memory_utilization"].value == 0.95


def test_of_the_workers_blocks_the_fewest_decide():
    log = parse_startup_log(
        "\n".join(
            f"INFO GPU KV cache size: {tokens} tokens\nINFO Maximum concurrency for 40,960 tokens per request: {x}x"
            for tokens, x in (("857,520", 20.94), ("855,984", 20.90), ("857,072", 20.92))
        )
    )
    assert (log.figure("kv_tokens"), log.figure("max_concurrency")) == (855_984, 20.90)


def test_a_second_server_is_not_read():
    first, second = (
        f"Initializing a V1 LLM engine (v0.19.0) with config: model='m'\nModel loading took {gib} GiB\n"
        f"GPU KV cache size: {tokens} tokens\n"
        for gib, tokens in ((7.51, "900,000"), (14.99, "400,000"))
    )
    log = parse_startup_log(first + second)
    assert (log.figure("weights"), log.figure("kv_tokens")) == (7.51, 900_000)
    assert log.warnings == ["line 4 begins another server: only the first is read"]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("quantization='bitsandbytes'", "weights are taken as not quantised"),
        ("cpu_offload_gb=10.0", "all weights are taken to be on the GPU"),
        ("enable_lora=True", "adapters are not counted"),
        ("speculative_config={'model': 'x'}", "the draft model is not counted"),
    ],
)
def test_options_that_no_prediction_takes_in_are_named(option, said):
    line = f"args: Namespace(model='m', {option})"
    assert any(said in warning for warning in parse_startup_log(f"{line}\nModel loading took 7 GiB").warnings)
    plain = "args: Namespace(cpu_offload_gb=0, enable_lora=False, speculative_config=None, quantization=None)"
    found = parse_startup_log(f"vLLM API server version 0.19.0\n{plain}\nModel loading took 7 GiB")
    assert found.warnings == []


def test_experts_over_ranks_are_read():
    line = "non-default args: {'model': 'm', 'data_parallel_size': 4, 'enable_expert_parallel': True}"
    found = settings(parse_startup_log(f"{line}\nModel loading took 7 GiB"))
    assert (found["parallel.data_parallel_size"], found["parallel.enable_expert_parallel"]) == (4, True)


def test_a_model_in_the_cache_has_its_name():
    path = "/data/hub/models--Qwen--Qwen3-8B/snapshots/b968826d9c46"
    log = parse_startup_log(
        f"Initializing a V1 LLM engine with config: model='{path}'\nModel loading took 15 GiB"
    )
    assert log.settings["model",].value == "Qwen/Qwen3-8B"
