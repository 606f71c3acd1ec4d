"""Context parallelism through the public paths: `plan` answers, `run` and `sweep` refuse."""

import json

import pytest

import simkv as library
from simkv.errors import InfeasibleError, ScenarioError
from simkv.planning import plan
from tests.cost.worlds import scenario_of

R1 = "vllm serve deepseek-ai/DeepSeek-R1 --tensor-parallel-size 8 --max-model-len 131072"
SIZE = "parallel.decode_context_parallel_size"
NOT_SIMULATED = (
    "the step time of context parallelism is not simulated yet; wanted 1, got 2 "
    "('simkv plan' answers for its memory)"
)
WIDE = ("--set", "hardware=h100_sxm_2x8", "--set", "parallel.tensor_parallel_size=16")


@pytest.fixture
def simkv(simkv, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return simkv


def test_an_eighth_of_a_latent_on_each_of_eight_ranks(simkv):
    """Case C9: DeepSeek-R1 with DCP 8: a request takes an eighth of the cache of each GPU."""
    answers = {}
    for dcp in (1, 8):
        command = f"{R1} --decode-context-parallel-size {dcp}"
        code, out, _ = simkv("plan", "--vllm", command, "--hardware", "h200_sxm", "--json")
        assert code == 0
        answers[dcp] = json.loads(out)
    whole, dealt = answers[1], answers[8]
    assert dealt["layout"] == "TP8×DCP8"
    assert dealt["num_gpu_blocks"] == whole["num_gpu_blocks"]
    assert [rank["kv_bytes"] for rank in dealt["ranks"]] == [rank["kv_bytes"] for rank in whole["ranks"]]
    assert dealt["blocks_per_request"] * 8 == whole["blocks_per_request"]
    assert dealt["max_concurrency"] == 8 * whole["max_concurrency"]
    assert dealt["kv_tokens"] == pytest.approx(8 * whole["kv_tokens"], abs=8)


def test_vllms_rules_are_told_with_the_flag_at_fault(simkv):
    command = "vllm serve Llama-3.1-8B -tp 8 -dcp 2"
    assert simkv("plan", "--vllm", command, "--hardware", "h100_sxm") == (
        2,
        "",
        f"error: --vllm: -dcp: {SIZE}: wanted tensor_parallel_size above the 8 KV heads, whose copies it deals "
        "tokens to, got 8; use 1\n",
    )
    code, out, _ = simkv(
        "plan", "--vllm", command, "--hardware", "h100_sxm", "--set", "parallel.rules=generic"
    )
    assert code == 0
    assert "Warning: parallel.rules is generic; vLLM would refuse decode_context_parallel_size: wanted" in out


def test_a_run_refuses_in_one_line(simkv):
    code, out, err = simkv("run", "quickstart", *WIDE, "--set", f"{SIZE}=2")
    assert (code, out, err) == (2, "", f"error: {SIZE}: {NOT_SIMULATED}\n")
    with pytest.raises(ScenarioError, match="step time of context parallelism"):
        library.simulate(library.load_scenario("quickstart", [*WIDE[1::2], f"{SIZE}=2"]))


def test_a_sweep_refuses_if_every_point_has_it_and_else_leaves_these_out(simkv):
    code, _, err = simkv("sweep", "quickstart", *WIDE, "--set", f"{SIZE}=2", "-o", "all")
    assert (code, err) == (2, f"error: {SIZE}: {NOT_SIMULATED}\n")
    few = ("--set", "workload.num_prompts=2")
    code, out, _ = simkv("sweep", "quickstart", *WIDE, *few, "--set", f"{SIZE}=1,2", "-o", "some")
    assert code == 0
    assert f"refused: decode_context_parallel_size 2: {SIZE}: {NOT_SIMULATED}" in out


def test_it_is_a_remedy_of_a_plan_and_not_of_a_run():
    scenario = scenario_of("deepseek-ai/DeepSeek-R1", "h200_sxm_x8", 8, gpu_memory_utilization=0.68)
    answer = plan(scenario)
    assert f"{SIZE}=2" in answer.remedies
    assert plan(scenario.replace(parallel={"decode_context_parallel_size": 2})).fits
    with pytest.raises(InfeasibleError) as caught:
        answer.require()
    assert caught.value.remedies
    assert not any("context" in remedy for remedy in caught.value.remedies)
