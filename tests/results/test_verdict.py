# ruff: noqa: E501 - a case a line, its message whole, so that it can be searched for
import pytest

import simkv
from simkv.results.verdict import binds

PLAN = {"kv_tokens": 100_000, "max_num_seqs": 64}
BUSY = {
    "duration": 100.0, "completed": 10, "total_input_tokens": 10_000, "num_preemptions": 0, "num_replicas": 1,
    "max_kv_cache_usage_perc": 0.5, "max_num_requests_running": 8, "max_num_requests_waiting": 0,
    "stage_utilization": [0.3, 0.9], "scheduling_time_s": 5.0,
    "compute_time_share": 0.71, "memory_time_share": 0.2, "comm_time_share": 0.05, "host_time_share": 0.04,
}  # fmt: skip


def shares(**given):
    return {f"{part}_time_share": given.get(part, 0.0) for part in ("compute", "memory", "comm", "host")}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "compute: 71 % of the busy time"),
        (shares(memory=0.6, compute=0.4), "memory bandwidth: 60 % of the busy time"),
        (shares(comm=0.6, compute=0.4), "communication: 60 % of the busy time"),
        (shares(host=0.6, compute=0.4), "host: 60 % of the busy time"),
        ({"num_preemptions": 1}, "KV blocks: 1 preemption"),
        ({"num_preemptions": 1234}, "KV blocks: 1,234 preemptions"),
        (
            {"max_kv_cache_usage_perc": 0.97, "max_num_requests_waiting": 1},
            "KV blocks: 97 % held at the peak, with requests waiting",
        ),
        ({"max_kv_cache_usage_perc": 1.0}, "compute: 71 % of the busy time"),  # full, but nobody waits
        ({"max_kv_cache_usage_perc": 0.93, "max_num_requests_waiting": 1}, "compute: 71 % of the busy time"),
        (
            # the rest of the cache is too small for another prompt
            {"max_kv_cache_usage_perc": 0.93, "max_num_requests_waiting": 1, "total_input_tokens": 100_000},
            "KV blocks: 93 % held at the peak, with requests waiting",
        ),
        (
            {"max_num_requests_running": 64, "max_num_requests_waiting": 12},
            "max_num_seqs: 64 running, up to 12 waiting",
        ),
        ({"max_num_requests_running": 64}, "compute: 71 % of the busy time"),
        (
            {"num_replicas": 2, "max_num_requests_running": 64, "max_num_requests_waiting": 12},
            "compute: 71 % of the busy time",
        ),
        (
            {"stage_utilization": [0.34, 0.2]},
            "idle (too little load): the busiest stage works 34 % of the time",
        ),
        ({"stage_utilization": [0.6]}, "compute: 71 % of the busy time"),
        (
            {"stage_utilization": [0.3], "scheduling_time_s": 45.0},
            "host: scheduling takes 45 % of the time",
        ),
        (
            {"stage_utilization": [0.3, 0.3], "idle_fill_drain_share": 0.5, "idle_no_work_share": 0.2},
            "bubbles (fill and drain): the stages idle for it 50 % of the time",
        ),
        (
            {"stage_utilization": [0.3, 0.3], "idle_fill_drain_share": 0.3, "idle_no_work_share": 0.4},
            "idle (too little load): the busiest stage works 30 % of the time",
        ),
        (
            {"stage_utilization": [0.25, 0.2], "idle_too_few_requests_share": 0.75},
            "idle (too few requests): the busiest stage works 25 % of the time",
        ),
        ({"stage_utilization": [0.4], "idle_kv_limited_share": 0.6}, "KV blocks: the stages idle for it 60 % of the time"),
        ({"stage_utilization": [0.4], "idle_host_share": 0.6}, "host: the stages idle for it 60 % of the time"),
        ({"stage_utilization": [], "duration": 0.0, "completed": 0}, "idle (too little load): the busiest stage works 0 % of the time"),
    ],
)  # fmt: skip
def test_sentences(changes, sentence):
    assert binds(BUSY | changes, PLAN) == sentence


PIPELINE = [
    "parallel={pipeline_parallel_size: 4}",
    "engine={max_model_len: 5000, max_num_batched_tokens: 2048}",
]


@pytest.mark.parametrize(
    ("overrides", "begins"),
    [
        (["workload.request_rate=0.5"], "idle (too little load): "),
        (["workload.request_rate=1000", "engine.max_num_seqs=2"], "max_num_seqs: 2 running"),
        (["workload.request_rate=1000", "engine.num_gpu_blocks_override=40", "engine.max_model_len=512"], "KV blocks: "),
        (["workload.request_rate=1000", "workload.prompt_len=4000"], "compute: "),
        (["workload.request_rate=1000", "workload.output_len=200"], "memory bandwidth: "),
        ([*PIPELINE, "workload={arrival: inf, num_prompts: 1, prompt_len: 4000, output_len: 1}"], "bubbles (fill and drain): "),
        ([*PIPELINE, "workload={arrival: inf, num_prompts: 2, prompt_len: 200, output_len: 200}"], "idle (too few requests): "),
        ([*PIPELINE, "workload={arrival: inf, num_prompts: 4, prompt_len: 200, output_len: 200}"], "bubbles (token dependency): "),
    ],
)  # fmt: skip
def test_what_it_says_of_runs(overrides, begins):
    scenario = simkv.parse_scenario(
        """
model: llama-3.1-8b
hardware: h100_sxm
engine: {max_model_len: 5000}
workload: {request_rate: 5, num_prompts: 20, prompt_len: 200, output_len: 4}
""",
        overrides,
    )
    assert binds(simkv.simulate(scenario).summary, simkv.plan(scenario).as_dict()).startswith(begins)
