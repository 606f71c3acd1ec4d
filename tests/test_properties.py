"""Random scenarios, run whole with every audit on: each ends, each request once, each rule kept.

A failing example is printed as a scenario file that ``simkv run FILE --check`` replays.
"""

from contextlib import suppress

import pytest
import yaml
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import simkv
from simkv.errors import SimkvError
from simkv.results.log import RequestOutcome
from simkv.run import run_log

MODEL = {
    "num_hidden_layers": 36,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 2048,
    "vocab_size": 32000,
    "max_position_embeddings": 100000,
}


@st.composite
def scenarios(draw):
    """A small model in a small cache on an eight-GPU node; loads that queue, share, preempt and starve."""
    block_size = draw(st.sampled_from([1, 4, 16]))
    max_num_seqs = draw(st.integers(1, 6))
    budget = draw(st.integers(max_num_seqs, 64))
    max_model_len = draw(st.integers(8, 160))
    enough = -(-max_model_len // block_size) + 1  # a server starts only if one request fits
    prefix_len = draw(st.sampled_from([0, 0, 5, 40]))
    requests = []
    for _ in range(draw(st.integers(1, 12))):
        prompt_len = draw(st.integers(1, max_model_len + 4))
        requests.append({
            "arrival_s": draw(st.sampled_from([0.0, 0.0, 0.002, 0.01, 0.05])),
            "prompt_len": prompt_len,
            "output_len": draw(st.integers(1, 40)),
            "prefix_len": min(prefix_len, prompt_len),
            "priority": draw(st.integers(0, 2)),
        })  # fmt: skip
    tp = draw(st.sampled_from([1, 2, 4]))
    return {
        "model": MODEL,
        "hardware": {"gpu": "h100_sxm", "num_gpus_per_node": 8, "num_nodes": 9},
        "parallel": {
            "tensor_parallel_size": tp,
            "pipeline_parallel_size": draw(st.sampled_from([1, 1, 2, 3, 4, 5, 7, 8, 9, 18])),
            "data_parallel_size": draw(st.sampled_from([1, 1, 2])) if tp < 4 else 1,
        },
        "engine": {
            "max_model_len": max_model_len,
            "max_num_seqs": max_num_seqs,
            "max_num_batched_tokens": budget,
            "block_size": block_size,
            "num_gpu_blocks_override": enough + draw(st.integers(0, 40)),
            "enable_prefix_caching": draw(st.booleans()),
            "async_scheduling": draw(st.booleans()),
            "scheduling_policy": draw(st.sampled_from(["fcfs", "priority"])),
            "scheduler_reserve_full_isl": draw(st.booleans()),
            "watermark": draw(st.sampled_from([0.0, 0.0, 0.1])),
            "long_prefill_token_threshold": draw(st.sampled_from([0, 0, 3])),
            "long_prefill_token_threshold_adaptive": draw(st.booleans()),
        },
        "workload": {
            "dataset_name": "requests",
            "requests": requests,
            "max_concurrency": draw(st.sampled_from([None, None, 2])),
            "ignore_eos": draw(st.booleans()),
        },
    }


def assert_kept(scenario, log):
    """The laws of DESIGN: exactly once, order of times, budget, hits, and no recomputation of what fits."""
    engine = scenario.resolved_engine
    for record in log.requests:
        if record.num_prompt_tokens >= engine.max_model_len:
            assert record.outcome is RequestOutcome.REJECTED
            continue
        assert record.outcome is RequestOutcome.FINISHED
        room = engine.max_model_len - record.num_prompt_tokens
        assert record.num_output_tokens == min(record.max_tokens, room)
        assert record.arrival_ns <= record.sent_ns <= record.first_scheduled_ns
        assert record.first_scheduled_ns <= record.first_token_ns <= record.finished_ns
        most = (record.num_prompt_tokens - 1) // engine.block_size * engine.block_size
        assert record.num_cached_tokens <= most
        if not engine.enable_prefix_caching:
            assert record.num_cached_tokens == 0
        if record.num_preemptions == 0:
            assert record.num_recomputed_tokens == 0
    assert max(log.steps.column("num_tokens"), default=0) <= engine.max_num_batched_tokens
    assert max(log.steps.column("num_running"), default=0) <= engine.max_num_seqs
    assert min(log.steps.column("num_tokens"), default=1) > 0  # an empty batch is not a step
    # Work: each token but the last is computed once, but for cached, recomputed and discarded ones.
    served = [record for record in log.requests if record.outcome is RequestOutcome.FINISHED]
    wanted = sum(r.num_prompt_tokens + r.num_output_tokens - 1 for r in served)
    done = sum(log.steps.column("num_tokens")) - sum(r.num_recomputed_tokens for r in served)
    saved = sum(r.num_cached_tokens for r in served)
    ran_ahead = len(served) if engine.async_scheduling and not scenario.workload.ignore_eos else 0
    num_preemptions = sum(r.num_preemptions for r in served)
    if num_preemptions == 0:
        assert wanted - saved <= done <= wanted - saved + ran_ahead


def check(raw):
    text = yaml.safe_dump(raw, sort_keys=False, default_flow_style=None)
    note(f"replay with: simkv run FILE --check\n{text}")
    scenario = simkv.parse_scenario(text)
    if scenario.resolved_engine.scheduler_reserve_full_isl:
        assert_kept(scenario, run_log(scenario, check=True))
        return
    # Admitted on their first chunks, prompts may preempt each other for ever, as in a real server.
    with suppress(SimkvError):
        assert_kept(scenario, run_log(scenario, check=True))


@given(scenarios())
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_scenario_keeps_the_laws(raw):
    check(raw)


@pytest.mark.slow
@given(scenarios())
@settings(max_examples=20_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_scenario_keeps_the_laws_for_long(raw):
    check(raw)


def test_a_printed_example_replays_from_its_file(tmp_path):
    """What `check` prints is a scenario file: loading it gives the same run."""
    raw = {
        "model": MODEL,
        "hardware": "h100_sxm_x2",
        "parallel": {"tensor_parallel_size": 1, "pipeline_parallel_size": 2},
        "engine": {"max_model_len": 60, "max_num_seqs": 2, "num_gpu_blocks_override": 9},
        "workload": {"dataset_name": "requests", "requests": [{"prompt_len": 33, "output_len": 4}] * 3},
    }
    text = yaml.safe_dump(raw, sort_keys=False, default_flow_style=None)
    path = tmp_path / "example.yaml"
    path.write_text(text, encoding="utf-8")
    first = run_log(simkv.parse_scenario(text), check=True)
    second = run_log(simkv.load_scenario(path), check=True)
    assert first.steps.columns() == second.steps.columns()
    assert first.requests == second.requests
