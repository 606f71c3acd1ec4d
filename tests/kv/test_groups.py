"""Block groups of hybrid models: formula F of the reference, and public logs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.kv.groups import KvGroups, kv_groups, linear_state_bytes
from simkv.kv.ledger import memory_ledger
from simkv.load.model import find_model, shipped_models
from tests.cost.worlds import scenario_of

HYBRIDS = [name for name, model in shipped_models().items() if model.is_hybrid]
SLIDING = [name for name in HYBRIDS if "linear_attention" not in find_model(name).layer_types]


@pytest.mark.parametrize("name", HYBRIDS)
def test_every_layer_is_in_one_group(name):
    model = find_model(name)
    groups = kv_groups(scenario_of(name, "h100_sxm_x8", 8))
    assert set(groups.kinds) == set(model.layer_types)
    for kind in groups.kinds:
        assert groups.kinds.count(kind) * groups.layers_per_stage[0] >= model.layer_types.count(kind)
    assert len(groups.kinds) * groups.layers_per_stage[0] < 1.25 * model.num_hidden_layers + 10


@pytest.mark.parametrize("name", SLIDING)
@given(length=st.integers(1, 200_000), tokens=st.sampled_from((512, 2_048, 8_192)))
def test_formula_f(name, length, tokens):
    """groups = 1 + ceil(other / full); need = ceil(L/16) + (groups − 1) · [ceil(min(w − 1 + T, L)/16) + 1]."""
    model = find_model(name)
    num_full = model.layer_types.count("full_attention")
    num_other = model.num_hidden_layers - num_full
    groups = kv_groups(scenario_of(name, max_num_batched_tokens=tokens, max_num_seqs=64))
    assert len(groups.kinds) == 1 + -(-num_other // num_full)
    held = -(-min(model.sliding_window - 1 + tokens, length) // 16)
    held += "chunked_attention" not in model.layer_types
    assert groups.blocks_of(length) == -(-length // 16) + (len(groups.kinds) - 1) * held


@given(num_blocks=st.integers(0, 5_000), dcp=st.sampled_from((1, 2, 8)))
def test_the_longest_request_fits_and_one_token_more_does_not(num_blocks, dcp):
    groups = KvGroups(("full_attention", "sliding_attention"), (8,), 16, dcp, 1_024, 2_048)
    longest = groups.longest_request(num_blocks)
    assert longest == 0 or groups.blocks_of(longest) <= num_blocks
    assert groups.blocks_of(longest + 1) > num_blocks


@pytest.mark.parametrize(
    ("model", "tp", "blocks", "tokens", "concurrency"),
    [
        ("google/gemma-2-27b-it", 1, 7_335, 58_672, 7.16),
        ("google/gemma-3-12b-it", 1, 48_867, 130_304, 15.88),
        ("google/gemma-3-27b-it", 1, 15_997, 36_560, 4.46),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 4, 91_495, 365_968, 44.68),
        ("openai/gpt-oss-20b", 2, 323_972, 2_591_776, 316.07),
    ],
)
def test_tokens_and_concurrency_that_follow_from_logged_blocks(model, tp, blocks, tokens, concurrency):
    ledger = memory_ledger(scenario_of(model, tp=tp, vllm_version="0.19.0", max_model_len=8_192))
    assert ledger.tokens_of(blocks) == tokens
    assert round(ledger.concurrency_of(blocks), 2) == concurrency


def test_a_stage_holds_the_most_layers_that_a_group_has_there():
    """Gemma 2 27B: 23 sliding and 23 full layers in turn, over 4 stages of 11 or 12."""
    groups = kv_groups(scenario_of("google/gemma-2-27b-it", pp=4))
    assert groups.kinds == ("sliding_attention", "full_attention")
    assert groups.layers_per_stage == (6, 6, 6, 6)


def test_before_groups_every_layer_was_full():
    groups = kv_groups(scenario_of("google/gemma-2-27b-it", vllm_version="0.9.2"))
    assert (groups.kinds, groups.layers_per_stage) == (("full_attention",), (46,))


def test_a_block_holds_the_state_of_a_linear_layer():
    """As logged with 3 speculative tokens (0.25): blocks of 1,072 and 800 tokens."""
    for name, per_token, state, block in (
        ("Qwen/Qwen3.5-35B-A3B", 2 * 2 * 256 * 2, 2_195_456, 1_072),
        ("Qwen/Qwen3.5-27B", 2 * 4 * 256 * 2, 3_268_608, 800),
    ):
        assert linear_state_bytes(find_model(name), 1, num_speculative_tokens=3) == state
        assert -(-state // (16 * per_token)) * 16 == block
    groups = kv_groups(scenario_of("Qwen/Qwen3.5-35B-A3B"))
    assert (groups.block_size, groups.layers_per_stage) == (1_056, (10,))
    assert groups.blocks_of(262_144) == -(-262_144 // 1_056) + 3
