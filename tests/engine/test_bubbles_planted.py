"""Causes planted in shipped hardware: at least 95 % of the idle time they add is put down to them.

The base is a 14B model on four H100s, a stage each, and requests that are there from the start. Its last stage
takes 3 to 12 % longer than the others (head and sampler), and with synchronous scheduling the CPU works before
each batch: none of this may take a share of what was planted.
"""

import json
from functools import cache

import pytest

import simkv
from simkv import run as runs
from simkv.cost import CostModel
from simkv.results.bubbles_history import CAUSES
from tests.engine.bubbles import idle_of

LONG_LIVED = [(0.0, 1024, 96)] * 48  # admitted a few at a time: all stages have batches
BUNCHED = [(0.0, 128, 96)] * 48  # admitted in one batch: they decode together
SLOW_STAGE, SLOW_LINK = 3, 5e-3


class PlantedCost(CostModel):
    """The shipped cost model with a stage that takes a fifth longer, or links of five milliseconds more."""

    slow, delay_s = False, 0.0

    def stage_times(self, shape):
        times = super().stage_times(shape)
        last = times[SLOW_STAGE]
        slowed = last._replace(compute_s=last.compute_s + 0.2 * last.total_s)
        return (*times[:SLOW_STAGE], slowed) if self.slow else times

    def transfers_s(self, shape):
        return tuple(seconds + self.delay_s for seconds in super().transfers_s(shape))


def serve(rows, is_async, **engine):
    workload = {
        "dataset_name": "requests",
        "requests": [
            {"arrival_s": at, "prompt_len": prompt_len, "output_len": output_len}
            for at, prompt_len, output_len in sorted(rows)
        ],
    }
    options = {"max_model_len": 32768, "max_num_batched_tokens": 8192, "async_scheduling": is_async, **engine}
    overrides = {
        "model": "Qwen/Qwen2.5-14B-Instruct",
        "hardware": "h100_sxm_x4",
        "parallel": {"pipeline_parallel_size": 4},
        "engine": options,
        "workload": workload,
    }
    settings = [f"{section}={json.dumps(value)}" for section, value in overrides.items()]
    return runs.run_log(simkv.load_scenario("closed_loop", overrides=settings))


@cache
def base_of(load, is_async):
    return serve({"full": LONG_LIVED, "bunched": BUNCHED}[load], is_async)


def assert_blamed(cause, planted, base):
    """Of the idle time of all stages; others may lose some, as where bunched requests are pulled apart."""
    after, before = idle_of(planted), idle_of(base)
    added = {name: after.get(name, 0) - before.get(name, 0) for name in CAUSES}
    more_ns = sum(added.values())
    assert more_ns > 0.05 * sum(before.values())
    assert added[cause] >= 0.95 * more_ns, added
    assert all(ns <= 0.05 * more_ns for name, ns in added.items() if name != cause), added


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("load", ["full", "bunched"])
@pytest.mark.parametrize("max_num_seqs", [1, 2, 3])
def test_fewer_seats_than_stages(max_num_seqs, load, is_async):
    rows = {"full": LONG_LIVED, "bunched": BUNCHED}[load]
    assert_blamed("max_num_seqs", serve(rows, is_async, max_num_seqs=max_num_seqs), base_of(load, is_async))


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("num_requests_that_fit", [1, 2, 3])
def test_blocks_for_fewer_requests_than_stages(num_requests_that_fit, is_async):
    blocks = 72 * num_requests_that_fit + 1  # 1,120 tokens are 70 blocks of 16
    planted = serve(LONG_LIVED, is_async, num_gpu_blocks_override=blocks, max_model_len=1120)
    assert_blamed("kv_limited", planted, base_of("full", is_async))


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("load", ["full", "bunched"])
def test_one_long_prompt_among_short_ones(load, is_async):
    base = base_of(load, is_async)
    rows = {"full": LONG_LIVED, "bunched": BUNCHED}[load]
    planted = serve([*rows, (0.6 * base.end_ns / 1e9, 30_000, 1)], is_async)
    assert_blamed("chunk_imbalance", planted, base)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("load", ["full", "bunched"])
def test_a_stage_that_takes_a_fifth_longer(load, is_async, monkeypatch):
    base = base_of(load, is_async)
    monkeypatch.setattr(PlantedCost, "slow", True)
    monkeypatch.setattr(runs, "CostModel", PlantedCost)
    planted = serve({"full": LONG_LIVED, "bunched": BUNCHED}[load], is_async)
    assert_blamed("stage_imbalance", planted, base)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("load", ["full", "bunched"])
def test_hand_offs_that_take_five_milliseconds_more(load, is_async, monkeypatch):
    base = base_of(load, is_async)
    monkeypatch.setattr(PlantedCost, "delay_s", SLOW_LINK)
    monkeypatch.setattr(runs, "CostModel", PlantedCost)
    planted = serve({"full": LONG_LIVED, "bunched": BUNCHED}[load], is_async)
    assert_blamed("transfer", planted, base)
