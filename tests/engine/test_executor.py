"""What the executor backend adds to each batch on each stage."""

import pytest

import simkv


def steady(backend, *overrides, pp=1, tp=2):
    """A run of four long decodes."""
    settings = [
        f"parallel={{tensor_parallel_size: {tp}, pipeline_parallel_size: {pp}}}",
        "workload={arrival: inf, num_prompts: 4, prompt_len: 500, output_len: 200}",
        f"engine={{max_model_len: 4096{f', distributed_executor_backend: {backend}' if backend else ''}}}",
        *overrides,
    ]
    return simkv.simulate(simkv.load_scenario("one_gpu_32k", overrides=settings))


def stage_ms(results):
    return (results.stages["end_ns"] - results.stages["start_ns"]).mean() / 1e6


def test_ray_adds_to_every_batch_on_every_stage_and_the_others_nothing():
    mp = steady("mp")
    assert stage_ms(steady(None)) == stage_ms(mp)
    for pp in (1, 2):
        added_ms = stage_ms(steady("ray", pp=pp)) - stage_ms(steady("mp", pp=pp))
        assert added_ms == pytest.approx(0.27, abs=1e-3)
    one = {"tp": 1}
    assert (
        stage_ms(steady("uniproc", **one)) == stage_ms(steady("mp", **one)) == stage_ms(steady(None, **one))
    )


def test_what_ray_adds_is_assumed_unless_measured():
    mp, ray = steady("mp"), steady("ray")
    added = ray.stages["assumed_input_ns"].mean() - mp.stages["assumed_input_ns"].mean()
    assert added == pytest.approx(270_000, abs=1_000)
    assert ray.summary["assumed_input_share"] > mp.summary["assumed_input_share"]
    assert ray.summary["host_time_share"] > mp.summary["host_time_share"]
    measured = steady("ray", "hardware.host.executor_ray_s={value: 0.1 ms, source: mine, mark: measured}")
    assert stage_ms(measured) - stage_ms(mp) == pytest.approx(0.1, abs=1e-3)
    assert measured.stages["assumed_input_ns"].mean() == pytest.approx(
        mp.stages["assumed_input_ns"].mean(), abs=1_000
    )
