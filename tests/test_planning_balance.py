"""`plan --balance` against every partition there is, and what it says."""

import json
from itertools import combinations, pairwise

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import simkv
from simkv.cli import app
from simkv.cost import CostModel
from simkv.kv.budget import memory_ledger
from simkv.load.calibration import kernel_points
from simkv.planning.balance import balance, best_partition
from simkv.planning.balance_table import format_balance

SMALL = {
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 4096,
    "vocab_size": 128256,
    "max_position_embeddings": 100000,
}
MIXTURE = SMALL | {"num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 4096}

HYBRID = SMALL | {"layer_types": ["sliding_attention", "full_attention"] * 4, "sliding_window": 1024}


def partitions(num_layers, num_stages):
    """Every way to cut layers into stages of at least one."""
    for cuts in combinations(range(1, num_layers), num_stages - 1):
        yield tuple(b - a for a, b in pairwise((0, *cuts, num_layers)))


def scenario_of(num_layers, pp, model=SMALL, **engine):
    document = {
        "model": model | {"num_hidden_layers": num_layers},
        "hardware": "h100_sxm",
        "parallel": {"pipeline_parallel_size": pp},
        "engine": {"max_model_len": 32768, "max_num_seqs": 128} | engine,
    }
    return simkv.parse_scenario(yaml.safe_dump(document))


def with_layers(scenario, partition):
    return scenario.replace(parallel={"pipeline_layer_partition": partition})


@given(data=st.data(), num_layers=st.integers(1, 9), num_stages=st.integers(1, 5))
@settings(max_examples=150, deadline=None)
def test_the_best_partition_is_the_best_of_all(data, num_layers, num_stages):
    """Whatever a stage's figure depends on: which stage, where it begins, how many layers it has."""
    num_stages = min(num_stages, num_layers)
    every = list(partitions(num_layers, num_stages))
    now = data.draw(st.sampled_from(every))
    values = {}

    def value(stage, first, layers):
        key = (stage, first, layers)
        if key not in values:
            values[key] = data.draw(st.integers(0, 6))
        return values[key]

    def worst(partition):
        firsts = [sum(partition[:stage]) for stage in range(num_stages)]
        return max(value(stage, firsts[stage], layers) for stage, layers in enumerate(partition))

    found = best_partition(num_layers, now, value)

    def moves(partition):
        return sum(abs(a - b) for a, b in zip(partition, now, strict=True))

    assert worst(found) == min(map(worst, every))
    assert moves(found) == min(moves(each) for each in every if worst(each) == worst(found))


@pytest.mark.parametrize(("num_layers", "pp", "eager"), [(6, 2, False), (6, 2, True), (6, 3, False)])
def test_stage_times_against_the_cost_model_of_every_partition(num_layers, pp, eager):
    scenario = scenario_of(num_layers, pp, enforce_eager=eager)
    answer = balance(scenario)
    points = kernel_points(scenario.resolved_hardware)
    for goal, shape in (("decode", answer.decode), ("prefill", answer.prefill)):
        slowest = {}
        for partition in partitions(num_layers, pp):
            times = CostModel(with_layers(scenario, partition), points).stage_times(shape)
            slowest[partition] = max(time.total_s for time in times)
        best = answer.best[goal]
        assert best.worst(goal) == pytest.approx(min(slowest.values()), rel=1e-12)
        assert best.worst(goal) == pytest.approx(slowest[best.layers], rel=1e-12)
        assert answer.now.worst(goal) == pytest.approx(slowest[scenario.layers_per_stage], rel=1e-12)


@pytest.mark.parametrize(
    "model",
    [SMALL, MIXTURE | {"first_k_dense_replace": 3}, HYBRID],
    ids=["dense", "dense first", "hybrid"],
)
@pytest.mark.parametrize("pp", [2, 3, 4])
def test_blocks_against_the_ledger_of_every_partition(model, pp):
    scenario = scenario_of(8, pp, model)
    best = balance(scenario).best["blocks"]
    blocks = {each: memory_ledger(with_layers(scenario, each)).num_gpu_blocks for each in partitions(8, pp)}
    assert best.worst("blocks") == blocks[best.layers] == max(blocks.values())


def test_a_large_vocabulary_takes_layers_off_the_last_stage():
    """Its head takes the time of several layers; the gain is what the slowest stage gets faster."""
    answer = balance(scenario_of(16, 4, max_model_len=512))
    best = answer.best["decode"]
    assert best.layers[-1] < 4
    assert best.gain("decode", answer.now) == pytest.approx(max(answer.now.decode_s) / max(best.decode_s) - 1)
    text = "\n".join(format_balance(answer))
    assert f"pipeline_layer_partition: [{', '.join(map(str, best.layers))}]  # +" in text


def test_what_cannot_be_bettered_stays():
    scenario = scenario_of(16, 4, max_model_len=512)
    best = balance(scenario).best["decode"].layers
    again = balance(with_layers(scenario, best))
    assert again.best["decode"].layers == best
    assert "nothing gained by any other partition" in "\n".join(format_balance(again))


def test_partitions_that_start_are_preferred_to_faster_ones():
    """Stages without room for a request of max_model_len do not count; if none has room, it says so."""
    scenario = simkv.load_scenario(
        "two_nodes",
        overrides=[
            "parallel={tensor_parallel_size: 4, pipeline_parallel_size: 4, "
            "pipeline_layer_partition: [90, 12, 12, 12]}",
        ],
    )
    answer = balance(scenario)
    assert not answer.now.fits
    assert all(layout.fits for layout in answer.best.values())
    assert "# starts, best for decode" in "\n".join(format_balance(answer))
    nowhere = simkv.load_scenario("two_nodes", overrides=["parallel={pipeline_parallel_size: 2}"])
    assert "None of these partitions starts." in "\n".join(format_balance(balance(nowhere)))


def test_models_whose_step_time_is_not_modelled_are_weighed_by_blocks_alone():
    answer = balance(scenario_of(8, 2, MIXTURE | {"first_k_dense_replace": 3}))
    assert list(answer.best) == ["blocks"]
    assert "no stage times: model: " in "\n".join(format_balance(answer))


def test_a_given_number_of_blocks_is_not_bettered():
    assert list(balance(scenario_of(8, 2, num_gpu_blocks_override=3000)).best) == ["decode", "prefill"]


def test_command_line(tmp_path):
    path = tmp_path / "deep.yaml"
    path.write_text(
        "model: deepseek-ai/DeepSeek-V3\nhardware: h100_sxm_2x8\n"
        "parallel: {tensor_parallel_size: 4, pipeline_parallel_size: 4}\nengine: {max_model_len: 32768}\n"
    )
    runner = CliRunner()
    done = runner.invoke(app, ["plan", str(path), "--balance"])
    assert done.exit_code == 0
    assert "Balance of 61 layers over 4 stages" in done.stdout
    assert "pipeline_layer_partition: [17, 15, 15, 14]" in done.stdout
    data = json.loads(runner.invoke(app, ["plan", str(path), "--balance", "--json"]).stdout)
    best = data["balance"]["best"]["blocks"]
    assert best["pipeline_layer_partition"] == [17, 15, 15, 14]
    assert min(best["num_gpu_blocks"]) == pytest.approx(
        data["num_gpu_blocks"] * (1 + best["gains"]["blocks"]), rel=1e-9
    )
    one_stage = runner.invoke(app, ["plan", "one_gpu_32k", "--balance"])
    assert "one stage, nothing to balance" in one_stage.stdout
    refused = runner.invoke(app, ["plan", str(path), "--balance", "--vary", "engine.block_size=16,32"])
    assert refused.exit_code == 2


def test_what_is_promised_for_decode_comes_out_in_a_run():
    """Sixty-four requests that decode for long, eight a batch, on eight full stages."""

    def throughput(partition):
        scenario = simkv.load_scenario(
            "one_gpu_32k",
            overrides=[
                "hardware=h100_sxm_x8",
                f"parallel={{pipeline_parallel_size: 8, pipeline_layer_partition: {list(partition)}}}",
                "engine={max_model_len: 4096, max_num_seqs: 64, max_num_batched_tokens: 1024}",
                "workload={arrival: inf, num_prompts: 64, prompt_len: 1020, output_len: 1000}",
            ],
        )
        steps = simkv.simulate(scenario).steps
        steady = steps[(steps["num_prefill_tokens"] == 0) & (steps["num_running"] == 64)]
        seconds = (steady["end_ns"].iloc[-1] - steady["end_ns"].iloc[0]) / 1e9
        return balance(scenario), steady["num_decodes"].iloc[1:].sum() / seconds

    answer, before = throughput([4] * 8)
    best = answer.best["decode"]
    _, after = throughput(best.layers)
    assert best.gain("decode", answer.now) > 0.05
    assert after / before - 1 == pytest.approx(best.gain("decode", answer.now), rel=0.1)
