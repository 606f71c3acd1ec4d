"""What helps a server that does not start: a single change, else two at once, each tried."""

import sys

import pytest

from simkv.cli import main
from simkv.load.overrides import parse_overrides
from simkv.planning import plan
from simkv.spec.checks import scenario_faults
from simkv.spec.model import ModelSpec
from tests.cost.worlds import scenario_of
from tests.test_planning import assert_remedies_help, with_remedy

# Four layers of four heads, 440 GiB: neither TP nor PP alone makes them small enough for a GPU.
FEW_AND_WIDE = ModelSpec(
    name="few and wide",
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=4,
    head_dim=128,
    hidden_size=16_384,
    intermediate_size=1_200_000,
    vocab_size=32_000,
    max_position_embeddings=131_072,
)
SMALL_BATCH = {"max_num_batched_tokens": 1024, "max_num_seqs": 64}


@pytest.mark.parametrize(
    ("scenario", "remedies"),
    [
        (  # no more GPUs: more utilization leaves room, but not for the length that was asked for
            scenario_of("Llama-3.1-70B", "h100_sxm_x2", 2, gpu_memory_utilization=0.85),
            ("engine.gpu_memory_utilization=0.97 and engine.max_model_len=35392",),
        ),
        (  # on the fewest GPUs, of which more tensor parallelism is the simpler layout
            scenario_of("Llama-3.1-8B", "h100_sxm_x8", **SMALL_BATCH).replace(model=FEW_AND_WIDE),
            ("parallel.tensor_parallel_size=4 and parallel.pipeline_parallel_size=2",),
        ),
        (
            scenario_of("Llama-3.1-70B", "l40s_x4"),
            (
                "parallel.pipeline_parallel_size=4 and engine.kv_cache_dtype=fp8",
                "parallel.tensor_parallel_size=4 and engine.max_model_len=63968",
            ),
        ),
        (
            scenario_of("Llama-3.1-70B", "h100_sxm_x8", gpu_memory_utilization=0.3),
            (
                "parallel.tensor_parallel_size=4 and engine.gpu_memory_utilization=0.62",
                "parallel.pipeline_parallel_size=8 and engine.kv_cache_dtype=fp8",
            ),
        ),
        (scenario_of("Llama-3.1-70B", "h100_sxm_x1"), ()),
    ],
)
def test_two_changes_where_no_single_one_helps(scenario, remedies):
    answer = assert_remedies_help(scenario)
    assert answer.remedies == remedies
    for remedy in remedies:
        for change in remedy.split(" and "):
            changed = with_remedy(scenario, change)
            assert scenario_faults(changed) or not plan(changed).fits
        assert f"  try {remedy}\n" in f"{answer}\n"
    if not remedies:
        assert "no change of length, batch, layout, KV dtype or utilization helps" in str(answer)


def test_two_changes_are_tried_where_a_shorter_length_is_all_that_helps_alone():
    """The length was asked for: what keeps it is worth more GPUs' worth of trying."""
    scenario = scenario_of("Llama-3.1-8B", "rtx_4090_x1", max_model_len=82_000)
    alone, pair = assert_remedies_help(scenario).remedies
    assert alone.startswith("engine.max_model_len=")
    assert pair == "engine.kv_cache_dtype=fp8 and engine.gpu_memory_utilization=0.93"


@pytest.mark.parametrize(
    ("engine", "refusal", "first"),
    [
        (
            {"max_num_batched_tokens": 1_000_000},
            "an activation peak of 103.06 GiB (max_num_batched_tokens 1,000,000) does not leave room for a KV "
            "cache within 72.85 GiB on stage 0: short by 46.33 GiB",
            "engine.max_num_batched_tokens=262144",
        ),
        (
            {"max_num_batched_tokens": 65_536, "max_num_seqs": 65_536},
            "an activation peak of 114.07 GiB (max_num_seqs 65,536) does not leave room for a KV cache within "
            "72.85 GiB on stage 0: short by 57.34 GiB",
            "engine.max_num_seqs=4096",
        ),
        (
            {"max_num_batched_tokens": 450_000},
            "one request of max_model_len 131,072 tokens needs 16.00 GiB of KV cache per GPU on stage 0 "
            "(8,192 blocks), 10.32 GiB are available (5,285 blocks) beside an activation peak of 46.41 GiB "
            "(max_num_batched_tokens 450,000)",
            "engine.max_num_batched_tokens=262144",
        ),
    ],
)
def test_a_batch_that_takes_the_memory_is_named_and_made_smaller(engine, refusal, first):
    answer = assert_remedies_help(scenario_of("Llama-3.1-8B", **engine))
    assert answer.refusal == refusal
    assert answer.remedies[0] == first


def test_a_batch_beside_large_weights_is_named_too():
    scenario = scenario_of("Llama-3.1-70B", "h100_sxm_x2", 2, max_num_batched_tokens=131_072)
    answer = assert_remedies_help(scenario)
    assert answer.refusal.startswith(
        "weights of 65.74 GiB and an activation peak of 16.56 GiB (max_num_batched_tokens 131,072) do not leave"
    )
    assert answer.remedies == ("engine.max_num_batched_tokens=16384 and engine.max_model_len=8368",)


def test_remedies_are_what_set_takes():
    answer = plan(scenario_of("Llama-3.1-70B", "l40s_x4"))
    faults = []
    for remedy in answer.remedies:
        parse_overrides(remedy.split(" and "), faults)
    assert faults == []


def test_the_command_with_both_changes_starts(monkeypatch, capsys):
    question = ["simkv", "plan", "--vllm", "vllm serve Llama-3.1-70B", "--hardware", "l40s_x4"]
    pair = ["--set", "parallel.pipeline_parallel_size=4", "--set", "engine.kv_cache_dtype=fp8"]
    for arguments, code in ((question, 2), ([*question, *pair], None)):
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code in (code, code or 0)
    assert "try parallel.pipeline_parallel_size=4 and engine.kv_cache_dtype=fp8" in capsys.readouterr().out
