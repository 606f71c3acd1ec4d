"""Public cases about pipelines (C3, C11 to C16) and what the bubbles say about them."""

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


def simulate(scenario, **overrides):
    """The results of a shipped scenario with sections replaced."""
    settings = [f"{section}={yaml.safe_dump(value)}" for section, value in overrides.items()]
    return simkv.simulate(simkv.load_scenario(scenario, overrides=settings))


def stage_shares(results, state, cause):
    bubbles = results.bubbles
    return bubbles[(bubbles["state"] == state) & (bubbles["cause"] == cause)]["share"].tolist()


def test_c3_layers_of_the_stages_by_version_and_by_hand():
    def layers(num_layers, version, **parallel):
        document = {
            "model": SMALL | {"num_hidden_layers": num_layers},
            "hardware": "h100_sxm",
            "parallel": {"pipeline_parallel_size": 4, **parallel},
            "engine": {"vllm_version": version},
        }
        answer = simkv.plan(simkv.parse_scenario(yaml.safe_dump(document)))
        return [rank["num_layers"] for rank in answer.as_dict()["ranks"]]

    for version in ("0.10.0", "0.32.0"):
        assert layers(61, version) == [15, 15, 16, 15]
        assert layers(94, version) == [23, 24, 24, 23]
    assert layers(61, "0.33.0") == [15, 15, 15, 16]
    assert layers(94, "0.33.0") == [23, 23, 24, 24]
    by_hand = [16, 16, 16, 13]
    for version in ("0.10.0", "0.32.0", "0.33.0"):
        assert layers(61, version, pipeline_layer_partition=by_hand) == by_hand


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
    blocked = run(requests, pp=4, async_scheduling=True, broadcast_wait="always")
    for account in accounts_of(blocked):
        assert account.busy_ns["compute"] / account.wall_ns == pytest.approx(1 / 4, rel=0.01)
        assert account.idle_ns["token_dependency"] / account.wall_ns == pytest.approx(3 / 4, rel=0.01)
    for wait in ("sampled", "never"):
        free = run(requests, pp=4, async_scheduling=True, broadcast_wait=wait)
        for account in accounts_of(free):
            assert account.busy_ns["compute"] / account.wall_ns > 0.98
            assert account.idle_ns["token_dependency"] == 0


@pytest.mark.parametrize(
    ("engine", "utilization"),
    [
        ({"vllm_version": "0.19.0"}, 1 / 4),
        ({"vllm_version": "0.20.0"}, 1.0),
        ({"vllm_version": "0.32.0"}, 1.0),
        ({"vllm_version": "0.19.0", "broadcast_wait": "sampled"}, 1.0),
        ({"vllm_version": "0.32.0", "broadcast_wait": "always"}, 1 / 4),
        ({"vllm_version": "0.19.0", "async_scheduling": False}, 1.0),
    ],
)
def test_c12_in_a_scenario_the_version_decides_unless_told_otherwise(engine, utilization):
    """Sixty-four chunks of one prompt in four stages: filling and draining take 3/67 of the time."""
    results = simulate(
        "quickstart",
        parallel={"pipeline_parallel_size": 4},
        engine={"max_model_len": 40000, "max_num_batched_tokens": 512, "async_scheduling": True, **engine},
        workload={"arrival": "inf", "num_prompts": 1, "prompt_len": 32768, "output_len": 1},
    )
    assert results.summary["mean_stage_utilization"] == pytest.approx(utilization, rel=0.13)
    blocked = sum(stage_shares(results, "idle", "token_dependency")) / 4
    assert blocked == pytest.approx(3 / 4, rel=0.05) if utilization < 1 else blocked == 0


def test_decodes_overlap_only_where_no_broadcast_of_tokens_is_waited_for():
    """Four requests a stage: runner v1's broadcast of each batch's tokens holds up the batch behind it."""
    requests = requests_of([(0, 1, 400)] * 4)
    options = {"pp": 4, "max_num_batched_tokens": 1, "async_scheduling": True}
    for wait, utilization in (("always", 1 / 4), ("sampled", 1 / 4), ("never", 1.0)):
        for account in accounts_of(run(requests, broadcast_wait=wait, **options)):
            assert account.busy_ns["compute"] / account.wall_ns == pytest.approx(utilization, rel=0.02)


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


# The reports are of DeepSeek-V3.1 on H20 GPUs; a 70B model stands for it, whose step time is modelled. H20's
# datasheet has 148 TFLOP/s in bfloat16 and 4 TB/s.
H20 = """
like: h200_sxm
name: h20
gpu:
  name: NVIDIA H20
  num_sms: {value: 78, source: datasheet}
  memory_bytes: {value: 95 GiB, source: datasheet}
  hbm_bandwidth_bytes_per_s: {value: 4 TB/s, source: datasheet}
  peak_flops_per_s:
    bfloat16: {value: 148 TFLOP/s, source: datasheet}
    float16: {value: 148 TFLOP/s, source: datasheet}
    fp8: {value: 296 TFLOP/s, source: datasheet}
    int8: {value: 296 TFLOP/s, source: datasheet}
"""


def prefill_throughput(gpu, tp, pp):
    """Tokens a second of four prompts of 128K in chunks of 12K on nodes of eight."""
    summary = simulate(
        "tp4_pp2_128k",
        model="meta-llama/Llama-3.1-70B-Instruct",
        hardware={"gpu": gpu, "num_gpus_per_node": 8, "num_nodes": 4},
        parallel={"tensor_parallel_size": tp, "pipeline_parallel_size": pp},
        engine={
            "max_model_len": 131072,
            "max_num_batched_tokens": 12288,
            "max_num_seqs": 16,
            "kv_cache_dtype": "fp8",
        },
        workload={"arrival": "inf", "num_prompts": 4, "prompt_len": 131000, "output_len": 1},
    ).summary
    return summary["total_input_tokens"] / summary["duration"]


def test_c13_four_stages_of_eight_against_one_and_against_tensor_parallelism_across_nodes(tmp_path):
    """3.3 times TP8 was reported, and 18 % more than TP32 on the same cards.

    The first holds on H100s as on H20s. The second depends on how fast a GPU is beside its network: TP32 moves
    each layer's activations between the nodes, which takes more than half of a step on H100s and a fifth on
    H20s, with a sixth of the arithmetic.
    """
    (tmp_path / "h20.yaml").write_text(H20)
    for gpu, least, most in (("h100_sxm", 1.15, 2.6), (str(tmp_path / "h20.yaml"), 1.0, 1.4)):
        deep = prefill_throughput(gpu, 8, 4)
        assert 2.8 < deep / prefill_throughput(gpu, 8, 1) < 3.8
        assert least < deep / prefill_throughput(gpu, 32, 1) < most


@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
def test_c16_a_prompt_in_two_batches_in_flight_finishes_once(caching, is_async):
    """PP2: the next chunk is issued while the last is still on the second stage."""
    document = {
        "model": SMALL | {"num_hidden_layers": 32},
        "hardware": "h100_sxm",
        "parallel": {"pipeline_parallel_size": 2},
        "engine": {
            "max_model_len": 20000,
            "max_num_batched_tokens": 512,
            "enable_prefix_caching": caching,
            "async_scheduling": is_async,
        },
        "workload": {
            "arrival": "inf",
            "num_prompts": 2,
            "max_concurrency": 1,
            "prompt_len": 16000,
            "system_prompt_len": 1000,
            "output_len": 3,
        },
    }
    log = run_log(simkv.parse_scenario(yaml.safe_dump(document)), check=True)
    assert [record.outcome for record in log.requests] == [RequestOutcome.FINISHED] * 2
    assert [record.num_output_tokens for record in log.requests] == [3, 3]
    assert (log.requests[1].num_cached_tokens > 0) == caching
    steps = log.steps
    begins, ends = steps.column("start_ns"), steps.column("end_ns")
    assert any(begins[i + 1] < ends[i] for i in range(20))


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
                        "dynamic_chunking": tp == 2,
                        "distributed_executor_backend": "ray" if dp == 2 else "mp",
                        "broadcast_wait": {1: "always", 2: "sampled", 4: "never"}[tp],
                    },
                    "workload": {"arrival": "inf", "num_prompts": 5, "prompt_len": 70, "output_len": 6},
                }
                log = run_log(simkv.parse_scenario(yaml.safe_dump(document)), check=True)
                assert [record.request_id for record in log.requests] == list(range(5))
                assert {record.outcome for record in log.requests} == {RequestOutcome.FINISHED}
                for account in accounts_of(log):
                    assert account.wall_ns == log.end_ns
