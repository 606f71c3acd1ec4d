"""Public cases about pipelines (C11, C12, C14, C15) and what the bubbles say about them."""

import pytest
import yaml

import simkv
from simkv.results.log import RequestOutcome
from simkv.run import run_log
from tests.engine.bubbles import accounts_of, run
from tests.engine.worlds import requests_of

MODEL_14B = "Qwen/Qwen2.5-14B-Instruct"  # 48 layers, 8 KV heads
SMALL = {
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 2048,
    "vocab_size": 32000,
    "max_position_embeddings": 100000,
}


def decode(parallel, max_num_seqs, num_requests):
    """Tokens a second and requests a batch while all of them decode, from the last prefill on."""
    overrides = [
        f"model={MODEL_14B}",
        "hardware=h100_sxm_x4",
        f"parallel={parallel}",
        f"engine={{max_model_len: 4096, max_num_seqs: {max_num_seqs}, max_num_batched_tokens: 8192}}",
        f"workload={{arrival: inf, num_prompts: {num_requests}, prompt_len: 2048, output_len: 150}}",
    ]
    steps = simkv.simulate(simkv.load_scenario("closed_loop", overrides=overrides)).steps
    last = steps.index[steps["num_prefill_tokens"] > 0].max()
    after = (steps["scheduled_ns"] > steps["end_ns"][last]) & (steps["num_running"] == num_requests)
    steady = steps[after].iloc[1:]
    seconds = (steady["end_ns"].iloc[-1] - steady["end_ns"].iloc[0]) / 1e9
    return steady["num_decodes"].iloc[1:].sum() / seconds, steady["num_decodes"].mean()


def test_c11_the_cap_counts_the_requests_of_all_batches_in_flight():
    """100 running requests are 25 a batch under PP4, each of which reads the weights again: well below TP4."""
    wide, wide_batch = decode("{tensor_parallel_size: 4}", 100, 100)
    deep, deep_batch = decode("{pipeline_parallel_size: 4}", 100, 100)
    assert wide_batch == pytest.approx(100, rel=0.01)
    assert deep_batch == pytest.approx(25, rel=0.01)
    assert 0.25 < deep / wide < 0.65  # about a third was reported; a quarter if only the weights counted
    uncapped, uncapped_batch = decode("{pipeline_parallel_size: 4}", 400, 400)
    assert uncapped_batch == pytest.approx(100, rel=0.01)
    assert uncapped > 1.5 * deep


def test_c12_chunks_overlap_only_where_the_token_broadcast_is_not_waited_for():
    """One long prompt under PP4, scheduling ahead: a stage works 1/P of the time, or all of it."""
    requests = requests_of([(0, 3200, 1)])
    blocked = run(requests, pp=4, async_scheduling=True, broadcast_blocks=True)
    free = run(requests, pp=4, async_scheduling=True)
    for account in accounts_of(blocked):
        assert account.busy_ns["compute"] / account.wall_ns == pytest.approx(1 / 4, rel=0.01)
        assert account.idle_ns["token_dependency"] / account.wall_ns == pytest.approx(3 / 4, rel=0.01)
    for account in accounts_of(free):
        assert account.busy_ns["compute"] / account.wall_ns > 0.98
        assert account.idle_ns["token_dependency"] == 0


def test_a_decode_scheduled_ahead_begins_when_its_token_is_known():
    """The next token of a request cannot be computed on the first stage while the last still makes this one."""
    log = run(requests_of([(0, 1, 50)] * 2), pp=4, max_num_batched_tokens=1, async_scheduling=True)
    starts, ends = log.steps.column("start_ns"), log.steps.column("end_ns")
    assert all(starts[step + 2] >= ends[step] for step in range(len(log.steps) - 2))


def test_c14_a_network_of_twice_the_speed_changes_nothing():
    def throughput(gigabytes_per_s):
        bandwidth = f"{{value: {gigabytes_per_s} GB/s, source: C14, mark: assumed}}"
        overrides = [
            "model=meta-llama/Llama-3.1-70B-Instruct",
            f"hardware.network.bandwidth_bytes_per_s={bandwidth}",
            "workload={arrival: inf, num_prompts: 24, prompt_len: 4096, output_len: 64}",
        ]
        return simkv.simulate(simkv.load_scenario("two_nodes", overrides=overrides)).summary

    slow, fast = throughput(50), throughput(100)
    assert fast["output_throughput"] == pytest.approx(slow["output_throughput"], rel=0.01)
    assert slow["idle_transfer_share"] < 0.01


@pytest.mark.parametrize("num_layers", [32, 36, 61])
@pytest.mark.parametrize("pp", [2, 3, 4, 5, 7, 8])
def test_c15_every_shape_ends_and_serves_each_request_once(num_layers, pp):
    for tp in (1, 2, 4):
        for dp in (1, 2):
            for is_async in (False, True):
                document = {
                    "model": SMALL | {"num_hidden_layers": num_layers},
                    "hardware": {"gpu": "h100_sxm", "num_gpus_per_node": 8, "num_nodes": 8},
                    "parallel": {
                        "tensor_parallel_size": tp,
                        "pipeline_parallel_size": pp,
                        "data_parallel_size": dp,
                    },
                    "engine": {
                        "max_model_len": 128,
                        "max_num_seqs": 4,
                        "max_num_batched_tokens": 32,
                        "num_gpu_blocks_override": 16,
                        "async_scheduling": is_async,
                    },
                    "workload": {"arrival": "inf", "num_prompts": 5, "prompt_len": 70, "output_len": 6},
                }
                log = run_log(simkv.parse_scenario(yaml.safe_dump(document)), check=True)
                assert [record.request_id for record in log.requests] == list(range(5))
                assert {record.outcome for record in log.requests} == {RequestOutcome.FINISHED}
                for account in accounts_of(log):
                    assert account.wall_ns == log.end_ns
