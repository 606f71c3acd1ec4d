"""``simkv plan``: what it prints, what it refuses, and that its remedies help."""

import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.errors import InfeasibleError
from simkv.kv.budget import memory_ledger
from simkv.planning import plan
from simkv.spec.checks import scenario_faults
from simkv.spec.workload import WorkloadSpec
from simkv.units import GIB
from tests.cost.worlds import layouts, scenario_of
from tests.kv.test_budget import model_of

GOLDEN = """\
meta-llama/Llama-3.1-70B on h100_sxm_x8, TP4×PP2, vLLM 0.32.0, gpu_memory_utilization 0.9, KV in fp8

GiB per GPU   layers  budget  weights  activation  non-torch  graphs      KV     blocks      tokens
stage 0           40   71.27    16.46        1.14       2.10    0.96   50.62    165,857   2,653,712
stage 1           40   71.27    16.46        2.21       2.10    0.96   49.55    162,349   2,597,584

GPU KV cache size: 2,597,584 tokens (162,349 blocks of 16)
Maximum concurrency for 131,072 tokens per request: 19.82x
Stage 1 binds: against stage 0 its activation peak (the sampler's) takes 1.07 GiB more.
Out of memory from gpu_memory_utilization 0.98 on."""


def with_remedy(scenario, remedy):
    """The scenario after ``--set REMEDY``, or after two of them."""
    for change in remedy.split(" and "):
        path, _, value = change.partition("=")
        section, field = path.split(".")
        scenario = scenario.replace(**{section: {field: yaml.safe_load(value)}})
    return scenario


def assert_remedies_help(scenario):
    answer = plan(scenario)
    assert not answer.fits
    for remedy in answer.remedies:
        changed = with_remedy(scenario, remedy)
        assert changed != scenario
        assert not scenario_faults(changed), remedy
        assert plan(changed).fits, remedy
    return answer


def test_the_printed_plan():
    engine = {"kv_cache_dtype": "fp8", "gpu_memory_utilization": 0.9}
    assert str(plan(scenario_of("Llama-3.1-70B", "h100_sxm_x8", 4, 2, **engine))) == GOLDEN


def test_versions_that_do_not_deduct_graphs_say_so():
    text = str(plan(scenario_of("Llama-3.1-8B", vllm_version="0.19.0")))
    assert "0.88*" in text
    assert "* on top of the budget in this version" in text


def test_a_70b_model_in_16_bits_is_refused_on_one_card_with_the_smallest_sizes_that_fit():
    """Case: 140 GB of weights on 80 GB."""
    scenario = scenario_of("Llama-3.1-70B", max_model_len=8_192)
    answer = assert_remedies_help(scenario)
    assert answer.outcome == "oom"
    assert answer.refusal == (
        "weights of 131.45 GiB exceed the 79.19 GiB of a GPU on stage 0 by 52.26 GiB: out of memory while they load"
    )
    assert answer.remedies == ("parallel.tensor_parallel_size=2", "parallel.pipeline_parallel_size=2")
    with pytest.raises(InfeasibleError, match=r"131\.45 GiB.*; try parallel\.tensor_parallel_size=2, or "):
        answer.require()
    assert "Does not start: weights of" in str(answer)
    assert "  try parallel.tensor_parallel_size=2" in str(answer)
    assert "GPU KV cache size" not in str(answer)


def test_a_request_that_is_too_long_is_refused_with_the_longest_that_fits():
    scenario = scenario_of("Llama-3.1-70B", tp=2)
    answer = assert_remedies_help(scenario)
    assert answer.refusal == (
        "one request of max_model_len 131,072 tokens needs 20.00 GiB of KV cache per GPU on stage 0 "
        "(8,192 blocks), 1.44 GiB are available (591 blocks)"
    )
    longest = answer.ledger.longest_request_tokens
    assert answer.remedies[0] == f"engine.max_model_len={longest}"
    assert not plan(scenario.replace(engine={"max_model_len": longest + 1})).fits
    assert "parallel.tensor_parallel_size=4" in answer.remedies


def test_fewer_replicas_leave_gpus_to_each():
    scenario = scenario_of("meta-llama/Llama-3.1-70B", max_model_len=8_192)
    answer = assert_remedies_help(scenario.replace(parallel={"data_parallel_size": 8}))
    assert "parallel.data_parallel_size=4 and parallel.tensor_parallel_size=2" in answer.remedies


def test_fp8_kv_and_more_utilization_are_remedies_where_they_suffice():
    barely = scenario_of("Llama-3.1-8B", "l40s", vllm_version="0.19.0", gpu_memory_utilization=0.7)
    assert {"engine.gpu_memory_utilization=0.72", "engine.kv_cache_dtype=fp8"} <= set(
        assert_remedies_help(barely).remedies
    )


def test_out_of_memory_is_an_answer_not_a_crash():
    """Graphs on top of a budget of 0.99, and blocks or bytes that the card does not have."""
    graphs = scenario_of("Llama-3.1-8B", vllm_version="0.19.0", gpu_memory_utilization=0.99)
    answer = assert_remedies_help(graphs)
    assert "out of memory on stage 0" in answer.refusal
    assert "of 79.19 GiB" in answer.refusal
    assert "engine.gpu_memory_utilization=0.96" in answer.remedies
    for engine in ({"num_gpu_blocks_override": 100_000}, {"kv_cache_memory_bytes": 10**11}):
        assert "out of memory" in assert_remedies_help(scenario_of("Llama-3.1-8B", **engine)).refusal


def test_an_override_too_small_for_one_request_offers_no_length_of_zero():
    answer = assert_remedies_help(scenario_of("Llama-3.1-8B", num_gpu_blocks_override=1))
    assert "0.00 GiB are available" in answer.refusal
    assert not any("max_model_len" in remedy for remedy in answer.remedies)
    shorter = assert_remedies_help(scenario_of("Llama-3.1-8B", num_gpu_blocks_override=101))
    assert "engine.max_model_len=1600" in shorter.remedies


@settings(deadline=None, max_examples=60)
@given(
    layout=st.sampled_from(layouts("h100_sxm") + layouts("l40s") + layouts("rtx_4090")),
    utilization=st.sampled_from((0.5, 0.8, 0.92, 0.98, 1.0)),
    version=st.sampled_from(("0.19.0", "0.32.0")),
)
def test_every_remedy_of_every_refusal_helps(layout, utilization, version):
    scenario = scenario_of(*layout, vllm_version=version, gpu_memory_utilization=utilization)
    answer = plan(scenario)
    assert answer.fits == memory_ledger(scenario).fits
    assert answer.fits == (answer.refusal is None)
    if not answer.fits:
        assert_remedies_help(scenario)
        with pytest.raises(InfeasibleError):
            answer.require()
    else:
        assert answer.remedies == ()
        answer.require()


def test_a_layout_larger_than_the_box_is_a_fault_and_a_smaller_one_a_warning():
    """Case: TP3×PP3 on 8 GPUs is refused; TP4 is allowed, vLLM does not ask that it divide them."""
    too_large = scenario_faults(scenario_of("Llama-3.1-8B", "h100_sxm_x8", 3, 3))
    assert any("needs 9 GPUs, h100_sxm_x8 has 8" in text for _, text in too_large)
    assert any(
        "3 does not divide 32 attention heads; use 1, 2, 4, 8, 16 or 32" in text for _, text in too_large
    )
    smaller = scenario_of("Llama-3.1-8B", "h100_sxm_x8", 4)
    assert not scenario_faults(smaller)
    answer = plan(smaller)
    assert answer.fits
    assert answer.warnings == ("4 of 8 GPUs idle: the layout TP4 uses 4",)
    assert str(answer).endswith("Warning: 4 of 8 GPUs idle: the layout TP4 uses 4.")
    assert plan(scenario_of("Llama-3.1-8B", "h100_sxm_x8", 8)).warnings == ()


@pytest.mark.parametrize(
    "layout", [("Llama-3.1-8B",), ("Llama-3.1-70B",), ("Llama-3.1-70B", "h100_sxm_x8", 4, 2)]
)
def test_a_plan_is_plain_data(layout):
    answer = plan(scenario_of(*layout))
    data = answer.as_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["fits"] == answer.fits
    assert data["num_gpu_blocks"] == answer.ledger.num_gpu_blocks
    assert [rank["stage"] for rank in data["ranks"]] == list(range(len(answer.ledger.ranks)))


@pytest.mark.parametrize("model", ["deepseek-ai/DeepSeek-R1", "Qwen/Qwen3-30B-A3B", "google/gemma-2-9b"])
def test_models_without_a_step_time_have_a_plan(model):
    assert "GiB per GPU" in str(plan(scenario_of(model, "h200_sxm", 8)))


# The length that a workload suggests


def with_workload(workload, **engine):
    fields = {"num_prompts": 100, "output_len": {"fixed": 100}, **workload}
    return scenario_of("Llama-3.1-8B", **engine).replace(workload=WorkloadSpec(**fields))


def suggested(workload, **engine):
    return plan(with_workload(workload, **engine)).suggestion


def test_p99_and_a_fifth_more_in_whole_blocks():
    found = suggested({"prompt_len": {"fixed": 900}}, block_size=64)
    assert (found.p99_tokens, found.max_model_len, found.num_requests) == (1000, 1216, 100)
    assert found.max_model_len % 64 == 0
    assert found.fits


def test_one_request_in_a_hundred_may_be_longer():
    lengths = [{"prompt_len": 900, "output_len": 100}] * 99 + [{"prompt_len": 60_000, "output_len": 1}]
    found = suggested({"dataset_name": "requests", "requests": lengths, "output_len": None})
    assert (found.p99_tokens, found.num_longer) == (1000, 1)
    longer = [*lengths, {"prompt_len": 50_000, "output_len": 1}]
    workload = {"dataset_name": "requests", "requests": longer, "num_prompts": None, "output_len": None}
    assert suggested(workload).p99_tokens == 50_001
    scenario = with_workload(workload)
    assert str(plan(scenario)).splitlines()[-1] == (
        "Workload: P99 of prompt + output 50,001 tokens; max_model_len 60,016 (20 % more): "
        f"{suggested(workload).max_concurrency:.2f}x, the same KV cache."
    )


def test_a_suggestion_never_goes_beyond_the_model():
    found = suggested({"prompt_len": {"fixed": 125_000}})
    assert found.max_model_len == 131_072
    beyond = suggested({"prompt_len": {"fixed": 200_000}})
    assert (beyond.max_model_len, beyond.num_longer) == (131_072, 100)


def test_it_changes_the_requests_that_fit_at_once_and_no_memory():
    """The rule says that max_model_len pre-allocates KV: in vLLM it does not."""
    scenario = with_workload({"prompt_len": {"fixed": 9000}}, max_model_len=100_000)
    found, before = plan(scenario).suggestion, plan(scenario).ledger
    after = plan(scenario.replace(engine={"max_model_len": found.max_model_len})).ledger
    assert [rank.kv_bytes for rank in after.ranks] == [rank.kv_bytes for rank in before.ranks]
    assert found.num_gpu_blocks == after.num_gpu_blocks == before.num_gpu_blocks
    assert found.max_concurrency == after.max_concurrency > 8 * before.max_concurrency


def test_it_is_given_where_the_server_does_not_start():
    short = with_workload({"prompt_len": {"fixed": 900}}, num_gpu_blocks_override=200)
    answer = plan(short)
    assert not answer.fits
    assert answer.suggestion.fits
    assert "max_model_len 1,200 (20 % more): 2.67x, the same KV cache." in str(answer)
    long = plan(with_workload({"prompt_len": {"fixed": 9000}}, num_gpu_blocks_override=200))
    assert "max_model_len 10,928 (20 % more): does not start." in str(long)


def test_a_plan_stays_quick_and_does_without_the_trace():
    many = {"prompt_len": {"fixed": 900}, "num_prompts": 10_000_000, "request_rate": 1e-2}
    assert suggested(many).num_requests == 10_000
    trace = {"dataset_name": "azure", "dataset_path": "nowhere.csv", "output_len": None}
    assert suggested(trace) is None
    assert "Workload: " not in str(plan(with_workload(trace)))
    assert plan(scenario_of("Llama-3.1-8B")).as_dict()["suggestion"] is None


# Outcomes, what binds, remedies


def c1(version):
    """Case C1: 92 layers, 8 KV heads, PP8 on A100s, 28.57 GiB for the cache."""
    size = {"kv_cache_memory_bytes": round(28.57 * GIB), "max_model_len": 202_752, "vllm_version": version}
    return scenario_of("Llama-3.1-8B", "a100_sxm", 1, 8, **size).replace(model=model_of(92, 8))


def test_the_pipeline_quirk_has_its_own_sentence():
    answer = assert_remedies_help(c1("0.14.0"))
    assert answer.outcome == "refused"
    assert answer.refusal == (
        "vLLM 0.14 compares one request of max_model_len 202,752 tokens in all layers, 71.16 GiB, with the "
        "smallest stage's 28.57 GiB and says that 81,392 tokens would fit; a stage needs only 9.28 GiB, "
        "and 0.16 mended the check"
    )
    assert answer.remedies == ("engine.vllm_version=0.16.0", "engine.max_model_len=81392")
    assert plan(c1("0.16.0")).fits


@pytest.mark.parametrize("model", ["google/gemma-3-27b-it", "Qwen/Qwen3.5-35B-A3B", "Llama-3.1-8B"])
def test_need_and_room_count_the_blocks_of_all_groups(model):
    scenario = scenario_of(model, "h100_sxm", vllm_version="0.19.0")
    ledger = memory_ledger(scenario)
    short = scenario.replace(engine={"num_gpu_blocks_override": ledger.blocks_per_request - 1})
    answer = assert_remedies_help(short)
    assert f"({ledger.blocks_per_request:,} blocks)" in answer.refusal
    assert f"({ledger.blocks_per_request - 1:,} blocks)" in answer.refusal
    assert plan(scenario.replace(engine={"num_gpu_blocks_override": ledger.blocks_per_request})).fits
    assert f"engine.num_gpu_blocks_override={ledger.blocks_per_request + 1}" in answer.remedies


def test_block_groups_are_named():
    text = str(plan(scenario_of("google/gemma-3-27b-it", tp=2, vllm_version="0.19.0")))
    assert " blocks of 16 in 7 groups: 6 sliding, 1 full)" in text


def test_weights_that_leave_no_room_are_refused_and_those_beyond_the_card_are_not():
    tight = assert_remedies_help(scenario_of("Llama-3.1-70B", tp=2, gpu_memory_utilization=0.85))
    assert (tight.outcome, tight.as_dict()["loads_weights"]) == ("refused", True)
    assert tight.refusal.startswith("weights of 65.74 GiB do not leave room for a KV cache within 67.31 GiB")
    large = plan(scenario_of("Llama-3.1-70B"))
    assert (large.outcome, large.as_dict()["loads_weights"]) == ("oom", False)


@pytest.mark.parametrize("version", ["0.19.0", "0.32.0"])
def test_the_utilization_where_out_of_memory_begins_is_tried(version):
    scenario = scenario_of("Llama-3.1-8B", vllm_version=version, max_model_len=8192)
    begins = plan(scenario).oom_from_utilization
    outcomes = {
        percent: plan(scenario.replace(engine={"gpu_memory_utilization": percent / 100})).outcome
        for percent in range(80, 101)
    }
    assert begins == min(percent for percent, outcome in outcomes.items() if outcome == "oom") / 100
    assert f"Out of memory from gpu_memory_utilization {begins:.2f} on." in str(plan(scenario))
    died = assert_remedies_help(scenario.replace(engine={"gpu_memory_utilization": begins}))
    assert died.remedies[0] == f"engine.gpu_memory_utilization={begins - 0.01:.2f}"


def test_the_mildest_values_are_the_remedies():
    scenario = scenario_of("Llama-3.1-8B", "l40s", vllm_version="0.19.0", gpu_memory_utilization=0.7)
    assert plan(scenario).remedies == (
        "engine.max_model_len=125680", "engine.gpu_memory_utilization=0.72", "parallel.tensor_parallel_size=2",
        "parallel.pipeline_parallel_size=2", "engine.kv_cache_dtype=fp8",
    )  # fmt: skip
    assert not plan(scenario.replace(engine={"gpu_memory_utilization": 0.71})).fits
    assert not plan(scenario.replace(engine={"max_model_len": 125_681})).fits


def test_v0_profiles_the_length_so_the_longest_is_searched():
    scenario = scenario_of("Llama-3.1-70B", tp=2, vllm_version="0.7.3")
    answer = assert_remedies_help(scenario)
    longest = int(answer.remedies[0].partition("=")[2])
    assert not plan(scenario.replace(engine={"max_model_len": longest + 1})).fits


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        (
            scenario_of("Llama-3.1-8B"),
            "All ranks are alike: beside the KV cache weights take the most, 14.99 of 72.85 GiB.",
        ),
        (
            scenario_of("Llama-3.1-70B", "h100_sxm", 1, 8),
            "Stage 7 binds: against stage 1 its weights (with the head) take 1.96 GiB more.",
        ),
        (
            scenario_of("Llama-3.1-8B", "h100_sxm", 1, 2).replace(
                parallel={"pipeline_layer_partition": (12, 20)}
            ),
            "Stage 1 binds: against stage 0 it holds 20 layers' KV instead of 12 (24.34 GiB more).",
        ),
        (
            scenario_of("Llama-3.1-8B", num_gpu_blocks_override=20_000),
            "num_gpu_blocks_override sets the blocks: 20,000.",
        ),
        (
            scenario_of("Llama-3.1-8B", kv_cache_memory_bytes=20 * GIB),
            "kv_cache_memory_bytes sets the cache: 20.00 GiB.",
        ),
    ],
)
def test_what_binds(scenario, reason):
    answer = plan(scenario)
    assert answer.as_dict()["binding_reason"] == reason
    assert reason in str(answer)


def test_a_plan_as_data_has_every_term():
    data = plan(scenario_of("google/gemma-3-27b-it", "h100_sxm", 2)).as_dict()
    assert data["block_groups"] == ["sliding_attention"] * 6 + ["full_attention"]
    assert data["outcome"] == "started"
    for rank in data["ranks"]:
        inside = sum(rank[f"{term}_bytes"] for term in ("weights", "activation", "non_torch", "graph", "kv"))
        assert inside == rank["requested_bytes"]
        assert rank["outside_bytes"] > 0
        assert rank["used_bytes"] <= rank["total_bytes"]
        assert rank["kv_tokens"] == data["kv_tokens"]
