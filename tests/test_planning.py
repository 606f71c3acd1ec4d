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
from tests.cost.worlds import layouts, scenario_of

GOLDEN = """\
meta-llama/Llama-3.1-70B on h100_sxm_x8, TP4×PP2, vLLM 0.32.0, gpu_memory_utilization 0.9, KV in fp8

GiB per GPU      layers     budget    weights activation  non-torch     graphs         KV     blocks
stage 0              40      71.27      16.46       1.14       2.10       0.96      50.62    165,857
stage 1              40      71.27      16.46       2.21       2.10       0.96      49.55    162,349

GPU KV cache size: 2,597,584 tokens (162,349 blocks of 16)
Maximum concurrency for 131,072 tokens per request: 19.82x
Stage 1 binds: its GPUs hold the fewest blocks."""


def with_remedy(scenario, remedy):
    """The scenario after ``--set REMEDY``."""
    path, _, value = remedy.partition("=")
    section, field = path.split(".")
    return scenario.replace(**{section: {field: yaml.safe_load(value)}})


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
    assert "weights of 131.45 GiB do not leave room" in answer.refusal
    assert "short by 62.74 GiB" in answer.refusal
    assert answer.remedies == ("parallel.tensor_parallel_size=2", "parallel.pipeline_parallel_size=2")
    with pytest.raises(InfeasibleError, match=r"131\.45 GiB.*; try parallel\.tensor_parallel_size=2, or "):
        answer.require()
    assert "Does not start: weights of" in str(answer)
    assert "  try parallel.tensor_parallel_size=2" in str(answer)
    assert "GPU KV cache size" not in str(answer)


def test_a_request_that_is_too_long_is_refused_with_the_longest_that_fits():
    scenario = scenario_of("Llama-3.1-70B", tp=2)
    answer = assert_remedies_help(scenario)
    assert "one request of max_model_len 131,072 tokens needs 20.00 GiB" in answer.refusal
    assert "1.45 GiB are available" in answer.refusal
    longest = answer.ledger.longest_request_tokens
    assert answer.remedies[0] == f"engine.max_model_len={longest}"
    assert not plan(scenario.replace(engine={"max_model_len": longest + 1})).fits
    assert "parallel.tensor_parallel_size=4" in answer.remedies


def test_fp8_kv_and_more_utilization_are_remedies_where_they_suffice():
    barely = scenario_of("Llama-3.1-8B", "l40s", vllm_version="0.19.0", gpu_memory_utilization=0.7)
    assert {"engine.gpu_memory_utilization=0.95", "engine.kv_cache_dtype=fp8"} <= set(
        assert_remedies_help(barely).remedies
    )


def test_out_of_memory_is_an_answer_not_a_crash():
    """Graphs on top of a budget of 0.99, and blocks or bytes that the card does not have."""
    graphs = scenario_of("Llama-3.1-8B", vllm_version="0.19.0", gpu_memory_utilization=0.99)
    answer = assert_remedies_help(graphs)
    assert "out of memory on stage 0" in answer.refusal
    assert "of 79.19 GiB" in answer.refusal
    assert "engine.gpu_memory_utilization=0.95" in answer.remedies
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
