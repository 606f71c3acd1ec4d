"""The activation peak and what else a start-up takes: laws, and figures that public logs print."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.kv.activation import activation_peak_bytes
from simkv.kv.overheads import graph_bytes, non_torch_bytes, num_graph_sizes
from simkv.scheduler.graphs import CudaGraphs
from simkv.units import GIB
from tests.cost.worlds import layouts, scenario_of

some_layouts = st.sampled_from(layouts("h100_sxm"))


def activation_gib(*layout, stage=0, **engine):
    return activation_peak_bytes(scenario_of(*layout, **engine), stage) / GIB


@settings(deadline=None)
@given(layout=some_layouts, tokens=st.integers(512, 16_384), seqs=st.integers(1, 512))
def test_more_tokens_or_rows_never_take_less(layout, tokens, seqs):
    def peak(tokens, seqs):
        scenario = scenario_of(*layout, max_num_batched_tokens=tokens, max_num_seqs=seqs)
        return activation_peak_bytes(scenario, len(scenario.layers_per_stage) - 1)

    assert peak(tokens + 512, seqs) > peak(tokens, seqs)
    assert peak(tokens, seqs + 16) >= peak(tokens, seqs) > 0


@pytest.mark.parametrize(
    ("layout", "engine", "logged_gib"),
    [
        (("Llama-3.1-8B",), {}, 1.89),
        (("Llama-3.1-8B", "h100_sxm", 4), {}, 1.89),
        (("Llama-3.1-8B", "h100_sxm", 1, 2), {}, 1.1),
        (("ibm-granite/granite-3.1-8b-instruct",), {}, 0.85),  # the forward pass, not the sampler
        (("codellama/CodeLlama-7b-hf",), {}, 0.77),
        (("Qwen/Qwen2.5-72B-Instruct", "h100_sxm", 2), {}, 2.29),
        (("Qwen3-14B",), {}, 2.23),
        (("Qwen3-14B",), {"vllm_version": "0.16.0"}, 5.64),
        (("google/gemma-2-9b-it",), {}, 3.65),
        (("google/gemma-3-27b-it",), {}, 3.99),
        (("mistralai/Mixtral-8x7B-Instruct-v0.1", "h100_sxm", 2), {}, 1.21),
        (("Qwen/Qwen3-30B-A3B",), {}, 2.68),
        (("meta-llama/Llama-4-Scout-17B-16E-Instruct", "h100_sxm", 4), {}, 3.19),
        (
            ("Qwen3-4B", "rtx_4090"),
            {"vllm_version": "0.7.3", "max_model_len": 10_000, "max_num_seqs": 1},
            0.74,
        ),
    ],
)
def test_as_logged(layout, engine, logged_gib):
    engine = {"vllm_version": "0.19.0", "max_model_len": 8_192, **engine}
    assert activation_gib(*layout, **engine) == pytest.approx(logged_gib, abs=0.05)


def test_the_last_stage_of_a_pipeline_holds_the_logits():
    """2.01 GiB logged on the last stage, 1.1 on the first, 1.89 without a pipeline."""
    stages = [
        activation_gib("Llama-3.1-8B", "h100_sxm", 1, 4, stage=stage, vllm_version="0.19.0")
        for stage in range(4)
    ]
    assert stages[0] == stages[1] == stages[2] == pytest.approx(1.1, abs=0.05)
    assert stages[3] == pytest.approx(2.01, abs=0.05)


def test_v0_profiled_a_whole_prompt_where_it_did_not_chunk():
    """2.07 GiB logged at 20,000 tokens, 0.06 above 32K."""
    whole, chunked = (
        activation_gib("Llama-3.1-8B", "rtx_4090", vllm_version="0.6.4", max_model_len=length, max_num_seqs=1)
        for length in (20_000, 35_000)
    )
    assert whole == pytest.approx(2.07, abs=0.1)
    assert chunked == pytest.approx(0.06, abs=0.1)


def test_non_torch_grows_with_versions_and_tensor_parallelism():
    def gib(version, tp=1, pp=1):
        return non_torch_bytes(scenario_of("Llama-3.1-8B", tp=tp, pp=pp, vllm_version=version)) / GIB

    assert gib("0.17.0") == pytest.approx(0.13, abs=0.01)
    assert gib("0.19.0") == pytest.approx(0.25, abs=0.01)
    assert gib("0.11.0", 2) == pytest.approx(0.54, abs=0.05)
    assert gib("0.19.0", 2) == gib("0.19.0", 4) == pytest.approx(2.1, abs=0.01)
    assert gib("0.19.0", pp=2) == pytest.approx(0.07, abs=0.01)


@given(max_num_seqs=st.integers(1, 600), budget=st.integers(600, 9_000))
def test_graph_sizes_are_those_of_the_scheduler(max_num_seqs, budget):
    """But for max_num_seqs and the budget themselves, which may be sizes of their own."""
    graphs = CudaGraphs(max_num_seqs, budget)
    own = {max_num_seqs, budget} - {1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)}
    sizes = set(graphs.sizes) - own
    assert len(sizes) == num_graph_sizes(min(2 * max_num_seqs, 512, budget))


@pytest.mark.parametrize(
    ("layout", "logged_gib"),
    [
        (("Llama-3.1-8B",), 0.91),
        (("Llama-3.1-8B", "h100_sxm", 4), 0.67),
        (("Llama-3.1-70B", "h100_sxm", 2), 1.79),
        (("google/gemma-2-2b-it",), 0.71),
        (("Qwen/Qwen3-30B-A3B",), 1.41),
        (("openai/gpt-oss-20b",), 1.84),
    ],
)
def test_graph_pools_as_logged(layout, logged_gib):
    scenario = scenario_of(*layout, vllm_version="0.19.0", max_model_len=8_192)
    assert graph_bytes(scenario, 0) / GIB == pytest.approx(logged_gib, abs=0.25)
