"""Dynamic chunks on the clock: what is profiled, and what they do to a long prompt in a pipeline."""

from dataclasses import replace

import pytest

import simkv
from simkv.engine.chunks import profile_chunks
from simkv.errors import ScenarioError
from simkv.step import StepTime
from tests.engine.bubbles import idle_of, run
from tests.engine.worlds import UnitCost, requests_of


class QuadraticCost(UnitCost):
    """A chunk of c tokens over p takes c + (c·p + c²/2) / 1000 microseconds on each stage."""

    def stage_times(self, shape):
        seconds = 1e-6 * shape.num_decodes + sum(
            1e-6 * c * (1 + (p + c / 2) / 1000) for c, p in shape.prefills
        )
        return (StepTime(compute_s=seconds, assumed_input_s=seconds),) * self.num_stages


def test_what_is_profiled_is_what_a_chunk_costs():
    rule = profile_chunks(QuadraticCost(4), 2048, 100_000)
    assert rule.token_s == pytest.approx(1e-6)
    assert rule.pair_s == pytest.approx(1e-9)


@pytest.mark.parametrize("pp", [2, 4, 8])
@pytest.mark.parametrize("is_async", [False, True])
def test_dynamic_chunks_leave_no_imbalance_between_the_chunks_of_a_prompt(pp, is_async):
    """A prompt of 32 K in chunks of 2 K: later ones take far longer, and each stage waits for them."""
    requests = requests_of([(0, 32768, 1)])
    cost = QuadraticCost(pp)
    options = {
        "pp": pp,
        "num_gpu_blocks": 10_000,
        "max_num_batched_tokens": 2048,
        "async_scheduling": is_async,
        "cost": cost,
    }
    fixed = run(requests, **options)
    rule = replace(profile_chunks(cost, 2048, 32768), step_tokens=1)
    dynamic = run(requests, chunk_rule=rule, **options)
    walls = [log.end_ns * pp for log in (fixed, dynamic)]
    idle = [idle_of(log) for log in (fixed, dynamic)]
    assert idle[0]["chunk_imbalance"] / walls[0] > 0.02
    assert idle[1].get("chunk_imbalance", 0) / walls[1] < 0.005
    assert sum(idle[1].values()) / walls[1] < 0.5 * sum(idle[0].values()) / walls[0]
    assert dynamic.end_ns < 0.93 * fixed.end_ns
    # Equal chunks from the beginning: only filling and draining are left, and the last chunk is a rest.
    num_batches = len(dynamic.steps)
    assert sum(idle[1].values()) / walls[1] == pytest.approx((pp - 1) / (num_batches + pp - 1), rel=0.2)


def long_prompt(dynamic, **engine):
    options = {"max_model_len": 131072, "max_num_batched_tokens": 8192, "max_num_seqs": 16, **engine}
    fields = ", ".join(f"{name}: {value}" for name, value in options.items())
    overrides = [
        "hardware=h100_sxm_x8",
        "parallel={tensor_parallel_size: 2, pipeline_parallel_size: 4}",
        f"engine={{{fields}, dynamic_chunking: {dynamic}}}",
        "workload={arrival: inf, num_prompts: 1, prompt_len: 130000, output_len: 1}",
    ]
    return simkv.simulate(simkv.load_scenario("tp4_pp2_128k", overrides=overrides), check=True)


def test_a_scenario_with_dynamic_chunks():
    """A 130K prompt through PP4: less idle, a shorter TTFT, no chunk above the budget; the same every time."""
    fixed, dynamic, again = (long_prompt(dynamic) for dynamic in ("false", "true", "true"))
    assert dynamic.steps["num_tokens"].max() == 8192
    assert dynamic.steps["num_tokens"].iloc[-2] < 5000
    assert dynamic.summary["mean_ttft_ms"] < 0.95 * fixed.summary["mean_ttft_ms"]
    assert dynamic.summary["mean_stage_utilization"] > fixed.summary["mean_stage_utilization"] + 0.05
    assert dynamic.summary["idle_chunk_imbalance_share"] < 0.25 * fixed.summary["idle_chunk_imbalance_share"]
    assert dynamic.summary == again.summary


def test_whole_prompts_cannot_be_cut():
    with pytest.raises(ScenarioError, match="dynamic_chunking wants enable_chunked_prefill: true, got false"):
        long_prompt("true", enable_chunked_prefill="false", max_num_batched_tokens=131072)
