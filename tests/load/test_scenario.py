# ruff: noqa: E501 - a case a line, its message whole, so that it can be searched for
"""Scenario files: what is wrong is said in one line a fault, all at once; nothing else than that ever happens."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simkv.errors import ScenarioError, SimkvError
from simkv.load.hardware import shipped_hardware
from simkv.load.scenario import find_scenario, load_scenario, parse_scenario, shipped_scenarios
from simkv.planning import plan
from simkv.spec.scenario import Scenario

TEXT = """\
model: meta-llama/Llama-3.1-8B-Instruct
hardware: h100_sxm
parallel: {tensor_parallel_size: 2}
engine: {max_model_len: 16384}
workload:
  arrival: poisson
  request_rate: 0.5
  num_prompts: 10
  prompt_len: {lognormal: {median: 800, p99: 2800, max: 3100}}
  output_len: 16
slo: {ttft_ms: 1000}
seed: 0
"""
DIMENSIONS = (
    "{num_hidden_layers: 4, hidden_size: 64, num_attention_heads: 8, num_key_value_heads: 2, head_dim: 8, "
    "intermediate_size: 96, vocab_size: 1000, max_position_embeddings: 32768}"
)
LLAMA_CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 1000,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}
TOP = "name, model, hardware, parallel, engine, workload, slo, seed, sweep"
PROFILES = ", ".join(shipped_hardware())
LENGTH = (
    "a number of tokens, {uniform: {min: …, max: …}}, {lognormal: {median: …, p99: …}}, "
    "{quantiles: {0: …, 1: …}} or {preset: …}"
)
NOT_SHIPPED = "(give a path to a Hugging Face config.json, or dimensions inline; see 'simkv list models')"


def changed(*changes: tuple[str, str]) -> str:
    """The good scenario with pieces of its text replaced."""
    text = TEXT
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def faults(text: str, *overrides: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, overrides, "x.yaml")
    return list(caught.value.faults)


def load_faults(path: Path) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    return list(caught.value.faults)


# What is right


@pytest.mark.parametrize("name", sorted(shipped_scenarios()))
def test_shipped_scenarios_load_from_anywhere_by_name_or_path(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scenario = load_scenario(name)
    assert scenario.name == name
    assert scenario == load_scenario(f"scenarios/{name}.yaml") == load_scenario(shipped_scenarios()[name])
    assert plan(scenario).fits
    assert scenario.workload is not None


def test_a_file_in_the_way_goes_before_a_shipped_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("quickstart").write_text(TEXT, encoding="utf-8")
    assert load_scenario("quickstart") == parse_scenario(TEXT, source="quickstart")


def test_the_name_is_the_files_unless_it_says_another(tmp_path: Path) -> None:
    path = tmp_path / "my one.v2.yaml"
    path.write_text(TEXT, encoding="utf-8")
    assert load_scenario(path).name == "my one.v2"
    assert load_scenario(path, ["name=other"]).name == "other"
    assert parse_scenario(TEXT).name == "scenario"


@pytest.mark.parametrize("text", [f"\ufeff{TEXT}", TEXT.replace("\n", "\r\n"), f"---\n{TEXT}...\n"])
def test_byte_order_mark_line_ends_and_document_marks_do_not_matter(text: str, tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(text, encoding="utf-8", newline="")
    assert load_scenario(path) == parse_scenario(TEXT)


def test_an_alias_is_what_it_stands_for() -> None:
    text = changed(("prompt_len: {", "prompt_len: &len {"), ("output_len: 16", "output_len: *len"))
    workload = parse_scenario(text).workload
    assert workload is not None
    assert workload.prompt_len == workload.output_len
    workload = parse_scenario(text, ["workload.output_len.lognormal.median=9"]).workload
    assert workload is not None
    assert workload.prompt_len is not None
    assert workload.prompt_len.lognormal is not None
    assert workload.prompt_len.lognormal.median == 800


def test_a_plan_needs_no_workload() -> None:
    assert parse_scenario("model: llama-3.1-8b\nhardware: h100_sxm\n").workload is None


@pytest.mark.parametrize("value", ["null", "~", ""])
def test_nothing_is_the_default_where_there_is_one(value: str) -> None:
    text = changed(("max_model_len: 16384", f"max_model_len: {value}"))
    assert parse_scenario(text).resolved_engine.max_model_len == 131072


@pytest.mark.parametrize(
    ("hardware", "name", "num_gpus"),
    [
        ("h100_sxm_x8", "h100_sxm_x8", 8),
        ("H100-SXM_2x8", "h100_sxm_2x8", 16),
        ("{gpu: h100_sxm, num_gpus_per_node: 8, num_nodes: 3}", "h100_sxm_3x8", 24),
        ("{gpu: h100_sxm, num_gpus_per_node: 4}", "h100_sxm_x4", 4),
        ("{gpu: h100_sxm_x8, num_gpus_per_node: 4}", "h100_sxm_x4", 4),
        ("{gpu: h100_sxm_2x8, num_nodes: 3}", "h100_sxm_3x8", 24),
        ("{gpu: h100_sxm, num_gpus_per_node: null}", "h100_sxm", None),
    ],
)
def test_hardware_by_name_and_as_a_box(hardware: str, name: str, num_gpus: int | None) -> None:
    made = parse_scenario(changed(("hardware: h100_sxm", f"hardware: {hardware}"))).hardware
    assert (made.name, made.num_gpus) == (name, num_gpus)


def test_inline_hardware_is_the_profile_it_writes_out() -> None:
    profile = parse_scenario(TEXT).hardware
    mapping = json.dumps(profile.model_dump(mode="json", exclude_none=True))
    assert parse_scenario(changed(("h100_sxm", mapping))).hardware == profile


def test_inline_model() -> None:
    scenario = parse_scenario(changed(("meta-llama/Llama-3.1-8B-Instruct", DIMENSIONS)))
    assert (scenario.model.name, scenario.model.num_hidden_layers) == ("inline", 4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A scenario whose model lies in ``tiny/config.json`` beside it."""
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(LLAMA_CONFIG), encoding="utf-8")
    return tmp_path


def with_model(folder: Path, model: object) -> Path:
    path = folder / "x.yaml"
    path.write_text(changed(("meta-llama/Llama-3.1-8B-Instruct", str(model))), encoding="utf-8")
    return path


def test_a_model_file_beside_the_scenario_absolute_or_in_the_working_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for model in ("tiny/config.json", "tiny", "./tiny", folder / "tiny", folder / "tiny" / "config.json"):
        assert load_scenario(with_model(folder, model)).model.name == "tiny"
    monkeypatch.chdir(folder)
    text = Path("x.yaml").read_text(encoding="utf-8")
    assert parse_scenario(text).model.name == load_scenario("x.yaml", ["model=tiny/config.json"]).model.name


# Overrides


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("engine.block_size=32", "engine.block_size", 32),
        (" engine . block_size = 32 ", "engine.block_size", 32),
        ("engine.block_size=32 # because", "engine.block_size", 32),
        ("engine.max_model_len=null", "engine.max_model_len", None),
        ("engine.max_model_len=", "engine.max_model_len", None),
        ("engine.vllm_version='0.30'", "engine.vllm_version", "0.30"),
        ("engine.vllm_version=0.19.0", "engine.vllm_version", "0.19.0"),
        ("engine={}", "engine.max_model_len", None),
        ("parallel={pipeline_parallel_size: 4}", "parallel.pipeline_parallel_size", 4),
        ("parallel={pipeline_parallel_size: 4}", "parallel.tensor_parallel_size", 1),
        ("model=Qwen/Qwen2.5-7B", "model.name", "Qwen/Qwen2.5-7B"),
        ("model.num_hidden_layers=16", "model.num_hidden_layers", 16),
        ("model.num_hidden_layers=16", "model.hidden_size", 4096),
        ("model.quantization={method: fp8}", "model.quantization.method", "fp8"),
        ("model.quantization.method=fp8", "model.quantization.method", "fp8"),
        ("hardware=a100_sxm_x4", "hardware.num_gpus", 4),
        ("hardware={gpu: h100_sxm, num_gpus_per_node: 8, num_nodes: 3}", "hardware.num_gpus", 24),
        ("hardware.num_gpus_per_node=4", "hardware.num_gpus", 4),
        ("hardware.gpu.memory_bytes={value: 80 GB, source: x}", "hardware.gpu.memory_bytes.value", 80e9),
        ("workload.prompt_len=1000", "workload.prompt_len.fixed", 1000),
        ("workload.prompt_len={uniform: {min: 1, max: 3}}", "workload.prompt_len.uniform.max", 3),
        ("workload.prompt_len.lognormal.median=900", "workload.prompt_len.lognormal.median", 900),
        ("workload=null", "workload", None),
        ("slo.tpot_ms=1.5", "slo.tpot_ms", 1.5),
        ("seed=" + "9" * 30, "seed", int("9" * 30)),
    ],
)
def test_an_override_sets_its_field(override: str, path: str, value: object) -> None:
    got: object = parse_scenario(TEXT, [override])
    for name in path.split("."):
        got = getattr(got, name)
    assert got == value


@pytest.mark.parametrize(
    ("overrides", "block_size", "max_model_len"),
    [
        (["engine.block_size=32", "engine.block_size=64"], 64, 16384),
        (["engine.block_size=32", "engine={max_model_len: 1000}"], 16, 1000),
        (["engine={max_model_len: 1000}", "engine.block_size=32"], 32, 1000),
        (["engine.block_size=32", "engine={max_model_len: 1000}", "engine.block_size=64"], 64, 1000),
    ],
)
def test_the_later_override_holds(overrides: list[str], block_size: int, max_model_len: int) -> None:
    engine = parse_scenario(TEXT, overrides).engine
    assert (engine.block_size, engine.max_model_len) == (block_size, max_model_len)


@pytest.mark.parametrize("overrides", [("model=tiny", "model.num_hidden_layers=2")] * 2)
def test_a_field_of_an_overridden_model_in_either_order(folder: Path, overrides: tuple[str, ...]) -> None:
    for order in (overrides, overrides[::-1]):
        model = load_scenario(with_model(folder, "llama-3.1-8b"), order).model
        assert (model.hidden_size, model.num_hidden_layers) == (64, 2)


WANTED_FIELD = "--set: wanted field=value, such as engine.block_size=32, got "


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("", f"{WANTED_FIELD}''"),
        ("=", f"{WANTED_FIELD}'='"),
        ("=3", f"{WANTED_FIELD}'=3'"),
        ("engine", f"{WANTED_FIELD}'engine'"),
        ("engine.block_size", f"{WANTED_FIELD}'engine.block_size'"),
        ("engine..block_size=3", f"{WANTED_FIELD}'engine..block_size=3'"),
        (".engine=3", f"{WANTED_FIELD}'.engine=3'"),
        ("engine.=3", f"{WANTED_FIELD}'engine.=3'"),
        ("engine.blok_size=32", "--set: engine.blok_size: unknown key; did you mean 'block_size'?"),
        ("engin.block_size=32", "--set: engin: unknown key; did you mean 'engine'?"),
        ("foo.bar=1", f"--set: foo: unknown key; known: {TOP}"),
        ("a\nb=1", rf"--set: 'a\nb': unknown key; known: {TOP}"),
        ("engine.block_size.x=3", "--set: engine.block_size: wanted an integer, got {'x': 3}"),
        ("seed.x=1", "--set: seed.x: seed is 0, which has no fields"),
        ("workload.arrival.x=1", "--set: workload.arrival.x: workload.arrival is 'poisson', which has no fields"),
        ("workload.output_len.fixed=3", "--set: workload.output_len.fixed: workload.output_len is 16, which has no fields"),
        ("engine.block_size=", "--set: engine.block_size: wanted an integer, got nothing"),
        ("engine.block_size=#3", "--set: engine.block_size: wanted an integer, got nothing"),
        ("engine.block_size='32'", "--set: engine.block_size: wanted an integer, got '32'"),
        ("engine.block_size==32", "--set: engine.block_size: wanted an integer, got '=32'"),
        ("engine.block_size=[32]", "--set: engine.block_size: wanted an integer, got [32]"),
        ("engine.block_size=true", "--set: engine.block_size: wanted an integer, got true"),
        ("engine.block_size=a: b", "--set: engine.block_size: wanted an integer, got {'a': 'b'}"),
        ("engine.max_model_len=1e3", "--set: engine.max_model_len: wanted an integer, got 1000.0; write 1000"),
        ("engine.vllm_version=0.19", "--set: engine.vllm_version: wanted text, got 0.19; put it in quotes"),
        ("engine=", "--set: engine: wanted a mapping, got nothing"),
        ("seed=-5", "--set: seed: wanted a number at least 0, got -5"),
        ("parallel={tensor_paralel_size: 4}", "--set: parallel.tensor_paralel_size: unknown key; did you mean 'tensor_parallel_size'?"),
        ("parallel={a: 1, a: 2}", "--set: parallel: a: duplicate key, first on line 1; remove one"),
        ("parallel=!foo 3", "--set: parallel: tags are not allowed, got !foo"),
        ("seed=1\n---\n2", "--set: seed: not YAML: wanted one document, got another"),
        ("seed=\t3", "--set: seed: not YAML: a tab; indent with spaces"),
        ("seed=\0", r"--set: seed: wanted text, got the control character '\x00'"),
        ("seed=\ud800", r"--set: seed: wanted text, got the control character '\ud800'"),
        ("model=nope", f"--set: model: 'nope' is not shipped {NOT_SHIPPED}"),
        ("model=7", "--set: model: wanted a Hugging Face id, a path to a config.json or dimensions, got 7"),
        ("model=", "--set: model: wanted a Hugging Face id, a path to a config.json or dimensions, got nothing"),
        ("model.num_hidden_layer=16", "--set: model.num_hidden_layer: unknown key; did you mean 'num_hidden_layers'?"),
        ("model.num_hidden_layers=true", "--set: model.num_hidden_layers: wanted an integer, got true"),
        ("model.num_attention_heads=31", "x.yaml:1: model.num_key_value_heads: 8 does not divide num_attention_heads 31"),
        ("hardware=a100", f"--set: hardware: no profile 'a100'; did you mean 'a100_sxm'?; known: {PROFILES}, or a .yaml file"),
        ("hardware.gpu=a100_sxm", "--set: hardware.gpu: wanted a mapping, got 'a100_sxm'"),
        ("hardware.gpu.memory_bytes=80 GB", "--set: hardware.gpu.memory_bytes: wanted {value: …, source: …}, got '80 GB'"),
        ("hardware.num_gpus_per_node=16", "--set: hardware.num_gpus_per_node: wanted at most 8 GPUs in such a node, got 16; use more nodes"),
        ("parallel.pipeline_layer_partition.0=3", "--set: parallel.pipeline_layer_partition: wanted a list, got {'0': 3}"),
        ("name=../elsewhere", "--set: name: wanted a name for a folder, got '../elsewhere'"),
    ],
)  # fmt: skip
def test_an_override_that_is_refused(override: str, fault: str) -> None:
    assert faults(TEXT, override) == [fault]


@pytest.mark.parametrize("override", ["parallel={pipeline", "parallel=[1", "parallel=*x", 'seed="a'])
def test_an_override_that_is_not_yaml(override: str) -> None:
    [fault] = faults(TEXT, override)
    assert fault.startswith(f"--set: {override.partition('=')[0]}: not YAML: ")


def test_all_faults_of_overrides_and_file_at_once() -> None:
    text = changed(("seed: 0", "seed: x"))
    assert faults(text, "x", "y.z=", "engine.block_size=0") == [
        f"{WANTED_FIELD}'x'",
        "--set: engine.block_size: wanted a number above 0, got 0",
        "x.yaml:12: seed: wanted an integer, got 'x'",
        f"--set: y: unknown key; known: {TOP}",
    ]


# Whole files


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "x.yaml: the file is empty"),
        ("null\n", "x.yaml:1: wanted a mapping of model, hardware, …, got nothing"),
        ("- a\n- b\n", "x.yaml:1: wanted a mapping of model, hardware, …, got ['a', 'b']"),
        ("hello\n", "x.yaml:1: wanted a mapping of model, hardware, …, got 'hello'"),
        ("42\n", "x.yaml:1: wanted a mapping of model, hardware, …, got 42"),
        (f"{TEXT}seed: 1\n", "x.yaml:13: seed: duplicate key, first on line 12; remove one"),
        (f"{TEXT}---\n{TEXT}", "x.yaml:13: not YAML: wanted one document, got another"),
        (f"{TEXT}<<: {{seed: 1}}\n", "x.yaml:13: <<: merge keys are not allowed; write the fields out"),
        (TEXT.replace("  num", "\tnum"), "x.yaml:8: not YAML: a tab; indent with spaces"),
        (f"{TEXT}modle: x\n", "x.yaml:13: modle: unknown key; did you mean 'model'?"),
        (f"{TEXT}1: 2\n", f"x.yaml:13: 1: unknown key; known: {TOP}"),
        (f"{TEXT}'': 2\n", f"x.yaml:13: '': unknown key; known: {TOP}"),
        (f"{TEXT}engine.block_size: 32\n", f"x.yaml:13: 'engine.block_size': unknown key; known: {TOP}"),
        (TEXT.partition("\n")[2], "x.yaml:1: model: missing"),
        (changed(("hardware: h100_sxm\n", "")), "x.yaml:1: hardware: missing"),
        (f"{TEXT}name: 3\n", "x.yaml:13: name: wanted text, got 3"),
        (f"{TEXT}name: ''\n", "x.yaml:13: name: wanted a name for a folder, got ''"),
        (f"{TEXT}name: ..\n", "x.yaml:13: name: wanted a name for a folder, got '..'"),
        (f"{TEXT}name: a/b\n", "x.yaml:13: name: wanted a name for a folder, got 'a/b'"),
        (f'{TEXT}name: "a\\nb"\n', r"x.yaml:13: name: wanted a name for a folder, got 'a\nb'"),
    ],
)  # fmt: skip
def test_a_file_that_is_refused(text: str, fault: str) -> None:
    assert faults(text) == [fault]


def test_without_a_model_its_fields_are_not_asked_for() -> None:
    text = TEXT.partition("\n")[2]
    assert faults(text, "model.num_hidden_layers=2") == ["x.yaml:1: model: missing"]


def test_all_faults_of_a_file_at_once() -> None:
    text = """\
model: meta-llama/Llama-3.1-9B
hardware: h100sxm
parallel: {tensor_parallel_size: 0}
engine: {blok_size: 1, max_model_len: x}
workload: {arrival: poison}
seed: -1
sed: 2
"""
    assert faults(text) == [
        f"x.yaml:1: model: 'meta-llama/Llama-3.1-9B' is not shipped; did you mean 'meta-llama/Llama-3.1-8B'? {NOT_SHIPPED}",
        f"x.yaml:2: hardware: no profile 'h100sxm'; did you mean 'h100_sxm'?; known: {PROFILES}, or a .yaml file",
        "x.yaml:3: parallel.tensor_parallel_size: wanted a number above 0, got 0",
        "x.yaml:4: engine.max_model_len: wanted an integer, got 'x'",
        "x.yaml:4: engine.blok_size: unknown key; did you mean 'block_size'?",
        "x.yaml:5: workload.arrival: wanted poisson, gamma, constant or inf, got 'poison'; did you mean 'poisson'?",
        "x.yaml:6: seed: wanted a number at least 0, got -1",
        "x.yaml:7: sed: unknown key; did you mean 'seed'?",
    ]


# Fields of every part


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("tensor_parallel_size", "tensor_paralel_size", "x.yaml:3: parallel.tensor_paralel_size: unknown key; did you mean 'tensor_parallel_size'?"),
        ("max_model_len", "max_model_length", "x.yaml:4: engine.max_model_length: unknown key; did you mean 'max_model_len'?"),
        ("slo: {ttft_ms", "slo: {tttf_ms", "x.yaml:11: slo.tttf_ms: unknown key; did you mean 'ttft_ms'?"),
        ("output_len", "output_length", "x.yaml:10: workload.output_length: unknown key; did you mean 'output_len'?"),
        ("lognormal", "lognrmal", "x.yaml:9: workload.prompt_len.lognrmal: unknown key; did you mean 'lognormal'?"),
        ("p99: 2800", "p99: 2800, p50: 3", "x.yaml:9: workload.prompt_len.lognormal.p50: unknown key; known: median, p99, max"),
        ("{ttft_ms: 1000}", "null", "x.yaml:11: slo: wanted a mapping, got nothing"),
        ("{ttft_ms: 1000}", "[8]", "x.yaml:11: slo: wanted a mapping, got [8]"),
        ("{tensor_parallel_size: 2}", "true", "x.yaml:3: parallel: wanted a mapping, got true"),
        ("{max_model_len: 16384}", "fcfs", "x.yaml:4: engine: wanted a mapping, got 'fcfs'"),
        ("16384", "true", "x.yaml:4: engine.max_model_len: wanted an integer, got true"),
        ("16384", "'8'", "x.yaml:4: engine.max_model_len: wanted an integer, got '8'"),
        ("16384", "[8]", "x.yaml:4: engine.max_model_len: wanted an integer, got [8]"),
        ("16384", "{a: 1}", "x.yaml:4: engine.max_model_len: wanted an integer, got {'a': 1}"),
        ("16384", "8.5", "x.yaml:4: engine.max_model_len: wanted an integer, got 8.5"),
        ("16384", "1e3", "x.yaml:4: engine.max_model_len: wanted an integer, got 1000.0; write 1000"),
        ("16384", "16k", "x.yaml:4: engine.max_model_len: wanted an integer, got '16k'"),
        ("16384", "no", "x.yaml:4: engine.max_model_len: wanted an integer, got 'no'"),
        ("16384", ".nan", "x.yaml:4: engine.max_model_len: wanted an integer, got .nan"),
        ("16384", "-.inf", "x.yaml:4: engine.max_model_len: wanted an integer, got -.inf"),
        ("16384", "1e308", "x.yaml:4: engine.max_model_len: wanted an integer, got 1e+308"),
        ("16384", "1e400", "x.yaml:4: engine.max_model_len: wanted an integer, got .inf"),
        ("16384", "-1", "x.yaml:4: engine.max_model_len: wanted a number above 0, got -1"),
        ("16384", "0", "x.yaml:4: engine.max_model_len: wanted a number above 0, got 0"),
        ("16384", "1" + "0" * 30, f"x.yaml:4: engine.max_model_len: wanted a number at most 1,000,000,000,000, got {10**30}"),
        ("16384", "1" * 50, "x.yaml:4: engine.max_model_len: wanted an integer, got 1.1111111111111111e+49"),
        ("16384", "200000", "x.yaml:4: engine.max_model_len: 200000 is beyond the 131072 positions of meta-llama/Llama-3.1-8B-Instruct"),
        ("max_model_len: 16384", "vllm_version: 0.30", "x.yaml:4: engine.vllm_version: wanted text, got 0.3; put it in quotes"),
        ("max_model_len: 16384", "vllm_version: latest", "x.yaml:4: engine.vllm_version: wanted a vLLM version such as '0.32.0', got 'latest'"),
        ("max_model_len: 16384", "block_size: 2000", "x.yaml:4: engine.block_size: wanted a number at most 1,024, got 2000"),
        ("max_model_len: 16384", "gpu_memory_utilization: 90", "x.yaml:4: engine.gpu_memory_utilization: wanted a number at most 1, got 90"),
        ("max_model_len: 16384", "gpu_memory_utilization: 0", "x.yaml:4: engine.gpu_memory_utilization: wanted a number above 0, got 0"),
        ("max_model_len: 16384", "kv_cache_dtype: FP8", "x.yaml:4: engine.kv_cache_dtype: wanted auto, bfloat16, float16, fp8, fp8_e4m3 or fp8_e5m2, got 'FP8'; did you mean 'fp8'?"),
        ("max_model_len: 16384", "scheduling_policy: lifo", "x.yaml:4: engine.scheduling_policy: wanted fcfs or priority, got 'lifo'"),
        ("max_model_len: 16384", "watermark: 1", "x.yaml:4: engine.watermark: wanted a number below 1, got 1"),
        ("max_model_len: 16384", "enforce_eager: yes", "x.yaml:4: engine.enforce_eager: wanted true or false, got 'yes'"),
        ("seed: 0", "seed: null", "x.yaml:12: seed: wanted an integer, got nothing"),
        ("seed: 0", "seed: 2024-01-01", "x.yaml:12: seed: wanted an integer, got '2024-01-01'"),
        ("seed: 0", "seed: !!int '7'", "x.yaml:12: seed: wanted an integer, got '7'"),
        ("poisson", "poison", "x.yaml:6: workload.arrival: wanted poisson, gamma, constant or inf, got 'poison'; did you mean 'poisson'?"),
        ("0.5", "fast", "x.yaml:7: workload.request_rate: wanted a number, got 'fast'"),
        ("0.5", "inf", "x.yaml:7: workload.request_rate: wanted a number, got 'inf'"),
        ("0.5", ".inf", "x.yaml:7: workload.request_rate: wanted a finite number, got .inf"),
        ("0.5", ".nan", "x.yaml:7: workload.request_rate: wanted a finite number, got .nan"),
        ("0.5", "0", "x.yaml:7: workload.request_rate: wanted a number above 0, got 0"),
        ("0.5", "1e308", "x.yaml:7: workload.request_rate: wanted a number at most 1,000,000,000, got 1e+308"),
        ("0.5", "1e-308", "x.yaml:7: workload.request_rate: 10 requests at 1e-308 a second take more than 1e+09 seconds; raise it or lower num_prompts"),
        ("0.5", "null", "x.yaml:7: workload.request_rate: wanted requests per second for arrival poisson, got nothing"),
        ("num_prompts: 10", "num_prompts: true", "x.yaml:8: workload.num_prompts: wanted an integer, got true"),
        ("num_prompts: 10", "num_prompts: 1000000000000", "x.yaml:8: workload.num_prompts: wanted a number at most 10,000,000, got 1000000000000"),
        ("  arrival: poisson", "  burstiness: 1e-308", "x.yaml:6: workload.burstiness: wanted a number at least 1e-06, got 1e-308"),
        ("output_len: 16", "output_len: 0", "x.yaml:10: workload.output_len: wanted a number above 0, got 0"),
        ("output_len: 16", "output_len: true", f"x.yaml:10: workload.output_len: wanted {LENGTH}, got true"),
        ("output_len: 16", "output_len: '8'", f"x.yaml:10: workload.output_len: wanted {LENGTH}, got '8'"),
        ("output_len: 16", "output_len: {normal: {}}", "x.yaml:10: workload.output_len.normal: unknown key; did you mean 'lognormal'?"),
        ("output_len: 16", "output_len: 1" + "0" * 20, f"x.yaml:10: workload.output_len: wanted a number at most 100,000,000, got {10**20}"),
        ("output_len: 16", "output_len: {uniform: {min: 5, max: 2}}", "x.yaml:10: workload.output_len.uniform.min: 5 is above max 2"),
        ("output_len: 16", "output_len: {uniform: [1, 2]}", "x.yaml:10: workload.output_len.uniform: wanted a mapping, got [1, 2]"),
        ("output_len: 16", "output_len: {uniform: {min: 1}}", "x.yaml:10: workload.output_len.uniform.max: missing"),
        ("output_len: 16", "output_len: {}", "x.yaml:10: workload.output_len: wanted exactly one of a number, uniform: {min, max}, lognormal: {median, p99}, quantiles: {0: …, …, 1: …} or preset"),
        ("median: 800", "median: 8000", "x.yaml:9: workload.prompt_len.lognormal.p99: 2800 is below the median 8000"),
        ("median: 800", "median: 0.1", "x.yaml:9: workload.prompt_len.lognormal.p99: 2800 is more than 10,000 times the median 0.1"),
        ("median: 800", "median: 1e308", "x.yaml:9: workload.prompt_len.lognormal.median: wanted a number at most 100,000,000, got 1e+308"),
        ("  output_len: 16\n", "", "x.yaml:5: workload.output_len: missing; wanted a length (or another dataset_name)"),
        ("output_len: 16", "dataset_name: sharegpt", "x.yaml:10: workload.dataset_name: wanted lengths, random, sessions, requests, azure, mooncake, burstgpt, jsonl or vllm_bench, got 'sharegpt'"),
        ("output_len: 16", "dataset_name: azure", "x.yaml:5: workload.dataset_path: wanted the path of the trace, got nothing"),
        ("output_len: 16", "output_len: 16\n  burstiness: 2", "x.yaml:11: workload.burstiness: only arrival: gamma has it; remove it or arrival: poisson"),
        ("output_len: 16", "dataset_name: random\n  random_range_ratio: 1", "x.yaml:11: workload.random_range_ratio: wanted a number below 1, got 1"),
    ],
)  # fmt: skip
def test_a_field_that_is_refused(old: str, new: str, fault: str) -> None:
    assert faults(changed((old, new))) == [fault]


@pytest.mark.parametrize(
    ("requests", "fault"),
    [
        ("[]", "workload.requests: belong to dataset_name: requests, which needs at least one"),
        ("3", "workload.requests: wanted a list, got 3"),
        ("[3]", "workload.requests.0: wanted a mapping, got 3"),
        ("[{prompt_len: 5}]", "workload.requests.0.output_len: missing"),
        ("[{prompt_len: 5, output_len: 0}]", "workload.requests.0.output_len: wanted a number above 0, got 0"),
        ("[{prompt_len: 5, output_len: 5, arival_s: 1}]", "workload.requests.0.arival_s: unknown key; did you mean 'arrival_s'?"),
        ("[{prompt_len: 5, output_len: 5, arrival_s: 1e308}]", "workload.requests.0.arrival_s: wanted a number at most 1,000,000,000, got 1e+308"),
        ("[{prompt_len: 5, output_len: 5, prefix_len: 6}]", "workload.requests.0.prefix_len: 6 is above prompt_len 5"),
    ],
)  # fmt: skip
def test_requests_written_out_that_are_refused(requests: str, fault: str) -> None:
    text = f"model: llama-3.1-8b\nhardware: h100_sxm\nworkload:\n  dataset_name: requests\n  requests: {requests}\n"
    assert faults(text) == [f"x.yaml:5: {fault}"]


# Models and hardware


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        ("meta-llama/Llama-3.1-9B", f"'meta-llama/Llama-3.1-9B' is not shipped; did you mean 'meta-llama/Llama-3.1-8B'? {NOT_SHIPPED}"),
        ("''", f"'' is not shipped {NOT_SHIPPED}"),
        ("no/such/config.json", "'no/such/config.json': no such file"),
        ('"a\\0b"', r"wanted a name or a path, got 'a\x00b'"),
        ("a" * 5000, f"wanted a name or a path, got '{'a' * 56}…"),
        ("a" * 500, f"'{'a' * 500}' is not shipped {NOT_SHIPPED}"),
        ("true", "wanted a Hugging Face id, a path to a config.json or dimensions, got true"),
        ("[8]", "wanted a Hugging Face id, a path to a config.json or dimensions, got [8]"),
        ("null", "wanted a Hugging Face id, a path to a config.json or dimensions, got nothing"),
    ],
)  # fmt: skip
def test_a_model_that_is_refused(model: str, fault: str) -> None:
    text = changed(("meta-llama/Llama-3.1-8B-Instruct", model))
    assert faults(text) == [f"x.yaml:1: model: {fault}"]


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("num_hidden_layers: 4", "num_hidden_layers: true", "num_hidden_layers: wanted an integer, got true"),
        ("num_hidden_layers: 4, ", "", "num_hidden_layers: missing"),
        ("num_hidden_layers: 4", "num_hidden_layers: 1000000000", "num_hidden_layers: wanted a number at most 10,000, got 1000000000"),
        ("vocab_size: 1000", "vocab_size: 1" + "0" * 30, f"vocab_size: wanted a number at most 1,000,000,000,000, got {10**30}"),
        ("num_key_value_heads: 2", "num_key_value_heads: 3", "num_key_value_heads: 3 does not divide num_attention_heads 8"),
        ("vocab_size: 1000", "vocab_size: 1000, dtype: bf16", "dtype: wanted bfloat16, float16 or float32, got 'bf16'; did you mean 'bfloat16'?"),
        ("vocab_size: 1000", "vocab_size: 1000, quantization: fp8", "quantization: wanted a mapping, got 'fp8'"),
        ("vocab_size: 1000", "vocab_size: 1000, quantization: {metod: fp8, method: fp8}", "quantization.metod: unknown key; did you mean 'method'?"),
        ("vocab_size: 1000", "vocab_size: 1000, layer_types: [a]", "layer_types: wanted 4 entries, got 1"),
        ("vocab_size: 1000", "vocab_size: 1000, layer_types: [1, b, c, d]", "layer_types.0: wanted text, got 1"),
        ("vocab_size: 1000", "vocab_size: 1000, hiden_size: 3", "hiden_size: unknown key; did you mean 'hidden_size'?"),
    ],
)  # fmt: skip
def test_an_inline_model_that_is_refused(old: str, new: str, fault: str) -> None:
    assert old in DIMENSIONS
    text = changed(("meta-llama/Llama-3.1-8B-Instruct", DIMENSIONS.replace(old, new)))
    assert faults(text) == [f"x.yaml:1: model.{fault}"]


def test_an_inline_model_without_anything() -> None:
    missing = faults(changed(("meta-llama/Llama-3.1-8B-Instruct", "{}")))
    assert missing[0] == "x.yaml:1: model.num_hidden_layers: missing"
    assert len(missing) == DIMENSIONS.count(":")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("[1, 2]", "wanted a JSON object, got [1, 2]"),
        (json.dumps(LLAMA_CONFIG | {"vocab_size": True}), None),
        (json.dumps(LLAMA_CONFIG | {"vocab_size": "x"}), "vocab_size: wanted a positive integer, got 'x'"),
        (
            json.dumps(LLAMA_CONFIG | {"rope_scaling": "yarn"}),
            "wanted a Hugging Face config.json, got values of another kind "
            "(AttributeError: 'str' object has no attribute 'get')",
        ),
        (
            json.dumps(LLAMA_CONFIG | {"num_attention_heads": 8, "layer_types": [["full_attention"]] * 4}),
            "wanted a Hugging Face config.json, got values of another kind "
            "(TypeError: unhashable type: 'list')",
        ),
    ],
)  # fmt: skip
def test_a_model_file_that_is_refused(folder: Path, content: str, fault: str | None) -> None:
    config = folder / "tiny" / "config.json"
    config.write_text(content, encoding="utf-8")
    path = with_model(folder, "tiny/config.json")
    if fault is None:
        load_faults(path)
    else:
        assert load_faults(path) == [f"{path}:1: model: {config}: {fault}"]


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe\x00", b"", b"[" * 100_000, b"9" * 5000])
def test_a_model_file_that_is_not_json(folder: Path, content: bytes) -> None:
    config = folder / "tiny" / "config.json"
    config.write_bytes(content)
    path = with_model(folder, "tiny/config.json")
    [fault] = load_faults(path)
    assert fault.startswith(f"{path}:1: model: {config}: wanted a Hugging Face config.json, got ")


def test_a_model_file_with_every_fault(folder: Path) -> None:
    config = folder / "tiny" / "config.json"
    config.write_text("{}", encoding="utf-8")
    path = with_model(folder, "tiny/config.json")
    assert all(fault.startswith(f"{path}:1: model: {config}: ") for fault in load_faults(path))
    assert len(load_faults(path)) == 6


def test_a_number_that_no_float_can_hold_in_a_model_file(folder: Path) -> None:
    config = folder / "tiny" / "config.json"
    config.write_text(json.dumps(LLAMA_CONFIG | {"intermediate_size": 10**400}), encoding="utf-8")
    path = with_model(folder, "tiny/config.json")
    [fault] = load_faults(path)
    assert fault.startswith(
        f"{path}:1: model.intermediate_size: wanted a number at most 1,000,000,000,000, got"
    )


@pytest.mark.parametrize(
    ("hardware", "fault"),
    [
        ("h100", f": no profile 'h100'; did you mean 'h100_sxm'?; known: {PROFILES}, or a .yaml file"),
        ("h100sxm_x8", f": no profile 'h100sxm_x8'; did you mean 'h100_sxm_x8'?; known: {PROFILES}, or a .yaml file"),
        ("h100_sxm_x16", ": 'h100_sxm_x16': a node of h100_sxm holds at most 8 GPUs, got 16; use at most 8, or 2 nodes: h100_sxm_2x8"),
        ("h100_sxm_x0", ": 'h100_sxm_x0': wanted at least one node of at least one GPU"),
        (f"h100_sxm_{'9' * 5000}x8", f": wanted a name or a path, got 'h100_sxm_{'9' * 47}…"),
        (f"h100_sxm_{'9' * 13}x8", ".num_nodes: wanted a number at most 10,000, got 9999999999999"),
        ('"a\\0b.yaml"', r": wanted a name or a path, got 'a\x00b.yaml'"),
        ("no/such.yaml", ": no/such.yaml: no such file"),
        (f"{'a' * 500}.yaml", f": {'a' * 500}.yaml: cannot be read: File name too long"),
        ("true", ": wanted the name of a profile, a path or a mapping, got true"),
        ("null", ": wanted the name of a profile, a path or a mapping, got nothing"),
        ("[h100_sxm]", ": wanted the name of a profile, a path or a mapping, got ['h100_sxm']"),
        ("{gpu: h100, num_gpus_per_node: 8}", f": no profile 'h100'; did you mean 'h100_sxm'?; known: {PROFILES}, or a .yaml file"),
        ("{gpu: h100_sxm, num_gpu_per_node: 8}", ".num_gpu_per_node: unknown key; did you mean 'num_gpus_per_node'?"),
        ("{gpu: h100_sxm, x: 8}", ".x: unknown key; known: gpu, num_gpus_per_node, num_nodes"),
        ("{gpu: h100_sxm, num_gpus_per_node: 0}", ".num_gpus_per_node: wanted a number above 0, got 0"),
        ("{gpu: h100_sxm, num_gpus_per_node: true}", ".num_gpus_per_node: wanted an integer, got true"),
        ("{gpu: h100_sxm, num_gpus_per_node: 16}", ".num_gpus_per_node: wanted at most 8 GPUs in such a node, got 16; use more nodes"),
        ("{gpu: h100_sxm, num_nodes: 2}", ".num_nodes: wanted num_gpus_per_node beside 2 nodes, at most 8, got nothing"),
        ("{gpu: h100_sxm, num_gpus_per_node: 8, num_nodes: 99999}", ".num_nodes: wanted a number at most 10,000, got 99999"),
    ],
)  # fmt: skip
def test_hardware_that_is_refused(hardware: str, fault: str) -> None:
    assert faults(changed(("hardware: h100_sxm", f"hardware: {hardware}"))) == [f"x.yaml:2: hardware{fault}"]


def test_inline_hardware_names_its_faults() -> None:
    found = faults(changed(("hardware: h100_sxm", "hardware: {gpus: h100_sxm}")))
    assert found[0] == "x.yaml:2: hardware.gpu: missing"
    assert found[-1] == "x.yaml:2: hardware.gpus: unknown key; did you mean 'gpu'?"


def test_a_profile_beside_the_scenario_is_found_and_its_faults_named(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(changed(("hardware: h100_sxm", "hardware: mine.yaml")), encoding="utf-8")
    profile = tmp_path / "mine.yaml"
    profile.write_text("like: h100_sxm\nname: mine\n", encoding="utf-8")
    assert load_scenario(path).hardware.name == "mine"
    profile.write_text("like: h100_sxm\nname: 3\n", encoding="utf-8")
    assert load_faults(path) == [f"{path}:2: hardware: {profile}:2: name: wanted text, got 3"]


# Finding the file


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("quickstrt", "quickstrt: no such file; did you mean 'quickstart'? (see 'simkv list scenarios')"),
        ("quickstart.yml", "quickstart.yml: no such file; did you mean 'quickstart'? (see 'simkv list scenarios')"),
        ("scenarios/quickstrt.yaml", "scenarios/quickstrt.yaml: no such file; did you mean 'quickstart'? (see 'simkv list scenarios')"),
        ("elsewhere/quickstart.yaml", "elsewhere/quickstart.yaml: no such file; did you mean 'quickstart'? (see 'simkv list scenarios')"),
        ("nowhere.yaml", "nowhere.yaml: no such file (see 'simkv list scenarios')"),
        ("a\0b", r"'a\x00b': no such file (see 'simkv list scenarios')"),
        ("x" * 5000, f"'{'x' * 56}…: no such file (see 'simkv list scenarios')"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_there(
    name: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ScenarioError) as caught:
        find_scenario(name)
    assert caught.value.faults == (fault,)


def test_a_folder_or_a_device_as_a_file(tmp_path: Path) -> None:
    assert load_faults(tmp_path) == [f"{tmp_path}: wanted a file, got a folder"]
    assert load_faults(Path(os.devnull)) == [f"{os.devnull}: the file is empty"]


# Whatever happens to a shipped scenario, it is read or refused

TEXTS = [path.read_text(encoding="utf-8") for path in shipped_scenarios().values()]
ODD_VALUES = [
    "null", "true", "-1", "0", "1", "1.5", "1e308", "1e-308", ".nan", ".inf", "'8'", "[]", "{}", "[1, 2]", "{a: 1}",
    "10000000000000", "9" * 39, "no", "fp8", "*a", "&a 3", "!x 1", "{uniform: {min: 1, max: 1}}", "h100_sxm_x8", "\t", "~",
]  # fmt: skip
WORDS = sorted({word for text in TEXTS for word in text.replace(",", " ").replace("}", " ").split()})


@st.composite
def mutated_scenarios(draw: st.DrawFn) -> str:
    """A shipped scenario with a few characters, lines or values deleted, doubled, swapped or replaced."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 4))):
        lines = text.splitlines(keepends=True) or [""]
        i = draw(st.integers(0, len(lines) - 1))
        at = draw(st.integers(0, len(text)))
        kind = draw(st.sampled_from(["delete", "insert", "cut", "double", "move", "value", "key"]))
        if kind == "delete":
            text = text[:at] + text[at + draw(st.integers(1, 9)) :]
        elif kind == "insert":
            text = (
                text[:at]
                + draw(st.text(max_size=3) | st.sampled_from(list("{}[]:,#&*!|>'\"%@`\t -")))
                + text[at:]
            )
        elif kind == "cut":
            text = "".join(lines[:i] + lines[i + 1 :])
        elif kind == "double":
            text = "".join([*lines[: i + 1], *lines[i:]])
        elif kind == "move":
            text = "".join([*lines[:i], *lines[i + 1 :], lines[i]])
        else:
            old = draw(st.sampled_from(WORDS))
            new = draw(st.sampled_from(ODD_VALUES if kind == "value" else WORDS))
            text = text.replace(old, new, 1)
    return text


def check_read_or_refused(text: str) -> None:
    try:
        scenario = parse_scenario(text)
    except SimkvError as error:
        assert str(error)  # noqa: PT017 - either outcome is right, and this is what must hold of one
    else:
        assert isinstance(scenario, Scenario)
        str(plan(scenario))


SLOW_START = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=200, deadline=None, suppress_health_check=SLOW_START)
@given(mutated_scenarios())
def test_a_mutated_scenario_is_read_or_refused(text: str) -> None:
    check_read_or_refused(text)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None, suppress_health_check=SLOW_START)
@given(mutated_scenarios())
def test_many_mutated_scenarios_are_read_or_refused(text: str) -> None:
    check_read_or_refused(text)


@settings(max_examples=100, deadline=None)
@given(
    st.text(".=abc 12{}[]:", max_size=12)
    | st.builds(
        "{}={}".format,
        st.sampled_from(
            ["engine.block_size", "model", "hardware.num_nodes", "slo", "workload.output_len.fixed"]
        ),
        st.text(max_size=9) | st.sampled_from(ODD_VALUES),
    )
)
def test_any_override_is_taken_or_refused(override: str) -> None:
    try:
        scenario = parse_scenario(TEXT, [override])
    except SimkvError as error:
        assert str(error)  # noqa: PT017 - either outcome is right
    else:
        assert isinstance(scenario, Scenario)
