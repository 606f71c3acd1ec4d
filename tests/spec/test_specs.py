"""Specs are frozen and strict; a variant is a new value, validated again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from simkv.load.model import find_model, shipped_models
from simkv.spec.engine import EngineSpec
from simkv.spec.hardware import Quantity
from simkv.spec.lengths import LengthSpec, LognormalLen, UniformLen
from simkv.spec.model import ModelSpec, QuantizationSpec
from simkv.spec.parallel import ParallelSpec
from simkv.spec.workload import WorkloadSpec
from tests.cost.worlds import scenario_of

LENGTHS = {"prompt_len": 100, "output_len": 10}


# replace


def test_replace_returns_a_new_value_and_leaves_the_old_one():
    engine = EngineSpec(max_num_seqs=64)
    larger = engine.replace(block_size=32)
    assert (engine.block_size, larger.block_size, larger.max_num_seqs) == (16, 32, 64)
    assert larger == EngineSpec(max_num_seqs=64, block_size=32)
    assert engine.replace() == engine
    with pytest.raises(ValidationError):
        engine.block_size = 64


def test_replace_reaches_into_parts():
    scenario = scenario_of("Llama-3.1-8B")
    changed = scenario.replace(parallel={"tensor_parallel_size": 2}, engine={"block_size": 32}, seed=7)
    assert (changed.parallel.tensor_parallel_size, changed.engine.block_size, changed.seed) == (2, 32, 7)
    assert changed.model is scenario.model
    assert scenario.parallel.tensor_parallel_size == 1
    assert (
        scenario.replace(parallel=ParallelSpec(pipeline_parallel_size=2)).parallel.pipeline_parallel_size == 2
    )


def test_replace_recomputes_what_follows():
    scenario = scenario_of("Llama-3.1-8B")
    assert scenario.layers_per_stage == (32,)
    assert scenario.resolved_engine.max_num_seqs == 1_024
    changed = scenario.replace(parallel={"pipeline_parallel_size": 2}, engine={"max_num_seqs": 8})
    assert changed.layers_per_stage == (16, 16)
    assert changed.resolved_engine.max_num_seqs == 8


@pytest.mark.parametrize("change", [{"block_size": 0}, {"bogus": 1}, {"max_num_seqs": "8"}])
def test_replace_validates(change):
    with pytest.raises(ValidationError):
        EngineSpec().replace(**change)


def test_numbers_need_a_source_and_are_finite():
    assert Quantity(value=1.0, source="a datasheet").mark == "datasheet"
    for wrong in ({"value": 1.0}, {"value": 1.0, "source": ""}, {"value": float("inf"), "source": "x"}):
        with pytest.raises(ValidationError):
            Quantity(**wrong)


# models


def test_model_dimensions_must_agree():
    model = find_model("Llama-3.1-8B")
    with pytest.raises(
        ValidationError, match="num_key_value_heads: 5 does not divide num_attention_heads 32"
    ):
        model.replace(num_key_value_heads=5)
    with pytest.raises(ValidationError, match="layer_types: wanted 32 entries, got 1"):
        model.replace(layer_types=("full_attention",))


@pytest.mark.parametrize("name", shipped_models())
def test_kv_of_a_rank_is_a_share_of_the_whole(name):
    """Heads are split while there are enough of them, then copied; a latent is always whole."""
    model = find_model(name)
    whole = model.kv_elements_per_token_per_layer()
    num_heads = model.num_key_value_heads
    for tp in (1, 2, 4, 8, 16):
        per_rank = model.kv_elements_per_token_per_layer(tp)
        if model.is_mla:
            assert per_rank == whole
        elif num_heads % tp == 0:
            assert per_rank * tp == whole
        elif tp % num_heads == 0:
            assert per_rank * num_heads == whole
    assert model.kv_bytes(10, 1.0) == 10 * whole * model.num_hidden_layers
    assert model.kv_bytes(10) == 2 * model.kv_bytes(10, 1.0)


@pytest.mark.parametrize(
    ("method", "group_size", "bytes_per_weight"),
    [("fp8", None, 1.0), ("w8a8", None, 1.0), ("w4a16", 128, 0.5 + 2 / 128), ("mxfp4", 32, 0.5 + 1 / 32)],
)
def test_bytes_of_a_quantised_weight_include_its_share_of_the_scale(method, group_size, bytes_per_weight):
    assert QuantizationSpec(method=method, group_size=group_size).bytes_per_weight == bytes_per_weight


def test_a_model_counts_its_parameters():
    tiny = ModelSpec(
        name="tiny", num_hidden_layers=2, hidden_size=8, num_attention_heads=4, num_key_value_heads=2, head_dim=2,
        intermediate_size=16, vocab_size=10, max_position_embeddings=64,
    )  # fmt: skip
    attention, mlp, norms = 8 * (8 + 2 * 4) + 8 * 8, 3 * 8 * 16, 2 * 8
    assert tiny.num_parameters == 2 * (attention + mlp + norms) + 2 * 10 * 8 + 8
    assert tiny.replace(tie_word_embeddings=True).num_parameters == tiny.num_parameters - 80
    assert tiny.replace(attention_bias=True).num_parameters == tiny.num_parameters + 2 * (8 + 2 * 4)
    assert tiny.replace(has_gated_mlp=False).num_parameters == tiny.num_parameters - 2 * 8 * 16


# lengths and workloads


@given(length=st.integers(1, 1_000_000))
def test_a_number_is_a_fixed_length(length):
    workload = WorkloadSpec(prompt_len=length, output_len={"uniform": {"min": 1, "max": length}})
    assert workload.prompt_len == LengthSpec(fixed=length)
    assert workload.output_len == LengthSpec(uniform=UniformLen(min=1, max=length))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "exactly one of a number, uniform"),
        ({"fixed": 8, "uniform": {"min": 1, "max": 2}}, "exactly one of a number, uniform"),
        ({"uniform": {"min": 3, "max": 2}}, "min: 3 is above max 2"),
        ({"lognormal": {"median": 10.0, "p99": 9.0}}, "p99: 9 is below the median 10"),
        ({"fixed": 0}, "greater than 0"),
    ],
)
def test_wrong_lengths(wrong, message):
    with pytest.raises(ValidationError, match=message):
        LengthSpec(**wrong)


def test_a_length_is_no_truth_value():
    with pytest.raises(ValidationError):
        WorkloadSpec(prompt_len=True, output_len=1)
    assert LognormalLen(median=10.0, p99=10.0).max is None


@pytest.mark.parametrize(
    ("fields", "arrival"),
    [
        ({}, "inf"),
        ({"request_rate": 2.0}, "poisson"),
        ({"request_rate": 2.0, "burstiness": 0.5}, "gamma"),
        ({"request_rate": 2.0, "arrival": "constant"}, "constant"),
        ({"arrival": "inf"}, "inf"),
    ],
)
def test_the_arrival_process_follows_from_what_is_given(fields, arrival):
    workload = WorkloadSpec(**LENGTHS, **fields)
    assert workload.resolved_arrival == arrival
    assert workload.resolved_num_prompts == 1_000


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt_len": None}, "prompt_len: missing; wanted a length"),
        ({"arrival": "poisson"}, "request_rate: expected requests per second"),
        (
            {"arrival": "constant", "request_rate": 1.0, "burstiness": 2.0},
            "burstiness: only arrival: gamma has it",
        ),
        ({"dataset_name": "azure"}, "dataset_path: expected the path of the trace"),
        (
            {"dataset_name": "azure", "dataset_path": "x.csv", "request_rate": 1.0},
            "a trace brings its own arrival times",
        ),
        (
            {"dataset_name": "random", "random_input_len": 1, "random_range_ratio": 0.9},
            "the shortest prompt has 0 tokens",
        ),
    ],
)
def test_wrong_workloads(fields, message):
    with pytest.raises(ValidationError, match=message):
        WorkloadSpec(**LENGTHS | fields)
