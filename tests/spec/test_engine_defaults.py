"""The defaults of ``vllm serve`` by GPU and version, and how they cap each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from simkv.spec.engine import EngineSpec, parse_version
from simkv.units import GIB
from tests.cost.worlds import scenario_of


def resolved(hardware="h100_sxm", tp=1, pp=1, model="Llama-3.1-8B", **engine):
    return scenario_of(model, hardware, tp, pp, **engine).resolved_engine


@pytest.mark.parametrize(
    ("hardware", "budget", "max_num_seqs"),
    [
        ("h100_sxm", 8_192, 1_024),
        ("h200_sxm", 8_192, 1_024),
        ("rtx_pro_6000", 8_192, 1_024),
        ("a100_sxm", 2_048, 256),
        ("a100_sxm_40gb", 2_048, 256),
        ("l40s", 2_048, 256),
        ("rtx_4090", 2_048, 256),
    ],
)
def test_budget_and_sequences_follow_the_gpu(hardware, budget, max_num_seqs):
    engine = resolved(hardware)
    assert (engine.max_num_batched_tokens, engine.max_num_seqs) == (budget, max_num_seqs)


def test_a_gpu_of_160_gib_gets_a_budget_of_16384():
    scenario = scenario_of("Llama-3.1-8B")
    larger = scenario.replace(hardware={"gpu": {"memory_bytes": {"value": 178.0 * GIB}}})
    assert larger.resolved_engine.max_num_batched_tokens == 16_384


def test_a_defaulted_budget_is_capped_at_what_the_sequences_can_hold():
    assert resolved(max_model_len=4).max_num_batched_tokens == 4 * 1_024
    assert resolved(max_model_len=100, max_num_seqs=8).max_num_batched_tokens == 800
    assert (
        resolved(max_model_len=100, max_num_seqs=8, max_num_batched_tokens=4_096).max_num_batched_tokens
        == 4_096
    )


def test_a_defaulted_number_of_sequences_is_capped_at_the_budget():
    assert resolved(max_num_batched_tokens=100).max_num_seqs == 100
    assert resolved(max_num_batched_tokens=100, max_num_seqs=64).max_num_seqs == 64


def test_without_chunked_prefill_the_budget_holds_a_whole_prompt():
    assert resolved(enable_chunked_prefill=False, max_model_len=50_000).max_num_batched_tokens == 50_000
    assert resolved(enable_chunked_prefill=False, max_model_len=5_000).max_num_batched_tokens == 8_192


@given(
    max_model_len=st.integers(1, 200_000),
    max_num_seqs=st.none() | st.integers(1, 4_096),
    is_chunked=st.booleans(),
)
def test_defaults_never_contradict_each_other(max_model_len, max_num_seqs, is_chunked):
    engine = resolved(
        max_model_len=max_model_len, max_num_seqs=max_num_seqs, enable_chunked_prefill=is_chunked
    )
    assert engine.max_num_batched_tokens <= engine.max_num_seqs * max_model_len
    assert max_num_seqs is not None or engine.max_num_seqs <= engine.max_num_batched_tokens
    assert is_chunked or engine.max_num_batched_tokens >= max_model_len


def test_defaults_of_the_latest_version():
    engine = resolved()
    assert engine.vllm_version == "0.32.0"
    assert engine.gpu_memory_utilization == 0.92
    assert engine.max_model_len == 131_072  # the model's positions
    assert engine.block_size == 16
    assert (engine.enable_prefix_caching, engine.enable_chunked_prefill) == (True, True)
    assert (engine.scheduling_policy, engine.watermark) == ("fcfs", 0.0)
    assert engine.scheduler_reserve_full_isl


def test_defaults_of_older_versions():
    assert resolved(vllm_version="0.19.0").gpu_memory_utilization == 0.9
    assert not resolved(vllm_version="0.19.0").scheduler_reserve_full_isl
    assert resolved(vllm_version="0.24.0").scheduler_reserve_full_isl
    assert resolved(vllm_version="0.19.0", scheduler_reserve_full_isl=True).scheduler_reserve_full_isl


@pytest.mark.parametrize(
    ("version", "pp", "is_async"),
    [
        ("0.10.0", 1, False),
        ("0.14.0", 1, True),
        ("0.24.0", 2, False),
        ("0.32.0", 1, True),
        ("0.32.0", 2, True),
    ],
)
def test_async_scheduling_by_version_and_pipeline(version, pp, is_async):
    assert resolved(pp=pp, vllm_version=version).async_scheduling == is_async
    assert not resolved(pp=pp, vllm_version=version, async_scheduling=False).async_scheduling


def test_the_kv_cache_takes_the_models_dtype_unless_told_otherwise():
    assert (resolved().kv_cache_dtype, resolved().kv_cache_dtype_bytes) == ("bfloat16", 2.0)
    assert resolved(model="Llama-2-7b-hf").kv_cache_dtype == "float16"
    for dtype in ("fp8", "fp8_e4m3", "fp8_e5m2"):
        assert resolved(kv_cache_dtype=dtype).kv_cache_dtype_bytes == 1.0


def test_the_executor_follows_the_number_of_gpus():
    assert resolved().distributed_executor_backend == "uniproc"
    assert resolved(tp=2).distributed_executor_backend == "mp"
    assert resolved(pp=2).distributed_executor_backend == "mp"
    assert resolved(tp=8).distributed_executor_backend == "mp"
    assert resolved(tp=8, pp=2).distributed_executor_backend == "ray"
    assert resolved(tp=2, distributed_executor_backend="ray").distributed_executor_backend == "ray"
    assert resolved(distributed_executor_backend="uni").distributed_executor_backend == "uniproc"
    assert EngineSpec(distributed_executor_backend="uni") == EngineSpec(
        distributed_executor_backend="uniproc"
    )
    with pytest.raises(ValidationError):
        EngineSpec(distributed_executor_backend="external_launcher")


@pytest.mark.parametrize(
    ("version", "wait"),
    [
        ("0.14.0", "always"),
        ("0.19.1", "always"),
        ("0.20.0", "sampled"),
        ("0.31.0", "sampled"),
        ("0.32.0", "never"),
    ],
)
def test_what_a_batch_scheduled_ahead_waits_for_in_a_pipeline(version, wait):
    assert resolved(pp=2, vllm_version=version).broadcast_wait == wait
    assert resolved(pp=2, vllm_version=version, broadcast_wait="sampled").broadcast_wait == "sampled"


@pytest.mark.parametrize(
    ("text", "version"),
    [("0.32.0", (0, 32)), ("v0.19.0", (0, 19)), ("0.15.2rc1.dev93", (0, 15)), ("1.0", (1, 0))],
)
def test_versions(text, version):
    assert parse_version(text) == version
    assert EngineSpec(vllm_version=text).vllm_version == text


@pytest.mark.parametrize("text", ["latest", "", "0", "0.x.1", "v", "-1.2", "0.-1"])
def test_what_is_no_version_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match=r"expected a vLLM version such as '0\.32\.0'"):
        parse_version(text)
    with pytest.raises(ValidationError):
        EngineSpec(vllm_version=text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"gpu_memory_utilization": 0.0},
        {"gpu_memory_utilization": 1.01},
        {"gpu_memory_utilization": float("nan")},
        {"block_size": 0},
        {"max_num_seqs": 0},
        {"max_num_seqs": 8.0},
        {"max_num_seqs": True},
        {"max_model_len": "8192"},
        {"kv_cache_dtype": "int4"},
        {"watermark": 1.0},
        {"scheduling_policy": "lifo"},
        {"max_batch_size": 8},
    ],
)
def test_wrong_options_are_refused(wrong):
    with pytest.raises(ValidationError):
        EngineSpec(**wrong)
