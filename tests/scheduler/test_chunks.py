"""Chunks of equal time, which vLLM does not have: laws of the rule, and what a scheduler makes of it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.scheduler.chunks import ChunkAllowance, ChunkRule
from tests.scheduler.drive import request_of, scheduled, scheduler_of, step

rules = st.builds(
    ChunkRule,
    st.sampled_from([0.0, 1e-7, 1e-6]),
    st.sampled_from([1e-12, 1e-10, 1e-8]),
    st.sampled_from([1, 4, 64]),
)


def chunks_of(rule, budget, prompt_len):
    """The chunks of one prompt alone."""
    done, chunks = 0, []
    while done < prompt_len:
        chunks.append(ChunkAllowance(budget, budget, rule).cut(min(budget, prompt_len - done), done))
        assert chunks[-1] > 0
        done += chunks[-1]
    return chunks


@given(rule=rules, budget=st.integers(64, 16384), prompt_len=st.integers(1, 120_000))
@settings(max_examples=200, deadline=None)
def test_no_chunk_exceeds_the_budget_or_the_time_of_the_first(rule, budget, prompt_len):
    chunks = chunks_of(rule, budget, prompt_len)
    assert sum(chunks) == prompt_len
    assert max(chunks) <= budget
    whole_s, done = rule.seconds(budget, 0), 0
    for chunk in chunks:
        # the shortest chunk there is may take longer
        assert rule.seconds(chunk, done) <= whole_s * (1 + 1e-6) or chunk <= rule.step_tokens
        done += chunk
    lengths = chunks[:-1]
    assert lengths == sorted(lengths, reverse=True)


@given(rule=rules, budget=st.integers(64, 16384), context=st.integers(0, 120_000))
@settings(max_examples=200, deadline=None)
def test_all_but_a_step_of_the_time_is_used(rule, budget, context):
    chunk = ChunkAllowance(budget, budget, rule).cut(budget, context)
    longer = chunk + rule.step_tokens
    assert chunk == budget or rule.seconds(longer, context) >= rule.seconds(budget, 0) * (1 - 1e-6)


def test_the_formula_is_solved():
    rule = ChunkRule(2e-7, 3e-11)
    for context in (0, 1, 5_000, 500_000):
        tokens = rule.tokens_within(0.01, context)
        assert rule.seconds(tokens, context) == pytest.approx(0.01, rel=1e-12)
    assert ChunkRule(0.0, 0.0).tokens_within(1.0, 10) == float("inf")


def test_without_a_rule_only_the_limit_counts():
    allowance = ChunkAllowance(100, 8192, None)
    assert [allowance.cut(n, 50_000) for n in (1, 99, 100, 101, 10_000)] == [1, 99, 100, 100, 100]


def prompt_and_rule(**options):
    scheduler = scheduler_of(num_gpu_blocks=200, max_num_batched_tokens=32, max_model_len=400, **options)
    scheduler.chunk_rule = ChunkRule(0.0, 1e-6, step_tokens=4)
    return scheduler


def test_the_chunks_of_a_long_prompt_get_shorter():
    scheduler = prompt_and_rule()
    scheduler.add_request(request_of(0, 100))
    # c·p + c²/2 <= 32²/2, in steps of 4
    assert [scheduled(step(scheduler)) for _ in range(5)] == [[(0, n)] for n in (32, 12, 8, 8, 8)]


def test_prompts_in_one_batch_share_the_time_and_decodes_pass():
    scheduler = prompt_and_rule()
    scheduler.add_request(request_of(0, 3))
    step(scheduler)
    scheduler.add_request(request_of(1, 12))
    scheduler.add_request(request_of(2, 100))
    # 12²/2 of 512 are gone: 29.7 tokens would fit, the budget leaves 32 - 1 - 12
    assert scheduled(step(scheduler)) == [(0, 1), (1, 12), (2, 19)]
    # over 19 tokens 18.2 take the time of a first chunk
    assert scheduled(step(scheduler)) == [(0, 1), (1, 1), (2, 16)]


def test_whoever_finds_no_time_left_waits():
    scheduler = prompt_and_rule()
    for request_id in (0, 1):
        scheduler.add_request(request_of(request_id, 100))
    plans = [scheduled(step(scheduler)) for _ in range(5)]
    # 12 tokens over 32 leave the time of 10.6 tokens over none; 8 over 52 that of 3.6 over 16, no whole step.
    assert plans == [[(0, 32)], [(0, 12), (1, 8)], [(0, 8), (1, 8)], [(0, 8)], [(0, 8)]]


def test_off_it_changes_nothing():
    plain, other = scheduler_of(num_gpu_blocks=200), scheduler_of(num_gpu_blocks=200)
    assert other.chunk_rule is None
    for scheduler in (plain, other):
        scheduler.add_request(request_of(0, 100))
    assert [scheduled(step(plain)) for _ in range(6)] == [scheduled(step(other)) for _ in range(6)]
