# ruff: noqa: E501 - a case a line, its message whole, so that it can be searched for
"""vLLM's command lines as people paste them: which field each flag sets, what is left out, what is refused."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.errors import InputError, ScenarioError
from simkv.load.command_line import human_number
from simkv.load.hardware import shipped_hardware
from simkv.load.saved import scenario_text
from simkv.load.scenario import load_scenario, parse_scenario, shipped_scenarios
from simkv.load.vllm_cli import Commands, read_commands
from simkv.load.vllm_flags import serve_flags
from simkv.spec.engine import EngineSpec
from simkv.spec.parallel import ParallelSpec
from simkv.spec.scenario import Scenario

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
API_SERVER = "vllm.entrypoints.openai.api_server"


def said(commands: Commands) -> dict[str, Any]:
    return {".".join(path): value for path, value in commands.settings.items()}


def serve(*flags: str) -> dict[str, Any]:
    """The fields that flags after ``vllm serve MODEL`` set, the model left out."""
    fields = said(read_commands(shlex.join(["vllm", "serve", MODEL, *flags])))
    assert fields.pop("model") == MODEL
    return fields


def bench(*flags: str) -> dict[str, Any]:
    return said(read_commands(bench=shlex.join(["vllm", "bench", "serve", *flags])))


def faults(serve: str | None = None, bench: str | None = None) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        read_commands(serve, bench)
    return list(caught.value.faults)


def scenario(
    serve: str, *overrides: str, bench: str | None = None, hardware: str = "h100_sxm_x8"
) -> Scenario:
    return load_scenario(None, overrides, read_commands(serve, bench, hardware))


# The server's program


@pytest.mark.parametrize(
    "command",
    [
        f"vllm serve {MODEL} -tp 2",
        f"vllm serve -tp 2 {MODEL}",
        f"vllm serve --model {MODEL} --tensor-parallel-size=2",
        f"/opt/venv/bin/vllm serve {MODEL} --tensor_parallel_size 2",
        f"  $ vllm serve {MODEL} \\\n    -tp 2 \\\n",
        f"vllm serve {MODEL} \\  \r\n -tp 2",
        f"vllm serve '{MODEL}' -tp=2 > serve.log 2>&1 &",
        f"vllm serve {MODEL} -tp 2 2>&1 | tee serve.log",
        f"vllm serve {MODEL} -tp 2 # the eight cards",
        f"vllm serve {MODEL} -tp 4 -tp 2",
        f"vllm serve {MODEL} --served-model-name a b --hf-token -tp 2 --api-key",
        f"nohup uv run vllm serve {MODEL} -tp 2 && echo done",
        f"python -m {API_SERVER} --model {MODEL} --tensor-parallel-size 2",
        f"python3 -m {API_SERVER} --model={MODEL} --tensor_parallel_size=2",
        f"python vllm/entrypoints/openai/api_server.py --model {MODEL} -tp 2",
        f"docker run --gpus all -p 8000:8000 --ipc=host vllm/vllm-openai --model {MODEL} -tp 2",
        f"sudo docker run --name vllm-openai registry.local/vllm/vllm-openai@sha256:ab {MODEL} -tp 2",
        f"docker run vllm/vllm-openai vllm serve {MODEL} -tp 2",
        f"docker run --entrypoint python3 vllm/vllm-openai -m {API_SERVER} --model {MODEL} -tp 2",
    ],
)
def test_one_server_in_many_words(command: str) -> None:
    assert said(read_commands(command)) == {"model": MODEL, "parallel.tensor_parallel_size": 2}


def test_an_image_tag_is_the_version() -> None:
    for tag, version in (("v0.19.0", "0.19.0"), ("0.10.1.1", "0.10.1.1")):
        fields = said(read_commands(f"docker run --gpus all vllm/vllm-openai:{tag} --model {MODEL}"))
        assert fields == {"engine.vllm_version": version, "model": MODEL}
    commands = read_commands(f"docker run vllm/vllm-openai:latest --model {MODEL}")
    assert said(commands) == {"model": MODEL}
    assert list(commands.notes()) == [
        "--vllm: vllm-openai:latest: vLLM 0.32.0 is taken; --set engine.vllm_version=X.Y.Z takes another"
    ]


@pytest.mark.parametrize(
    "command",
    [
        f"VLLM_PP_LAYER_PARTITION=20,12 HF_TOKEN=hf_secret VLLM_USE_V1=1 CUDA_VISIBLE_DEVICES=0,1 VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve {MODEL} -pp 2",
        f"export VLLM_PP_LAYER_PARTITION=20,12 HF_TOKEN=hf_secret VLLM_USE_V1=1 && CUDA_VISIBLE_DEVICES=0,1 VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve {MODEL} -pp 2",
        f"docker run -v /data:/data -e VLLM_PP_LAYER_PARTITION=20,12 --env HF_TOKEN=hf_secret --env=VLLM_USE_V1=1 -e CUDA_VISIBLE_DEVICES=0,1 -e VLLM_ATTENTION_BACKEND=FLASHINFER vllm/vllm-openai --model {MODEL} -pp 2",
    ],
)
def test_variables_before_the_program(command: str) -> None:
    commands = read_commands(command)
    fields = said(commands)
    fields.pop("engine.vllm_version", None)
    assert fields == {
        "model": MODEL,
        "parallel.pipeline_parallel_size": 2,
        "parallel.pipeline_layer_partition": [20, 12],
    }
    notes = [note for note in commands.notes() if "vllm-openai" not in note]
    assert notes == [
        "--vllm: HF_TOKEN, VLLM_USE_V1: no effect on the simulation",
        "--vllm: CUDA_VISIBLE_DEVICES: the GPUs are those of --hardware",
        "--vllm: VLLM_ATTENTION_BACKEND: not simulated",
    ]


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("", "wanted a command such as 'vllm serve MODEL …' or 'python -m vllm.entrypoints.openai.api_server --model MODEL …', got nothing"),
        ("sglang --api-key secret", "wanted a command such as 'vllm serve MODEL …' or 'python -m vllm.entrypoints.openai.api_server --model MODEL …', got 'sglang …'"),
        ("vllm bench serve", "wanted the server's command line; that of the clients belongs to --bench"),
        ("python benchmarks/benchmark_serving.py", "wanted the server's command line; that of the clients belongs to --bench"),
        ("vllm serve 'm", "wanted a command line, got one with no closing quotation"),
        ("vllm serve a b", "wanted one model, got 'a', 'b'"),
        ("VLLM_PP_LAYER_PARTITION=a,b vllm serve m", "VLLM_PP_LAYER_PARTITION: wanted layers by stage, such as 16,16, got 'a,b'"),
        ("vllm serve m --tensor-paralel-size 8", "--tensor-paralel-size: unknown flag; did you mean '--tensor-parallel-size'?"),
        ("vllm serve m --zzz 8", "--zzz: unknown flag"),
        ("vllm serve m --no-max-num-seqs", "--no-max-num-seqs: unknown flag; did you mean '--max-num-seqs'?"),
        ("vllm serve m --max-model-len abc", "--max-model-len: wanted a number, got 'abc'"),
        ("vllm serve m --max-model-len", "--max-model-len: wanted a number, got nothing"),
        ("vllm serve m --max-model-len=", "--max-model-len: wanted a number, got nothing"),
        ("vllm serve m --max-model-len --port 80", "--max-model-len: wanted a number, got nothing"),
        ("vllm serve m --max-model-len 1.5K", "--max-model-len: wanted a whole number before K, or k, got '1.5K'"),
        ("vllm serve m --max_model_len 32kb", "--max_model_len: wanted a number, got '32kb'"),
        ("vllm serve m --max-num-seqs 1k", "--max-num-seqs: wanted a number, got '1k'"),
        (f"vllm serve m --max-model-len {'9' * 400}k", f"--max-model-len: wanted a number, got '{'9' * 56}…"),
        ("vllm serve m -tp $TP", "-tp: wanted a number, got '$TP'"),
        ("vllm serve m --gpu-memory-utilization high", "--gpu-memory-utilization: wanted a number, got 'high'"),
        ("vllm serve --config serve.yaml", "--config: wanted the flags of the file written out, got 'serve.yaml'"),
        ("vllm serve m --enforce-eager=maybe", "--enforce-eager: wanted true or false, got 'maybe'"),
        ("vllm serve m --model", "--model: wanted a model, got nothing"),
        ("vllm serve m --cuda-graph-sizes", "--cuda-graph-sizes: wanted a value, got nothing"),
    ],
)  # fmt: skip
def test_a_server_that_is_refused(command: str, fault: str) -> None:
    assert faults(command) == [f"--vllm: {fault}"]


def test_all_faults_of_both_commands_at_once() -> None:
    assert faults("vllm serve -tp a -pp b", "vllm bench serve --num-prompts c") == [
        "--vllm: -tp: wanted a number, got 'a'",
        "--vllm: -pp: wanted a number, got 'b'",
        "--bench: --num-prompts: wanted a number, got 'c'",
    ]


# The server's flags


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ("-tp 8", "parallel.tensor_parallel_size", 8),
        ("-pp 2", "parallel.pipeline_parallel_size", 2),
        ("-dp 2", "parallel.data_parallel_size", 2),
        ("-dcp 2", "parallel.decode_context_parallel_size", 2),
        ("-pcp 2", "parallel.prefill_context_parallel_size", 2),
        ("--max-model-len 32k", "engine.max_model_len", 32_000),
        ("--max-model-len 128K", "engine.max_model_len", 131_072),
        ("--max-num-batched-tokens 8_192", "engine.max_num_batched_tokens", 8192),
        ("--max-num-seqs 64", "engine.max_num_seqs", 64),
        ("--gpu-memory-utilization .85", "engine.gpu_memory_utilization", 0.85),
        ("--kv-cache-dtype fp8_e4m3", "engine.kv_cache_dtype", "fp8_e4m3"),
        ("--kv-cache-memory-bytes 20G", "engine.kv_cache_memory_bytes", 20 * 2**30),
        ("--kv-cache-memory 20g", "engine.kv_cache_memory_bytes", 20 * 10**9),
        ("--num-gpu-blocks-override 512", "engine.num_gpu_blocks_override", 512),
        ("--block-size 32", "engine.block_size", 32),
        ("--enable-prefix-caching", "engine.enable_prefix_caching", True),
        ("--no-enable-prefix-caching", "engine.enable_prefix_caching", False),
        ("--no_enable_prefix_caching", "engine.enable_prefix_caching", False),
        ("--enable-chunked-prefill False", "engine.enable_chunked_prefill", False),
        ("--enable-chunked-prefill=true", "engine.enable_chunked_prefill", True),
        ("--no-async-scheduling", "engine.async_scheduling", False),
        ("--scheduling-policy priority", "engine.scheduling_policy", "priority"),
        ("--long-prefill-token-threshold 2048", "engine.long_prefill_token_threshold", 2048),
        ("--enforce-eager", "engine.enforce_eager", True),
        ("--disable-custom-all-reduce", "engine.disable_custom_all_reduce", True),
        ("--distributed-executor-backend ray", "engine.distributed_executor_backend", "ray"),
        ("--swap-space 4", "engine.swap_space", 4.0),
        ("--dtype half", "model.dtype", "float16"),
        ("--dtype bfloat16", "model.dtype", "bfloat16"),
        ("--quantization fp8", "model.quantization", {"method": "fp8"}),
        ("-q gptq_marlin", "model.quantization", {"method": "w4a16", "group_size": 128}),
    ],
)
def test_a_flag_sets_its_field(flags: str, field: str, value: Any) -> None:
    fields = serve(*flags.split())
    assert fields == {field: value}
    assert type(fields[field]) is type(value)


def test_every_field_of_engine_and_layout_has_its_flag() -> None:
    reached = {flag.path for flag in serve_flags().values() if flag.path}
    unreached = {
        name
        for section, spec in (("engine", EngineSpec), ("parallel", ParallelSpec))
        for name in spec.model_fields
        if (section, name) not in reached
    }
    # An image's tag, a variable, and what vLLM does not have.
    others = {"vllm_version", "pipeline_layer_partition", "rules"}
    assert others <= unreached
    assert reached <= {(s, n) for s, spec in (("engine", EngineSpec), ("parallel", ParallelSpec)) for n in spec.model_fields} | {("model",), ("model", "dtype"), ("model", "quantization")}  # fmt: skip


@pytest.mark.parametrize("flags", ["--dtype auto", "--quantization None"])
def test_a_default_said_aloud_sets_nothing(flags: str) -> None:
    assert serve(*flags.split()) == {}


def test_an_automatic_length_takes_back_that_of_the_file() -> None:
    for text in ("auto", "-1"):
        commands = read_commands(f"vllm serve --max-model-len {text}")
        assert said(commands) == {"engine.max_model_len": None}
        assert list(commands.notes()) == [
            "--vllm: --max-model-len: the model's own length is taken; where it does not fit, 'simkv plan' says what does"
        ]
        assert load_scenario("closed_loop", commands=commands).resolved_engine.max_model_len == 131_072


def test_what_is_left_out_is_named_with_the_reason() -> None:
    commands = read_commands(
        f"vllm serve {MODEL} --host 0.0.0.0 --port 8000 --api-key sk-secret --trust-remote-code -O3 "
        '--speculative-config \'{"method": "ngram"}\' --enable-lora --lora-modules a=b c=d --port 80 '
        "--compilation-config.mode 3 --nnodes 2 --disable-log-requests --allowed-origins '[\"*\"]' -q bitsandbytes"
    )
    assert said(commands) == {"model": MODEL}
    assert list(commands.notes()) == [
        "--vllm: --host, --port, --api-key, --trust-remote-code, --disable-log-requests, --allowed-origins: no effect on the simulation",
        "--vllm: -O, --speculative-config, --enable-lora, --lora-modules, --compilation-config.mode: not simulated",
        "--vllm: --nnodes: the GPUs are those of --hardware",
        "--vllm: -q: bitsandbytes: not simulated; the checkpoint's own format is taken",
    ]


@pytest.mark.parametrize(
    ("text", "number"),
    [("1k", 1000), ("1K", 1024), ("2m", 2_000_000), ("2M", 2**21), ("25.6k", 25_600), ("1G", 2**30), ("1t", 10**12), ("7", 7), (" 7 ", 7), ("-7", -7)],
)  # fmt: skip
def test_numbers_with_suffixes_are_vllms(text: str, number: int) -> None:
    assert human_number(text) == number


# The clients


@pytest.mark.parametrize(
    ("flags", "workload"),
    [
        ("", {}),
        ("--dataset-name random --num-prompts 50", {"num_prompts": 50}),
        (
            "--random-input-len 32768 --random-output-len 256",
            {"random_input_len": 32768, "random_output_len": 256},
        ),
        (
            "--random_range_ratio 0.5 --random_prefix_len=64",
            {"random_range_ratio": 0.5, "random_prefix_len": 64},
        ),
        (
            "--input-len 9 --random-input-len 8 --output-len 3",
            {"random_input_len": 9, "random_output_len": 3},
        ),
        ("--request-rate 2", {"request_rate": 2.0}),
        ("--request-rate inf", {}),
        ("--request-rate 2 --burstiness 0.5", {"request_rate": 2.0, "burstiness": 0.5}),
        ("--request-rate inf --burstiness 0.5", {}),
        ("--request-rate 2 --request-rate inf", {}),
        ("--max-concurrency 16 --ignore-eos --save-result --metadata a=b c=d", {"max_concurrency": 16}),
        ("--percentile-metrics ttft,tpot --model x --backend openai-chat --endpoint /v1/chat", {}),
    ],
)
def test_a_benchmark_is_a_workload(flags: str, workload: dict[str, Any]) -> None:
    assert bench(*flags.split()) == {"workload": {"dataset_name": "random", **workload}}


def test_goodput_and_seed_are_fields_of_their_own() -> None:
    fields = bench("--goodput", "ttft:3000", "tpot:50", "--seed", "7", "--goodput", "ttft:2000", "e2el:1e4")
    assert fields["slo"] == {"ttft_ms": 2000.0, "e2el_ms": 10_000.0}
    assert fields["seed"] == 7


def test_the_old_benchmark_script() -> None:
    commands = read_commands(
        bench="python benchmarks/benchmark_serving.py --backend vllm --dataset-name random --num-prompts 5 | tee x"
    )
    assert said(commands) == {"workload": {"dataset_name": "random", "num_prompts": 5}}


NO_DATASET = "is not a data set that simkv can make; use random with --random-input-len and --random-output-len, or describe the lengths in a scenario file (docs/scenarios.md)"


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("", "wanted 'vllm bench serve …' or 'python benchmark_serving.py …', got nothing"),
        ("vllm serve m", "wanted 'vllm bench serve …' or 'python benchmark_serving.py …', got 'vllm …'"),
        ("vllm bench throughput --model m", "wanted 'vllm bench serve …', got 'vllm bench throughput', which has no server"),
        ("vllm bench serve --dataset-name sharegpt --dataset-path x.json", f"--dataset-name: 'sharegpt' {NO_DATASET}"),
        ("vllm bench serve --dataset-name hf", f"--dataset-name: 'hf' {NO_DATASET}"),
        ("python benchmark_serving.py --num-prompts 5", f"--dataset-name: the default 'sharegpt' {NO_DATASET}"),
        ("vllm bench serve --dataset-path x.json", "--dataset-path: the data set random has no file; leave it out"),
        ("vllm bench serve --num-prompts ten", "--num-prompts: wanted a number, got 'ten'"),
        ("vllm bench serve --request-rate", "--request-rate: wanted a number, got nothing"),
        ("vllm bench serve --random-range-ratio '{\"input\": 0.1}'", "--random-range-ratio: wanted a number, got '{\"input\": 0.1}'"),
        ("vllm bench serve --goodput ttft=3", "--goodput: wanted ttft, tpot, e2el with milliseconds, such as ttft:3000 tpot:50, got 'ttft=3'"),
        ("vllm bench serve --goodput ttft:3 itl:4", "--goodput: wanted ttft, tpot, e2el with milliseconds, such as ttft:3000 tpot:50, got 'ttft:3 itl:4'"),
        ("vllm bench serve --goodput ttft:x", "--goodput: wanted a number, got 'ttft:x'"),
        ("vllm bench serve --goodput", "--goodput: wanted limits such as ttft:3000 tpot:50, got nothing"),
        ("vllm bench serve --ramp-up-strategy linear --ramp-up-start-rps 1", "--ramp-up-strategy: not simulated; use --request-rate, and a run for each rate"),
        ("vllm bench serve --use-beam-search", "--use-beam-search: not simulated; leave it out"),
        ("vllm bench serve --num-promts 4", "--num-promts: unknown flag; did you mean '--num-prompts'?"),
        ("vllm bench serve stray", "wanted a flag, got 'stray'"),
    ],
)  # fmt: skip
def test_a_benchmark_that_is_refused(command: str, fault: str) -> None:
    assert faults(bench=command) == [f"--bench: {fault}"]


# Scenarios of them


def test_command_lines_alone_make_a_scenario() -> None:
    made = scenario(
        f"vllm serve {MODEL} -tp 2 --max-model-len 32768 --max-num-seqs 64",
        bench="vllm bench serve --random-input-len 1000 --num-prompts 20 --request-rate 2 --goodput ttft:500 --seed 3",
    )
    assert made == parse_scenario(
        f"""
        name: Llama-3.1-8B-Instruct
        model: {MODEL}
        hardware: h100_sxm_x8
        parallel: {{tensor_parallel_size: 2}}
        engine: {{max_model_len: 32768, max_num_seqs: 64}}
        workload: {{dataset_name: random, random_input_len: 1000, num_prompts: 20, request_rate: 2.0}}
        slo: {{ttft_ms: 500.0}}
        seed: 3
        """.replace("\n        ", "\n")
    )


def test_a_command_line_holds_over_the_file_and_an_override_over_both() -> None:
    commands = read_commands(
        "vllm serve --max-num-seqs 32 --block-size 32", "vllm bench serve --num-prompts 7"
    )
    made = load_scenario("quickstart", ["engine.block_size=64", "workload.num_prompts=8"], commands)
    base = load_scenario("quickstart")
    assert (made.engine.max_num_seqs, made.engine.block_size) == (32, 64)
    assert made.engine.max_num_batched_tokens == base.engine.max_num_batched_tokens
    assert (made.name, made.model, made.parallel, made.slo) == (
        base.name,
        base.model,
        base.parallel,
        base.slo,
    )
    assert made.workload is not None
    assert made.workload.dataset_name == "random"  # a benchmark is all that clients do
    assert (made.workload.num_prompts, made.workload.request_rate) == (8, None)


def test_a_flag_names_the_format_of_a_quantised_checkpoint_and_changes_that_of_another() -> None:
    awq = scenario("vllm serve hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4 -q fp8").model
    assert awq == load_scenario(None, (), read_commands("vllm serve hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4", hardware="l40s")).model  # fmt: skip
    plain = scenario(f"vllm serve {MODEL} -q fp8").model
    assert plain.quantization is not None
    assert plain.quantization.method == "fp8"


@pytest.mark.parametrize("name", ["fp8", "modelopt", "modelopt_fp4", "mxfp4", "awq", "awq_marlin", "gptq", "gptq_marlin"])  # fmt: skip
def test_every_format_that_is_mapped_makes_the_model_smaller(name: str) -> None:
    quantization = scenario(f"vllm serve {MODEL} -q {name}").model.quantization
    assert quantization is not None
    assert quantization.bytes_per_weight <= 1


@pytest.mark.parametrize(
    ("serve", "bench", "fault"),
    [
        (f"vllm serve {MODEL} -tp 3", None, "--vllm: -tp: parallel.tensor_parallel_size: 3 does not divide 32 attention heads; use 1, 2, 4, 8, 16 or 32"),
        (f"vllm serve {MODEL} -tp 16", None, "--vllm: parallel: the layout TP16 needs 16 GPUs, h100_sxm_x8 has 8; use smaller sizes or a larger box"),
        (f"vllm serve {MODEL} --block-size 0", None, "--vllm: --block-size: engine.block_size: wanted a number above 0, got 0"),
        (f"vllm serve {MODEL} --kv-cache-dtype int8", None, "--vllm: --kv-cache-dtype: engine.kv_cache_dtype: wanted auto, bfloat16, float16, fp8, fp8_e4m3 or fp8_e5m2, got 'int8'"),
        (f"vllm serve {MODEL} --max-model-len 1M", None, f"--vllm: --max-model-len: engine.max_model_len: 1048576 is beyond the 131072 positions of {MODEL}"),
        ("vllm serve llama-3.1-8x", None, "--vllm: model: 'llama-3.1-8x' is not shipped; did you mean 'meta-llama/Llama-3.1-8B'? (give a path to a Hugging Face config.json, or dimensions inline; see 'simkv list models')"),
        ("vllm serve --port 80", None, "--vllm: model: missing; wanted it after 'vllm serve'"),
        (f"vllm serve {MODEL}", "vllm bench serve --num-prompts 0", "--bench: --num-prompts: workload.num_prompts: wanted a number above 0, got 0"),
        (f"vllm serve {MODEL}", "vllm bench serve --goodput ttft:0", "--bench: --goodput: slo.ttft_ms: wanted a number above 0, got 0.0"),
        (f"vllm serve {MODEL}", "vllm bench serve --seed -1", "--bench: --seed: seed: wanted a number at least 0, got -1"),
    ],
)  # fmt: skip
def test_a_value_that_no_scenario_takes(serve: str, bench: str | None, fault: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario(serve, bench=bench)
    assert caught.value.faults == (fault,)


def test_nobody_but_the_user_knows_the_gpus() -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(None, (), read_commands(f"vllm serve {MODEL}"))
    known = ", ".join(shipped_hardware())
    assert caught.value.faults == (
        f"--hardware: missing; wanted the GPUs, one of {known} (with _x8 for a node of 8), or a .yaml file",
    )
    with pytest.raises(
        ScenarioError, match=r"^--hardware: hardware: no profile 'h100'; did you mean 'h100_sxm'"
    ):
        scenario(f"vllm serve {MODEL}", hardware="h100")
    assert (
        load_scenario(None, ["hardware=l40s"], read_commands(f"vllm serve {MODEL}")).hardware.name == "l40s"
    )


WORDS = st.one_of(
    st.sampled_from([*serve_flags(), "--no-enforce-eager", "vllm", "serve", MODEL, "8", "0.9", "auto", "32k", "=", "A=b", "-1", "\\\n", "'", "#", "$", "vllm/vllm-openai:v0.19.0"]),
    st.text(max_size=8),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(WORDS, max_size=12), st.lists(WORDS, max_size=8))
def test_any_text_gives_a_scenario_or_faults_that_say_where(server: list[str], clients: list[str]) -> None:
    try:
        scenario("vllm serve " + " ".join(server), bench="vllm bench serve " + " ".join(clients))
    except InputError as error:
        for fault in error.faults:
            assert fault.startswith(("--vllm", "--bench", "--hardware", "name:")), fault
            assert "\n" not in fault


# Saved scenarios


def assert_loads_again(made: Scenario, file: Path) -> None:
    file.write_text(scenario_text(made, file), encoding="utf-8")
    assert load_scenario(file) == made


@pytest.mark.parametrize(
    ("serve", "bench"),
    [
        (f"vllm serve {MODEL}", None),
        (f"VLLM_PP_LAYER_PARTITION=20,12 vllm serve {MODEL} -pp 2 --dtype half -q fp8 --no-enable-prefix-caching", None),
        (f"docker run vllm/vllm-openai:v0.19.0 --model {MODEL} --gpu-memory-utilization 0.85 --swap-space 4", None),
        (f"vllm serve {MODEL} -tp 8 --kv-cache-dtype fp8 --max-model-len 32k", "vllm bench serve --request-rate 0.1 --burstiness 0.3 --goodput ttft:1e3 --seed 9 --max-concurrency 4"),
    ],
)  # fmt: skip
def test_a_saved_scenario_loads_again(serve: str, bench: str | None, tmp_path: Path) -> None:
    assert_loads_again(scenario(serve, bench=bench), tmp_path / "saved.yaml")


@pytest.mark.parametrize("name", sorted(shipped_scenarios()))
def test_shipped_scenarios_saved_load_again(name: str, tmp_path: Path) -> None:
    assert_loads_again(load_scenario(name), tmp_path / "saved.yaml")


def test_a_saved_scenario_names_what_ships_and_spells_out_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "saved.yaml"
    assert scenario_text(scenario(f"vllm serve {MODEL} -tp 2"), file).splitlines() == [
        "# Written by simkv --save.",
        "name: Llama-3.1-8B-Instruct",
        f"model: {MODEL}",
        "hardware: h100_sxm_x8",
        "parallel:",
        "  tensor_parallel_size: 2",
        "engine:",
        "  vllm_version: 0.32.0",
        "seed: 0",
    ]
    own = scenario(
        f"vllm serve {MODEL}", "hardware.host.step_s={value: 1 ms, source: a test}", "model.vocab_size=9"
    )
    assert "  vocab_size: 9\n" in scenario_text(own, file)
    assert_loads_again(own, file)


def test_a_trace_beside_the_old_file_is_found_from_the_new_one(tmp_path: Path) -> None:
    trace = Path(__file__).parents[1] / "data" / "azure_sample_seconds.csv"
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "trace.csv").write_bytes(trace.read_bytes())
    old, new = tmp_path / "old" / "a.yaml", tmp_path / "b.yaml"
    old.write_text(f"model: {MODEL}\nhardware: l40s\nworkload: {{dataset_name: azure, dataset_path: trace.csv}}\n", encoding="utf-8")  # fmt: skip
    new.write_text(scenario_text(load_scenario(old), new, old.parent), encoding="utf-8")
    workload = load_scenario(new).workload
    assert workload is not None
    assert workload.dataset_path == str(Path("old") / "trace.csv")
