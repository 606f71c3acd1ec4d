"""`simulate` as a user of the Python interface sees it."""

import json

import pytest
import yaml

import simkv
from simkv.errors import InfeasibleError, ScenarioError

SMALL = """
model: meta-llama/Llama-3.1-8B
hardware: {gpu: h100_sxm, num_gpus_per_node: 4, num_nodes: 1}
parallel: {tensor_parallel_size: 2, pipeline_parallel_size: 2}
engine: {max_model_len: 8192, kv_cache_dtype: fp8}
workload:
  {request_rate: 4, num_prompts: 12, prompt_len: {lognormal: {median: 2000, p99: 7000, max: 7000}}, output_len: 20}
slo: {ttft_ms: 500}
"""


def test_same_scenario_same_seed_same_bytes(tmp_path):
    folders = [simkv.simulate(simkv.parse_scenario(SMALL)).save(tmp_path / name) for name in ("a", "b")]
    names = sorted(path.name for path in folders[0].iterdir())
    assert names == sorted(path.name for path in folders[1].iterdir())
    for name in names:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name


def test_another_seed_another_run():
    summaries = [simkv.simulate(simkv.parse_scenario(f"{SMALL}seed: {seed}")).summary for seed in (0, 1)]
    assert summaries[0]["mean_ttft_ms"] != summaries[1]["mean_ttft_ms"]


def test_the_resolved_scenario_of_a_result_runs_again_and_gives_the_same(tmp_path):
    scenario = simkv.parse_scenario(SMALL)
    folder = simkv.simulate(scenario).save(tmp_path / "first")
    again = simkv.load_scenario(folder / "scenario.yaml")
    assert again.resolved_engine == scenario.resolved_engine
    assert again.hardware == scenario.resolved_hardware
    assert again.model == scenario.model
    second = simkv.simulate(again).save(tmp_path / "second")
    assert (second / "summary.json").read_bytes() == (folder / "summary.json").read_bytes()
    assert yaml.safe_load((folder / "scenario.yaml").read_text())["engine"]["async_scheduling"] is True


def test_a_function_is_not_hidden_by_a_module_of_its_name():
    scenario = simkv.parse_scenario(SMALL)
    for _ in range(2):
        assert simkv.plan(scenario).fits
        assert simkv.simulate(scenario).summary["completed"] == 12


def test_an_inline_box_has_the_name_that_says_the_same():
    assert simkv.parse_scenario(SMALL).hardware.name == "h100_sxm_x4"


def test_refusals():
    scenario = simkv.parse_scenario(SMALL)
    with pytest.raises(ScenarioError, match="workload: missing"):
        simkv.simulate(scenario.replace(workload=None))
    with pytest.raises(ScenarioError, match=r"parallel\.tensor_parallel_size: 3 does not divide"):
        simkv.plan(scenario.replace(parallel={"tensor_parallel_size": 3}))
    with pytest.raises(InfeasibleError, match="one request of max_model_len"):
        simkv.simulate(scenario.replace(engine={"num_gpu_blocks_override": 100}))


def test_the_summary_is_json_and_adds_up():
    summary = simkv.simulate(simkv.parse_scenario(SMALL)).summary
    json.dumps(summary, allow_nan=False)
    assert summary["completed"] == summary["num_requests"] == 12
    assert summary["total_output_tokens"] == 12 * 20
    assert 0 < summary["request_goodput"] <= summary["request_throughput"]
