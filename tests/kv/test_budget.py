"""The memory ledger: laws, and public cases with an exact answer (C1 to C9, C19, C20, C23)."""

from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.kv.budget import memory_ledger, weights_bytes
from simkv.load.model import find_model
from simkv.spec.model import ModelSpec
from simkv.spec.parallel import split_layers
from simkv.units import GIB
from tests.cost.worlds import layouts, scenario_of


def model_of(num_layers, num_kv_heads, num_heads=32):
    return ModelSpec(
        name="case",
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads,
        head_dim=128,
        hidden_size=4_096,
        intermediate_size=11_008,
        vocab_size=32_000,
        max_position_embeddings=1_048_576,
        num_rotary_positions=0,
    )


def ledger_of(model, hardware="h100_sxm", tp=1, pp=1, **engine):
    scenario = scenario_of("Llama-3.1-8B", hardware, tp, pp, **engine)
    return memory_ledger(scenario.replace(model=model))


# Laws

some_layouts = st.sampled_from(layouts("h100_sxm"))
utilizations = st.floats(0.5, 1.0)


@settings(deadline=None)
@given(layout=some_layouts, pair=st.tuples(utilizations, utilizations).map(sorted))
def test_more_utilization_never_means_fewer_blocks(layout, pair):
    less, more = (memory_ledger(scenario_of(*layout, gpu_memory_utilization=value)) for value in pair)
    assert more.num_gpu_blocks >= less.num_gpu_blocks
    assert more.kv_tokens >= less.kv_tokens


@settings(deadline=None)
@given(first=st.integers(1, 79))
def test_more_layers_on_a_stage_never_mean_more_blocks(first):
    scenario = scenario_of("Llama-3.1-70B", "h100_sxm", 4, 2)
    stages = [
        memory_ledger(
            scenario.replace(parallel={"pipeline_layer_partition": (num_layers, 80 - num_layers)})
        ).ranks
        for num_layers in (first, first + 1)
        if num_layers < 80
    ]
    if len(stages) == 2:
        assert stages[1][0].num_gpu_blocks <= stages[0][0].num_gpu_blocks
        assert stages[1][1].num_gpu_blocks >= stages[0][1].num_gpu_blocks


@settings(deadline=None)
@given(
    layout=some_layouts,
    block_size=st.sampled_from((8, 16, 32, 64, 128)),
    kv_dtype=st.sampled_from(("auto", "fp8")),
)
def test_the_replica_has_what_its_tightest_stage_has(layout, block_size, kv_dtype):
    scenario = scenario_of(*layout, block_size=block_size, kv_cache_dtype=kv_dtype)
    ledger = memory_ledger(scenario)
    assert ledger.num_gpu_blocks == min(rank.num_gpu_blocks for rank in ledger.ranks)
    assert ledger.ranks[ledger.binding_stage].num_gpu_blocks == ledger.num_gpu_blocks
    assert [rank.num_layers for rank in ledger.ranks] == list(scenario.layers_per_stage)
    for rank in ledger.ranks:
        parts = rank.weights_bytes + rank.activation_bytes + rank.non_torch_bytes + rank.graph_bytes
        assert rank.kv_bytes == rank.requested_bytes - parts  # 0.32.0 deducts the graphs
        assert rank.num_gpu_blocks * rank.kv_block_bytes <= max(0, rank.kv_bytes)
        assert ledger.used_bytes(rank) <= max(rank.requested_bytes, parts) + rank.outside_bytes


@settings(deadline=None)
@given(layout=some_layouts, max_model_len=st.integers(1, 4_096))
def test_max_model_len_reserves_nothing(layout, max_model_len):
    """Against the folk rule: with chunked prefill and a given budget, blocks do not depend on it."""
    given_sizes = {"max_num_batched_tokens": 4_096, "max_num_seqs": 256}
    short, long = (
        memory_ledger(scenario_of(*layout, max_model_len=n, **given_sizes)) for n in (max_model_len, 4_096)
    )
    assert short.num_gpu_blocks == long.num_gpu_blocks
    assert short.max_concurrency >= long.max_concurrency


@settings(deadline=None)
@given(layout=some_layouts)
def test_all_ranks_together_hold_at_least_the_whole_model(layout):
    scenario = scenario_of(*layout)
    stages = range(len(scenario.layers_per_stage))
    total = scenario.parallel.tensor_parallel_size * sum(weights_bytes(scenario, stage) for stage in stages)
    model = scenario.model
    packed = model.quantization.bytes_per_weight if model.quantization else model.dtype_bytes
    assert total >= 0.999 * model.num_parameters * min(packed, model.dtype_bytes)


def test_graphs_are_deducted_since_0_21_and_on_top_before():
    old, new, eager = (
        memory_ledger(
            scenario_of("Llama-3.1-8B", vllm_version=version, gpu_memory_utilization=0.9, **options)
        ).ranks[0]
        for version, options in (("0.20.0", {}), ("0.21.0", {}), ("0.21.0", {"enforce_eager": True}))
    )
    assert (old.deducts_graphs, new.deducts_graphs, eager.graph_bytes) == (False, True, 0)
    assert old.kv_bytes - new.kv_bytes == new.graph_bytes > 0
    assert eager.kv_bytes == old.kv_bytes


def test_a_given_cache_size_and_a_given_number_of_blocks_win():
    given_bytes = memory_ledger(scenario_of("Llama-3.1-8B", kv_cache_memory_bytes=4 * GIB))
    assert given_bytes.num_gpu_blocks == 4 * GIB // (16 * 131_072)
    given_blocks = memory_ledger(scenario_of("Llama-3.1-8B", num_gpu_blocks_override=1_000))
    assert (given_blocks.num_gpu_blocks, given_blocks.is_overridden) == (1_000, True)


def test_what_lies_outside_the_budget_can_exceed_the_card():
    """Why utilization 0.99 dies where 0.95 lives: before 0.21 the graphs come on top."""
    lives, dies = (
        memory_ledger(scenario_of("Llama-3.1-8B", vllm_version="0.19.0", gpu_memory_utilization=value))
        for value in (0.95, 0.99)
    )
    assert lives.fits
    assert dies.fits_weights
    assert dies.fits_one_request
    assert not dies.fits_memory
    assert not memory_ledger(scenario_of("Llama-3.1-70B", kv_cache_memory_bytes=60 * GIB)).fits
    assert not memory_ledger(scenario_of("Llama-3.1-8B", num_gpu_blocks_override=100_000)).fits


# KV: public cases


def test_one_request_of_a_model_without_gqa_takes_64_gib():
    """Case: 32 layers, 32 KV heads of 128, 131,072 tokens in fp16."""
    assert model_of(32, 32).kv_bytes(131_072) == 68_719_476_736 == 64 * GIB


def test_one_request_of_a_70b_model_with_gqa_takes_little():
    assert find_model("Llama-3.1-70B").kv_bytes(4_096) == 1_342_177_280


@pytest.mark.parametrize(
    ("tp", "pp", "kv_heads", "num_layers"), [(8, 1, 4, 32), (1, 8, 32, 4), (4, 2, 8, 16), (2, 4, 16, 8)]
)
def test_tp_splits_heads_and_pp_splits_layers(tp, pp, kv_heads, num_layers):
    """Case: each of 8 GPUs holds an eighth of the KV, however they are laid out."""
    ledger = ledger_of(model_of(32, 32), tp=tp, pp=pp)
    for rank in ledger.ranks:
        assert rank.num_layers == num_layers
        assert rank.kv_block_bytes == 2 * kv_heads * 128 * 2 * num_layers * 16
        assert 8 * rank.kv_block_bytes * (131_072 // 16) == 64 * GIB


@pytest.mark.parametrize(
    ("num_layers", "num_stages", "until_0_32", "later"),
    [
        (61, 4, (15, 15, 16, 15), (15, 15, 15, 16)),
        (94, 4, (23, 24, 24, 23), (23, 23, 24, 24)),
        (62, 4, (15, 16, 16, 15), (15, 15, 16, 16)),
        (80, 8, (10,) * 8, (10,) * 8),
    ],
)
def test_layers_left_over_go_where_the_version_puts_them(num_layers, num_stages, until_0_32, later):
    assert split_layers(num_layers, num_stages) == until_0_32
    assert split_layers(num_layers, num_stages, (0, 33)) == later
    model = model_of(num_layers, 8)
    ledger = ledger_of(model, "h100_sxm", 1, num_stages)
    assert tuple(rank.num_layers for rank in ledger.ranks) == until_0_32


def test_an_explicit_partition_overrides():
    scenario = scenario_of("Llama-3.1-8B", pp=2).replace(parallel={"pipeline_layer_partition": (20, 12)})
    assert [rank.num_layers for rank in memory_ledger(scenario).ranks] == [20, 12]


def test_a_stage_needs_room_for_its_own_layers_only():
    """Case: 92 layers over 8 stages; 28.57 GiB available; a stage of 12 holds about 624 K tokens."""
    size = {"kv_cache_memory_bytes": round(28.57 * GIB), "max_model_len": 202_752}
    model = model_of(92, 8)
    ledger = ledger_of(model, "a100_sxm", 1, 8, **size)
    assert model.kv_bytes(202_752) / GIB == pytest.approx(71.16, abs=0.01)
    binding = ledger.ranks[ledger.binding_stage]
    assert binding.num_layers == 12
    assert 202_752 // 16 * binding.kv_block_bytes / GIB == pytest.approx(9.28, abs=0.01)
    assert ledger.fits_one_request
    assert ledger.longest_request_tokens == pytest.approx(624_000, rel=0.001)


@pytest.mark.parametrize("version", ["0.14.0", "0.15.2rc1"])
def test_two_versions_compared_the_whole_model_with_one_stage(version):
    """Case C1: they refused what fits, and said that 81,392 tokens would."""
    size = {"kv_cache_memory_bytes": round(28.57 * GIB), "max_model_len": 202_752}
    wrong = ledger_of(model_of(92, 8), "a100_sxm", 1, 8, vllm_version=version, **size)
    assert wrong.outcome == "refused"
    assert wrong.longest_request_tokens == 81_392
    for other in ("0.13.0", "0.16.0"):
        assert ledger_of(model_of(92, 8), "a100_sxm", 1, 8, vllm_version=other, **size).fits_one_request


def test_a_16_layer_stage_in_3_gib():
    """Case C2: 48 layers as 16 and 32, 4 KV heads, 3.18 GiB on the small card; the whole need is 24 GiB."""
    size = {"kv_cache_memory_bytes": round(3.18 * GIB), "max_model_len": 262_144}
    model = model_of(48, 4)
    scenario = scenario_of("Llama-3.1-8B", pp=2, **size).replace(model=model)
    ledger = memory_ledger(scenario.replace(parallel={"pipeline_layer_partition": (16, 32)}))
    assert model.kv_bytes(262_144) == 24 * GIB
    small = ledger.ranks[0]
    assert small.kv_bytes // (small.kv_block_bytes // 16) == 104_202
    assert ledger.num_gpu_blocks == min(rank.num_gpu_blocks for rank in ledger.ranks)
    assert ledger.outcome == "refused"


def test_blocks_and_concurrency_of_a_16_gib_card():
    """Case: 65,536 bytes a token, 3.76 GiB: 3,852 blocks (3.76 is rounded), 1.54 requests of 40,000 tokens."""
    ledger = ledger_of(model_of(16, 8), kv_cache_memory_bytes=3_852 * 16 * 65_536 + 7, max_model_len=40_000)
    assert ledger.num_gpu_blocks == 3_852
    assert round(ledger.max_concurrency, 2) == 1.54
    assert pytest.approx(3.76, abs=0.005) == 3_852 * 16 * 65_536 / GIB


def test_the_longest_request_that_fits():
    """Case: 24,576 bytes a token, 9.97 GiB; 1,048,576 tokens need 24 GiB; about 435,584 fit."""
    ledger = ledger_of(model_of(48, 1), kv_cache_memory_bytes=round(9.97 * GIB), max_model_len=1_048_576)
    assert 65_536 * ledger.ranks[0].kv_block_bytes == 24 * GIB
    assert not ledger.fits_one_request
    assert ledger.longest_request_tokens == pytest.approx(435_584, abs=32)


def test_llama_405b_in_fp8_on_8_h100s():
    """Case: 4.77 GiB hold 79,392 tokens in bf16."""
    ledger = ledger_of(
        find_model("nvidia/Llama-3.1-405B-Instruct-FP8"), tp=8, kv_cache_memory_bytes=round(4.77 * GIB)
    )
    assert ledger.num_gpu_blocks * 16 == 79_392
    assert not ledger.fits_one_request


def test_fp8_kv_doubles_the_pool():
    """Case: Qwen3-8B on A100-80, ratio 2 up to block rounding."""
    bf16, fp8 = (
        ledger_of(find_model("Qwen3-8B"), "a100_sxm", kv_cache_dtype=dtype) for dtype in ("auto", "fp8")
    )
    assert abs(fp8.num_gpu_blocks - 2 * bf16.num_gpu_blocks) <= 1


def test_a_latent_is_held_whole_by_every_rank():
    """Case: DeepSeek-R1's 576 × 61 elements a token, whatever TP."""
    per_rank = [
        ledger_of(find_model("deepseek-ai/DeepSeek-R1"), tp=tp).ranks[0].kv_block_bytes for tp in (1, 2, 4, 8)
    ]
    assert per_rank == [576 * 61 * 2 * 16] * 4


def test_decode_context_parallelism_deals_a_latent_out():
    """Case C9: with DCP 8 a rank holds an eighth of each request, so eight times as many fit."""
    scenario = scenario_of("deepseek-ai/DeepSeek-R1", "h200_sxm", 8)
    whole = memory_ledger(scenario)
    dealt = memory_ledger(scenario.replace(parallel={"decode_context_parallel_size": 8}))
    assert dealt.num_gpu_blocks == whole.num_gpu_blocks
    assert dealt.blocks_per_request * 8 == whole.blocks_per_request
    assert dealt.max_concurrency == 8 * whole.max_concurrency


@pytest.mark.parametrize(("tp", "dcp"), [(16, 2), (32, 4), (32, 2)])
def test_decode_context_parallelism_deals_the_copies_of_a_kv_head_out(tp, dcp):
    """Ranks beyond the 8 KV heads hold copies: with DCP, tokens of their own instead."""
    scenario = scenario_of("Llama-3.1-70B", f"h100_sxm_{tp // 8}x8", tp)
    whole = memory_ledger(scenario)
    dealt = memory_ledger(scenario.replace(parallel={"decode_context_parallel_size": dcp}))
    assert [rank.kv_bytes for rank in dealt.ranks] == [rank.kv_bytes for rank in whole.ranks]
    assert dealt.num_gpu_blocks == whole.num_gpu_blocks
    assert dealt.blocks_per_request == ceil(ceil(whole.max_model_len / dcp) / 16)
    assert dealt.kv_tokens == pytest.approx(dcp * whole.kv_tokens, rel=1e-4)
    assert dealt.longest_request_tokens == pytest.approx(dcp * whole.longest_request_tokens, rel=1e-4)


@pytest.mark.parametrize("dcp", [1, 2, 4, 8])
def test_dealing_tokens_out_saves_nothing_where_no_kv_head_is_copied(dcp):
    """TP 8 of 8 KV heads: each of `dcp` ranks would hold `dcp` heads of 1 / `dcp` of the tokens."""
    scenario = scenario_of("Llama-3.1-70B", "h100_sxm_x8", 8)
    parallel = {"decode_context_parallel_size": dcp, "rules": "generic"}
    whole, dealt = memory_ledger(scenario), memory_ledger(scenario.replace(parallel=parallel))
    assert dealt.ranks[0].kv_block_bytes == dcp * whole.ranks[0].kv_block_bytes
    assert dealt.max_concurrency == pytest.approx(whole.max_concurrency, rel=1e-3)


def test_llama_8b_on_a_4090():
    """Case: vLLM 0.19 had 2,588 blocks; formulas of other simulators are 70-90 % off, this one 7 %."""
    sizes = {
        "max_num_batched_tokens": 2_048,
        "max_num_seqs": 256,
        "gpu_memory_utilization": 0.9,
        "max_model_len": 8_192,
    }
    ledger = ledger_of(find_model("Llama-3.1-8B"), "rtx_4090", vllm_version="0.19.0", **sizes)
    assert ledger.num_gpu_blocks == pytest.approx(2_588, rel=0.10)


def test_graphs_outside_the_budget_kill_what_lives_without_them():
    """Case C19: Yi-1.5-34B on four 4090s; 21,395 MiB in eager mode, 23,859 with graphs, then out of memory."""
    options = {"vllm_version": "0.5.4", "gpu_memory_utilization": 0.9}
    graphs, eager = (
        memory_ledger(scenario_of("01-ai/Yi-1.5-34B-Chat", "rtx_4090", 4, enforce_eager=is_eager, **options))
        for is_eager in (False, True)
    )
    assert (graphs.outcome, eager.outcome) == ("oom", "started")
    assert graphs.ranks[0].graph_bytes / 2**20 == pytest.approx(23_859 - 21_395, rel=0.1)
    assert eager.used_bytes(eager.ranks[0]) / 2**20 == pytest.approx(21_395, rel=0.05)


def test_a_hybrid_model_has_a_fixed_cost_for_each_request():
    """Case C20: halving the length does not double the concurrency of Gemma 3 (groups of windows)."""
    lengths = (8_192, 16_384, 32_768, 65_536, 131_072)
    needs = [
        ledger_of(find_model("google/gemma-3-12b-it"), max_model_len=length).blocks_per_request
        for length in lengths
    ]
    windows = 5 * ((1_024 - 1 + 8_192 + 15) // 16 + 1)
    assert needs[1:] == [length // 16 + windows for length in lengths[1:]]
    assert needs[0] == 8_192 // 16 + 5 * (8_192 // 16 + 1)
    assert needs[4] < 2 * needs[3] < 4 * needs[2]


def test_a_70b_model_in_16_bits_fits_on_two_cards_not_on_one():
    """Case C23: 140 GB of weights."""
    model = find_model("meta-llama/Llama-2-70b-hf")
    assert weights_bytes(scenario_of("meta-llama/Llama-2-70b-hf"), 0) / 1e9 == pytest.approx(140, rel=0.02)
    sizes = ((1, 1), (2, 1), (1, 2))
    fits = [ledger_of(model, tp=tp, pp=pp, max_model_len=4_096).fits for tp, pp in sizes]
    assert fits == [False, True, True]


def test_outcomes_in_the_order_in_which_a_server_finds_out():
    too_large = ledger_of(find_model("Llama-3.1-70B"), max_model_len=8_192)  # 131 GiB on 79
    assert (too_large.outcome, too_large.loads_weights) == ("oom", False)
    too_long = ledger_of(find_model("Llama-3.1-70B"), tp=2)
    assert (too_long.outcome, too_long.fits_weights) == ("refused", True)
    short = ledger_of(find_model("Llama-3.1-70B"), tp=2, max_model_len=too_long.longest_request_tokens)
    assert short.outcome == "started"


def test_printed_tokens_and_concurrency_by_version():
    """V0 divided tokens; V1 divides blocks, and prints the blocks of one group until 0.19."""
    options = {"num_gpu_blocks_override": 1_001, "max_model_len": 1_000}
    v0, v1, later = (
        memory_ledger(scenario_of("Llama-3.1-8B", vllm_version=version, **options))
        for version in ("0.7.3", "0.19.0", "0.32.0")
    )
    assert v0.max_concurrency == 1_001 * 16 / 1_000
    assert v1.max_concurrency == later.max_concurrency == 1_001 / 63
    assert (v0.kv_tokens, v1.kv_tokens, later.kv_tokens) == (16_016, 16_016, int(1_001 / 63 * 1_000))
