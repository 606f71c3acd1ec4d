import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs import MS, S, empty_log, finished, lively_log, small_log

from simkv.results.log import RequestOutcome, RequestRecord, RunLog
from simkv.results.metrics import INPUT_KINDS, summarize
from simkv.results.series import BUSY_PARTS

VLLM_KEYS = [
    "duration",
    "completed",
    "failed",
    "total_input_tokens",
    "total_output_tokens",
    "request_throughput",
    "request_goodput",
    "output_throughput",
    "total_token_throughput",
    "max_output_tokens_per_s",
    "max_concurrent_requests",
    *(
        f"{statistic}_{metric}_ms"
        for metric in ("ttft", "tpot", "itl", "e2el")
        for statistic in ("mean", "median", "std", "p50", "p90", "p95", "p99")
    ),
]
REQUESTS = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(1, 3000), st.integers(0, 3000), st.integers(1, 20)),
    max_size=20,
)


def log_of(requests):
    """Requests as (sent, to first token, to the end, tokens), in ms."""
    log = RunLog(num_gpu_blocks=101, num_stages=1)
    for request_id, (sent, first, rest, tokens) in enumerate(requests):
        first_ns = (sent + first) * MS
        finished_ns = first_ns + rest * MS if tokens > 1 else first_ns
        log.requests.append(finished(request_id, sent * MS, first_ns, finished_ns, tokens))
    return log


@given(REQUESTS)
def test_latencies_are_what_numpy_makes_of_the_requests(requests):
    summary = summarize(log_of(requests))
    ttft = [first for _, first, _, _ in requests]
    tpot = [rest / (tokens - 1) for _, _, rest, tokens in requests if tokens > 1]
    e2el = [first + (rest if tokens > 1 else 0) for _, first, rest, tokens in requests]
    for name, values in (("ttft", ttft), ("tpot", tpot), ("e2el", e2el)):
        for percentile in (50, 90, 95, 99):
            expected = np.percentile(values or 0, percentile)
            assert summary[f"p{percentile}_{name}_ms"] == pytest.approx(expected)
        assert summary[f"mean_{name}_ms"] == pytest.approx(np.mean(values or 0))
        assert summary[f"std_{name}_ms"] == pytest.approx(np.std(values or 0), abs=1e-6)


@given(REQUESTS)
def test_peak_concurrency_is_that_of_a_walk_over_the_events(requests):
    events = sorted(
        event
        for sent, first, rest, tokens in requests
        for event in ((sent, 1), (sent + first + (rest if tokens > 1 else 0), -1))
    )
    present = peak = 0
    for _, change in events:
        present += change
        peak = max(peak, present)
    assert summarize(log_of(requests))["max_concurrent_requests"] == peak


@given(REQUESTS, st.integers(1, 3000))
def test_goodput_counts_the_requests_that_keep_every_limit(requests, limit_ms):
    summary = summarize(log_of(requests), {"ttft_ms": float(limit_ms), "e2el_ms": None})
    num_good = sum(first <= limit_ms for _, first, _, _ in requests)
    assert summary["request_goodput"] * summary["duration"] == pytest.approx(num_good)


@pytest.mark.parametrize("make", [empty_log, small_log, lively_log])
def test_it_is_plain_json_without_warnings(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        summary = summarize(make())
    assert list(summary)[: len(VLLM_KEYS)] == VLLM_KEYS
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert all(math.isfinite(value) for value in summary.values() if isinstance(value, float))
    assert summarize(make()) == summary


def test_shares_sum_and_requests_are_conserved():
    summary = summarize(lively_log())
    assert sum(summary[f"{part}_time_share"] for part in BUSY_PARTS) == pytest.approx(1)
    assert sum(summary[f"{kind}_input_share"] for kind in INPUT_KINDS) == pytest.approx(1)
    assert all(0 < share <= 1 for share in summary["stage_utilization"])
    assert summary["num_requests"] == summary["completed"] + summary["rejected"] + summary["unfinished"]


def test_a_small_run_by_hand():
    summary = summarize(small_log(), {"ttft_ms": 200.0})
    expected = {
        "duration": 2.0,
        "completed": 2,
        "failed": 1,
        "total_input_tokens": 200,
        "total_output_tokens": 4,
        "request_throughput": 1.0,
        "request_goodput": 0.5,
        "output_throughput": 2.0,
        "total_token_throughput": 102.0,
        "max_output_tokens_per_s": 3.0,
        "max_concurrent_requests": 1,
        "mean_ttft_ms": 800.0,
        "mean_tpot_ms": 100.0,
        "p99_itl_ms": 100.0,
        "mean_e2el_ms": 900.0,
        "num_requests": 3,
        "rejected": 1,
        "unfinished": 0,
        "is_complete": True,
        "num_steps": 4,
        "num_preemptions": 0,
        "num_recomputed_tokens": 7,
        "prefix_cache_hit_rate": 0.25,
        "mean_kv_cache_usage_perc": (0.1 * 0.1 + 0.2 * 0.2 + 1.5 * 1.0) / 2,
        "max_kv_cache_usage_perc": 1.0,
        "mean_num_requests_running": 0.9,
        "max_num_requests_running": 1,
        "mean_num_requests_waiting": 0.75,
        "max_num_requests_waiting": 1,
        "compute_time_s": 0.88,
        "memory_time_share": 0.5,
        "measured_input_share": 0.5,
        "assumed_input_share": 0.5,
        "scheduling_time_s": 0.04,
    }
    assert {key: summary[key] for key in expected} == pytest.approx(expected)
    assert summary["stage_utilization"] == pytest.approx([0.44, 0.44])


def test_goodput_is_null_without_limits():
    assert summarize(small_log())["request_goodput"] is None
    assert summarize(small_log(), {"ttft_ms": None})["request_goodput"] is None


def test_an_output_of_one_token_meets_any_limit_on_tpot():
    log = log_of([(0, 1000, 0, 1), (0, 1000, 4000, 2)])
    assert summarize(log, {"tpot_ms": 1.0})["request_goodput"] == pytest.approx(1 / 5)


def test_a_stopped_run_counts_what_is_unfinished_and_its_time():
    log = small_log()
    log.requests.append(RequestRecord(3, 100, 5, 700 * MS, sent_ns=700 * MS))
    log.is_complete, log.end_ns = False, 4 * S
    summary = summarize(log)
    assert (summary["unfinished"], summary["is_complete"], summary["duration"]) == (1, False, 2.0)
    assert summary["stage_utilization"] == pytest.approx([0.22, 0.22])


def test_a_run_in_which_all_are_refused_has_no_throughput():
    log = empty_log()
    log.requests = [RequestRecord(0, 9, 1, 5, sent_ns=5, outcome=RequestOutcome.REJECTED)]
    summary = summarize(log)
    assert (summary["completed"], summary["failed"], summary["duration"]) == (0, 1, 0.0)
    assert summary["request_throughput"] == summary["mean_ttft_ms"] == 0.0
