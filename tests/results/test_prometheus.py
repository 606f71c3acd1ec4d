"""The text of ``/metrics``: read by Prometheus' own parser and by a stricter one, and equal to its own client's."""

import math
import re

import prometheus_client
import pytest
from logs import LEDGER, MS, S, add_step, empty_log, finished, lively_log, small_log
from prometheus_client.parser import text_string_to_metric_families

import simkv
from simkv.results.log import RequestOutcome, RequestRecord, RunLog
from simkv.results.prometheus import exposition
from simkv.results.results import Results

SCENARIO = {
    "model": {"name": "an/LLM"},
    "engine": {"max_model_len": 20_000, "enable_prefix_caching": True},
    "workload": {"ignore_eos": True},
}
LINE = re.compile(r'(vllm:[a-z0-9_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)+)\} ([0-9.e+-]+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
OF_FINISHED = {
    "vllm:request_prompt_tokens", "vllm:request_generation_tokens", "vllm:e2e_request_latency_seconds",
    "vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds", "vllm:request_decode_time_seconds",
    "vllm:request_inference_time_seconds", "vllm:request_time_per_output_token_seconds",
}  # fmt: skip
HISTOGRAMS = OF_FINISHED | {
    "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds",
    "vllm:iteration_tokens_total",
}  # fmt: skip
GAUGES = {
    "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
}  # fmt: skip
COUNTERS = {
    "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:num_preemptions_total",
    "vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total",
}  # fmt: skip


def parse(text):
    """{name: (type, [(sample name, labels, value)])}; every line must be what the format asks for."""
    families = {}
    lines = text.split("\n")
    assert lines.pop() == "", "the last line ends"
    while lines:
        help_line, type_line = lines.pop(0), lines.pop(0)
        word, name, words = help_line.removeprefix("# ").split(" ", 2)
        assert (word, bool(words)) == ("HELP", True)
        kind = type_line.removeprefix(f"# TYPE {name} ")
        assert name not in families
        samples = []
        while lines and not lines[0].startswith("#"):
            match = LINE.fullmatch(lines.pop(0))
            labels = dict(LABEL.findall(match[2]))
            assert list(labels) == sorted(labels)
            endings = ("_bucket", "_count", "_sum") if kind == "histogram" else ("",)
            assert match[1] in [name + ending for ending in endings]
            samples.append((match[1], labels, float(match[3])))
        families[name] = (kind, samples)
    return families


def value(families, name, **labels):
    """The sum over engines of a sample with these labels."""
    family = name.removesuffix("_count").removesuffix("_sum").removesuffix("_bucket")
    _, samples = families[family if family in families else name]
    found = [
        number for sample, given, number in samples if sample == name and labels.items() <= given.items()
    ]
    assert found
    return math.fsum(found)


@pytest.fixture(scope="module")
def real():
    """Two replicas, shared prefixes and preemptions, to the end."""
    scenario = simkv.parse_scenario(
        """
        model: llama-3.1-8b
        hardware: h100_sxm
        parallel: {data_parallel_size: 2}
        engine: {max_model_len: 4096, max_num_seqs: 32, num_gpu_blocks_override: 400}
        workload: {dataset_name: random, num_prompts: 60, random_input_len: 600, random_output_len: 90,
                   random_range_ratio: 0.5, random_prefix_len: 128, request_rate: 40}
        """.replace("\n        ", "\n")
    )
    return simkv.simulate(scenario)


@pytest.mark.parametrize("make", [empty_log, small_log, lively_log])
def test_both_parsers_read_it_and_histograms_add_up(make):
    text = exposition(Results(make(), SCENARIO, LEDGER))
    families = parse(text)
    assert {name for name, (kind, _) in families.items() if kind == "histogram"} == HISTOGRAMS
    assert {name for name, (kind, _) in families.items() if kind == "gauge"} == GAUGES
    assert {name for name, (kind, _) in families.items() if kind == "counter"} == COUNTERS
    theirs = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    ours = {
        (name, tuple(labels.items())): number
        for _, samples in families.values()
        for name, labels, number in samples
    }
    assert theirs == ours
    for name in HISTOGRAMS:
        for engine in {labels["engine"] for _, labels, _ in families[name][1]}:
            samples = [sample for sample in families[name][1] if sample[1]["engine"] == engine]
            buckets = [(labels["le"], number) for sample, labels, number in samples if "le" in labels]
            assert buckets[-1][0] == "+Inf"
            bounds, counts = [float(bound) for bound, _ in buckets], [count for _, count in buckets]
            assert bounds == sorted(set(bounds))
            assert counts == sorted(counts)
            assert [name_ for name_, _, _ in samples[-2:]] == [f"{name}_count", f"{name}_sum"]
            assert samples[-2][2] == counts[-1]


def test_a_small_run_to_the_letter():
    text = exposition(Results(small_log(), SCENARIO, LEDGER))
    for line in (
        'vllm:num_requests_running{engine="0",model_name="an/LLM"} 0.0',
        'vllm:prefix_cache_queries_total{engine="0",model_name="an/LLM"} 200.0',
        'vllm:prefix_cache_hits_total{engine="0",model_name="an/LLM"} 50.0',
        'vllm:prompt_tokens_total{engine="0",model_name="an/LLM"} 200.0',
        'vllm:generation_tokens_total{engine="0",model_name="an/LLM"} 4.0',
        'vllm:request_success_total{engine="0",finished_reason="length",model_name="an/LLM"} 2.0',
        'vllm:request_success_total{engine="0",finished_reason="stop",model_name="an/LLM"} 0.0',
        # 100 ms belongs to the bucket of 0.1; 1,500 ms to that of 2.5
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.08",model_name="an/LLM"} 0.0',
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="an/LLM"} 1.0',
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="1.0",model_name="an/LLM"} 1.0',
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="2.5",model_name="an/LLM"} 2.0',
        'vllm:time_to_first_token_seconds_count{engine="0",model_name="an/LLM"} 2.0',
        'vllm:time_to_first_token_seconds_sum{engine="0",model_name="an/LLM"} 1.6',
        'vllm:inter_token_latency_seconds_sum{engine="0",model_name="an/LLM"} 0.2',
        'vllm:request_time_per_output_token_seconds_sum{engine="0",model_name="an/LLM"} 0.1',
        'vllm:request_prompt_tokens_bucket{engine="0",le="20000.0",model_name="an/LLM"} 2.0',
        # two whole prompts with their first tokens, two single tokens
        'vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="an/LLM"} 2.0',
        'vllm:iteration_tokens_total_bucket{engine="0",le="64.0",model_name="an/LLM"} 2.0',
        'vllm:iteration_tokens_total_bucket{engine="0",le="128.0",model_name="an/LLM"} 4.0',
        'vllm:iteration_tokens_total_sum{engine="0",model_name="an/LLM"} 204.0',
    ):
        assert f"\n{line}\n" in text, line
    assert 'le="50000.0"' not in text  # beyond max_model_len


def test_it_is_what_prometheus_own_client_would_write():
    registry = prometheus_client.CollectorRegistry()
    labels = ["model_name", "engine"]
    log = lively_log(num_steps=50, num_replicas=1)
    ours = exposition(Results(log, SCENARIO | {"engine": {"max_model_len": 2_000_000}}, LEDGER))
    histograms = {
        "vllm:time_to_first_token_seconds": [(r.first_token_ns - r.sent_ns) / S for r in log.requests],
        "vllm:e2e_request_latency_seconds": [(r.finished_ns - r.sent_ns) / S for r in log.requests],
        "vllm:request_prompt_tokens": [r.num_prompt_tokens for r in log.requests],
    }
    for name, observations in histograms.items():
        bounds = [float(label["le"]) for _, label, _ in parse(ours)[name][1] if "le" in label]
        help_text = re.search(f"# HELP {name} (.*)", ours)[1]
        histogram = prometheus_client.Histogram(name, help_text, labels, buckets=bounds, registry=registry)
        for observation in observations:
            histogram.labels("an/LLM", "0").observe(observation)
    counter = prometheus_client.Counter(
        "vllm:prompt_tokens", "Number of prefill tokens processed.", labels, registry=registry
    )
    counter.labels("an/LLM", "0").inc(sum(r.num_prompt_tokens for r in log.requests))
    theirs = prometheus_client.generate_latest(registry).decode()
    assert "1e+06" in theirs
    our_lines = set(ours.splitlines())
    for line in theirs.splitlines():
        if "_created" in line:
            continue  # when a process began
        if "_seconds_sum" in line:  # a running sum rounds at every step
            name, number = line.rsplit(" ", 1)
            ours_sum = next(ours for ours in our_lines if ours.startswith(name))
            assert float(ours_sum.rsplit(" ", 1)[1]) == pytest.approx(float(number), rel=1e-12)
        else:
            assert line in our_lines


def test_it_counts_what_the_summary_counts(real):
    families, summary = parse(exposition(real)), real.summary
    assert {label["engine"] for _, label, _ in families["vllm:num_requests_running"][1]} == {"0", "1"}
    assert summary["num_preemptions"] > 0
    assert summary["prefix_cache_hit_rate"] > 0
    assert value(families, "vllm:num_preemptions_total") == summary["num_preemptions"]
    assert value(families, "vllm:prompt_tokens_total") == summary["total_input_tokens"]
    assert value(families, "vllm:generation_tokens_total") == summary["total_output_tokens"]
    assert value(families, "vllm:request_success_total", finished_reason="length") == summary["completed"]
    hits, queries = (value(families, f"vllm:prefix_cache_{what}_total") for what in ("hits", "queries"))
    assert hits / queries == pytest.approx(summary["prefix_cache_hit_rate"])
    for name in OF_FINISHED:
        assert value(families, f"{name}_count") == summary["completed"]
    for name, key in (
        ("vllm:time_to_first_token_seconds", "mean_ttft_ms"),
        ("vllm:inter_token_latency_seconds", "mean_itl_ms"),
        ("vllm:e2e_request_latency_seconds", "mean_e2el_ms"),
        ("vllm:request_time_per_output_token_seconds", "mean_tpot_ms"),
    ):
        mean_s = value(families, f"{name}_sum") / value(families, f"{name}_count")
        assert mean_s * 1000 == pytest.approx(summary[key])
    parts = ("queue", "prefill", "decode")
    assert math.fsum(
        value(families, f"vllm:request_{part}_time_seconds_sum") for part in parts
    ) == pytest.approx(value(families, "vllm:e2e_request_latency_seconds_sum"))
    assert value(families, "vllm:iteration_tokens_total_sum") == (
        summary["total_input_tokens"] + summary["total_output_tokens"]
    )
    for gauge in GAUGES:
        assert value(families, gauge) == 0


def test_a_loaded_run_says_the_same(real, tmp_path):
    assert exposition(Results.load(real.save(tmp_path / "run"))) == exposition(real)


def test_a_run_that_was_stopped_shows_what_was_on_its_way():
    log = RunLog(num_gpu_blocks=101, num_stages=1, num_replicas=2, is_complete=False)
    log.requests.append(finished(0, 0, 100 * MS, 100 * MS, 1, replica=1))
    log.requests.append(
        RequestRecord(1, 40, 9, 0, sent_ns=0, first_scheduled_ns=0, outcome=RequestOutcome.UNFINISHED)
    )
    log.requests.append(RequestRecord(2, 40, 9, 0, outcome=RequestOutcome.UNFINISHED))
    add_step(log, 0, 100 * MS, replica=0, running=1, waiting=2, free=75)
    add_step(log, 0, 100 * MS, replica=1, running=1, waiting=0, free=50)
    families = parse(exposition(Results(log, SCENARIO, LEDGER)))
    for name, number in (
        ("vllm:num_requests_running", 1), ("vllm:num_requests_waiting", 2), ("vllm:kv_cache_usage_perc", 0.25),
        ("vllm:gpu_cache_usage_perc", 0.25), ("vllm:request_success_total", 0),
    ):  # fmt: skip
        assert value(families, name, engine="0") == number
    for name in GAUGES:
        assert value(families, name, engine="1") == 0
    assert value(families, "vllm:request_success_total", engine="1") == 1


def test_without_a_prefix_cache_nothing_is_looked_up():
    scenario = SCENARIO | {"engine": {"max_model_len": 20_000, "enable_prefix_caching": False}}
    families = parse(exposition(Results(small_log(), scenario, LEDGER)))
    assert value(families, "vllm:prefix_cache_queries_total") == 0
    assert value(families, "vllm:prefix_cache_hits_total") == 0


def test_outputs_that_end_with_a_stop_token_say_so():
    log = RunLog(num_gpu_blocks=101, num_stages=1)
    log.requests.append(finished(0, 0, 1 * MS, 2 * MS, 3))
    cut = finished(1, 0, 1 * MS, 2 * MS, 3)
    cut.max_tokens = 9  # max_model_len came first
    log.requests.append(cut)
    add_step(log, 0, 1 * MS)
    families = parse(exposition(Results(log, SCENARIO | {"workload": {"ignore_eos": False}}, LEDGER)))
    assert value(families, "vllm:request_success_total", finished_reason="stop") == 1
    assert value(families, "vllm:request_success_total", finished_reason="length") == 1


def test_a_name_with_quotes_is_escaped():
    text = exposition(Results(empty_log(), SCENARIO | {"model": {"name": 'a\\b"c\nd'}}, LEDGER))
    assert r'model_name="a\\b\"c\nd"' in text
    names = {
        s.labels["model_name"] for family in text_string_to_metric_families(text) for s in family.samples
    }
    assert names == {'a\\b"c\nd'}
