import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.errors import ScenarioError, TraceError
from simkv.spec.workload import WorkloadSpec
from simkv.workload import RequestSpec, RequestStream, Segment, Trace, generate
from simkv.workload.csv_traces import read_azure

DATA = Path(__file__).parents[1] / "data"
SAMPLE = "azure_sample_timestamp.csv"
VOCAB_SIZE = 1000

LENGTHS = st.one_of(
    st.integers(1, 5000),
    st.just({"uniform": {"min": 5, "max": 900}}),
    st.just({"lognormal": {"median": 300.0, "p99": 2000.0, "max": 4000}}),
)
WORKLOADS = st.one_of(
    st.fixed_dictionaries({"prompt_len": LENGTHS, "output_len": LENGTHS}),
    st.fixed_dictionaries(
        {"dataset_name": st.just("random"), "random_range_ratio": st.floats(0, 0.9)},
        optional={"random_prefix_len": st.integers(0, 100)},
    ),
).flatmap(
    lambda fields: st.fixed_dictionaries(
        {"num_prompts": st.integers(1, 30), "request_rate": st.none() | st.floats(0.1, 100)}
    ).map(lambda more: WorkloadSpec.model_validate(fields | more))
)
AZURE = WorkloadSpec(dataset_name="azure", dataset_path=SAMPLE)


def ranges(request: RequestSpec) -> list[Segment]:
    return [*request.prompt, Segment(request.output_start, request.max_tokens)]


def overlap(segments: list[Segment]) -> bool:
    ordered = sorted(segments)
    return any(a.start + a.length > b.start for a, b in pairwise(ordered))


def requests_of(workload: WorkloadSpec, seed: int = 0, base_dir: Path | None = None) -> list[RequestSpec]:
    return list(generate(workload, VOCAB_SIZE, seed, base_dir))


@given(WORKLOADS, st.integers(0, 2**64))
def test_same_seed_same_requests(workload, seed):
    stream = generate(workload, VOCAB_SIZE, seed)
    requests = list(stream)
    assert list(stream) == requests  # again and again
    assert stream.num_requests == len(stream) == len(requests)
    assert requests_of(workload, seed) == requests


@given(WORKLOADS | st.just(AZURE), st.integers(0, 2**64))
def test_requests_are_numbered_in_order_of_arrival_and_whole(workload, seed):
    requests = requests_of(workload, seed, DATA)
    assert [r.request_id for r in requests] == list(range(workload.num_prompts or 20))
    assert all(a.arrival_ns <= b.arrival_ns for a, b in pairwise(requests))
    for request in requests:
        assert request.num_prompt_tokens >= 1
        assert request.max_tokens >= 1
        assert request.priority == 0
        assert all(segment.length >= 1 and segment.start >= 0 for segment in request.prompt)


@given(WORKLOADS | st.just(AZURE), st.integers(0, 2**32))
def test_nothing_is_shared_unless_the_data_set_means_it(workload, seed):
    requests = requests_of(workload, seed, DATA)
    outputs = [Segment(r.output_start, r.max_tokens) for r in requests]
    if workload.dataset_name == "random":
        prompts = {segment for r in requests for segment in r.prompt}
        assert not overlap(outputs)
        assert max(s.start + s.length for s in prompts) <= min(s.start for s in outputs)
    else:
        assert not overlap([segment for r in requests for segment in ranges(r)])


@given(st.integers(0, 2**32))
def test_streams_do_not_disturb_each_other(seed):
    uniform = {"uniform": {"min": 1, "max": 10_000}}

    def columns(**fields) -> tuple[list[int], list[int], list[int]]:
        workload = WorkloadSpec.model_validate(
            {"prompt_len": uniform, "output_len": uniform, "num_prompts": 20, "request_rate": 1.0, **fields}
        )
        requests = requests_of(workload, seed)
        return (
            [r.arrival_ns for r in requests],
            [r.num_prompt_tokens for r in requests],
            [r.max_tokens for r in requests],
        )

    arrivals, prompt_lens, output_lens = columns()
    assert prompt_lens != output_lens
    assert columns(arrival="inf", request_rate=None)[1:] == (prompt_lens, output_lens)
    assert columns(prompt_len=7)[::2] == (arrivals, output_lens)
    assert columns(output_len=7)[:2] == (arrivals, prompt_lens)


def test_random_has_the_arrival_times_of_vllm_bench_serve():
    workload = WorkloadSpec(dataset_name="random", request_rate=2.0, num_prompts=5)
    np.random.seed(3)
    sums = np.cumsum([np.random.gamma(shape=1.0, scale=0.5) for _ in range(5)])
    expected = sums * (2.5 / sums[-1]) * 1e9
    assert [r.arrival_ns for r in generate(workload, VOCAB_SIZE, 3)] == pytest.approx(expected, abs=1)


def test_one_thousand_requests_unless_told_otherwise():
    assert len(generate(WorkloadSpec(dataset_name="random"), VOCAB_SIZE, 0)) == 1000


def test_num_prompts_cuts_a_trace_but_does_not_stretch_it():
    whole = requests_of(AZURE, 0, DATA)
    assert requests_of(AZURE.replace(num_prompts=7), 0, DATA) == whole[:7]
    assert requests_of(AZURE.replace(num_prompts=70), 0, DATA) == whole


def test_a_trace_keeps_its_times_and_lengths_whatever_the_seed():
    rows = [(r.arrival_ns, r.num_prompt_tokens, r.max_tokens) for r in generate(AZURE, VOCAB_SIZE, 5, DATA)]
    assert rows == [row[:3] for row in Trace(DATA / SAMPLE, read_azure)]


def test_dataset_path_is_looked_for_beside_the_scenario_then_in_the_working_directory(tmp_path, monkeypatch):
    beside, here = tmp_path / "scenarios", tmp_path / "here"
    for folder in (beside, here):
        folder.mkdir()
    monkeypatch.chdir(here)
    workload = WorkloadSpec(dataset_name="azure", dataset_path="t.csv")
    with pytest.raises(TraceError) as caught:
        generate(workload, VOCAB_SIZE, 0, beside)
    assert str(caught.value) == f"t.csv: wanted an existing trace file, got none in {beside} or {here}"
    with pytest.raises(TraceError) as caught:
        generate(workload, VOCAB_SIZE, 0)
    assert str(caught.value) == f"t.csv: wanted an existing trace file, got none in {here}"

    header = "arrived_at,num_prefill_tokens,num_decode_tokens\n"
    (here / "t.csv").write_text(header + "0,1,1\n")
    assert len(generate(workload, VOCAB_SIZE, 0, beside)) == 1
    (beside / "t.csv").write_text(header + "0,1,1\n" * 2)
    assert len(generate(workload, VOCAB_SIZE, 0, beside)) == 2

    absolute = workload.replace(dataset_path=str(here / "t.csv"))
    assert len(generate(absolute, VOCAB_SIZE, 0, beside)) == 1
    missing = str(tmp_path / "missing.csv")
    with pytest.raises(TraceError) as caught:
        generate(workload.replace(dataset_path=missing), VOCAB_SIZE, 0, beside)
    assert str(caught.value) == f"{missing}: wanted an existing trace file, got none"


# shared system prompts, faster traces


@given(st.integers(1, 500), st.integers(0, 2**32))
def test_a_system_prompt_comes_before_the_prompt_and_is_the_same_for_all(length, seed):
    fields = {"prompt_len": {"uniform": {"min": 1, "max": 900}}, "output_len": 5, "num_prompts": 20}
    without = requests_of(WorkloadSpec.model_validate(fields), seed)
    requests = requests_of(WorkloadSpec.model_validate(fields | {"system_prompt_len": length}), seed)
    assert {r.prompt[0] for r in requests} == {Segment(0, length)}
    assert [r.num_prompt_tokens - length for r in requests] == [r.num_prompt_tokens for r in without]
    assert not overlap([Segment(0, length), *(s for r in requests for s in ranges(r)[1:])])


@given(st.floats(1e-3, 1e3))
def test_a_scaled_trace_is_the_same_but_faster(scale):
    whole, scaled = requests_of(AZURE, 0, DATA), requests_of(AZURE.replace(request_rate_scale=scale), 0, DATA)
    for a, b in zip(whole, scaled, strict=True):
        assert b.arrival_ns == pytest.approx(a.arrival_ns / scale, abs=1)
        assert b._replace(arrival_ns=a.arrival_ns) == a


def test_requests_written_out_can_be_scaled_too():
    given_ = [{"arrival_s": 3.0, "prompt_len": 1, "output_len": 1}]
    workload = WorkloadSpec.model_validate(
        {"dataset_name": "requests", "requests": given_, "request_rate_scale": 2.0}
    )
    assert [r.arrival_ns for r in requests_of(workload)] == [1_500_000_000]


def test_a_trace_cannot_be_slowed_down_beyond_all_bounds(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n5e8,1,1\n")
    workload = WorkloadSpec(dataset_name="azure", dataset_path=str(path), request_rate_scale=0.1)
    with pytest.raises(ScenarioError) as caught:
        generate(workload, VOCAB_SIZE, 0)
    assert str(caught.value) == (
        "workload.request_rate_scale: 0.1 makes 5e+08 seconds longer than 1e+09; raise it"
    )


# memory


def mooncake_row(i: int) -> str:
    ids = ", ".join(map(str, range(i * 3, i * 3 + 4)))
    return f'{{"timestamp": {i}, "input_length": 2000, "output_length": 9, "hash_ids": [{ids}]}}\n'


def burstgpt_row(i: int) -> str:
    return (
        f"{i},GPT-4,{i % 3000 + 1},100,0,API log\n"
        if i
        else "Timestamp,Model,Request tokens,Response tokens,x,y\n"
    )


def peak_mib_while_iterating(path: Path, name: str, num_rows: int) -> float:
    """Write a trace, check it, and read it as a simulation does, keeping nothing."""
    with path.open("w") as file:
        file.writelines(map({"mooncake": mooncake_row, "burstgpt": burstgpt_row}[name], range(num_rows)))
    tracemalloc.start()
    stream = generate(WorkloadSpec(dataset_name=name, dataset_path=str(path)), VOCAB_SIZE, 0)
    assert stream.num_requests == sum(1 for _ in stream) >= num_rows - 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


@pytest.mark.parametrize(("name", "num_rows"), [("burstgpt", 200_000), ("mooncake", 20_000)])
def test_a_long_trace_takes_no_memory_to_speak_of(tmp_path, name, num_rows):
    assert peak_mib_while_iterating(tmp_path / "t", name, num_rows) < 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["burstgpt", "mooncake"])
def test_a_trace_of_a_million_requests_takes_no_memory_to_speak_of(tmp_path, name):
    assert peak_mib_while_iterating(tmp_path / "t", name, 1_000_000) < 1


def test_long_conversations_of_many_users_take_little_memory():
    fields = {"num_sessions": 1000, "num_turns": 50, "prompt_len": 50, "output_len": 50}
    workload = WorkloadSpec.model_validate({"dataset_name": "sessions"} | fields)
    tracemalloc.start()
    assert sum(1 for _ in generate(workload, VOCAB_SIZE, 0)) == 50_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


def test_a_stream_shows_what_it_is():
    assert repr(RequestStream.of([])) == "RequestStream(0 requests)"
