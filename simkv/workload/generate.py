"""From a `WorkloadSpec` and a seed to the requests of a run.

Fresh tokens: a prompt that shares nothing takes the next free range of an unbounded integer axis, and so do
its outputs, so no two ranges overlap. What prompts share lies below. (`random_dataset`, `sessions` and
`hashed` lay out their axes themselves.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from simkv.errors import ScenarioError, TraceError
from simkv.spec.workload import MAX_DURATION_S, WorkloadSpec
from simkv.units import to_ns, to_s
from simkv.workload.arrivals import arrival_times_ns
from simkv.workload.bench_trace import read_vllm_bench
from simkv.workload.csv_traces import read_azure, read_burstgpt
from simkv.workload.hashed import hashed_requests
from simkv.workload.json_traces import read_jsonl, read_mooncake
from simkv.workload.lengths import sample_lengths
from simkv.workload.prompt import RequestSpec, Segment
from simkv.workload.random_dataset import random_requests
from simkv.workload.request_stream import RequestStream
from simkv.workload.rng import stream
from simkv.workload.sessions import session_requests
from simkv.workload.traces import Reader, Trace, TraceRow


def generate(
    workload: WorkloadSpec, vocab_size: int, seed: int, base_dir: Path | None = None
) -> RequestStream:
    """Return the requests in order of arrival, with ids 0, 1, …; same arguments, same requests.

    A trace has been checked from end to end when this returns, and is read again, row by row, as the stream
    is iterated. `vocab_size` matters to the ``random`` data set only. `base_dir` is the folder of the
    scenario file, where a relative ``dataset_path`` is looked for before the working directory.
    ``num_prompts`` also cuts a trace, sessions and requests written out; a trace that is shorter is sent once.

    Raises `TraceError` if the trace is missing or wrong.
    """
    if workload.dataset_path is not None:
        return _trace(workload, seed, base_dir)
    if workload.dataset_name == "sessions":
        return session_requests(workload, seed)
    if workload.dataset_name == "random":
        return RequestStream.of(_random(workload, vocab_size, seed))
    make = _given if workload.dataset_name == "requests" else _lengths
    return RequestStream.of(make(workload, seed))


def fresh_requests(rows: Iterable[TraceRow], shared_len: int = 0) -> Iterator[RequestSpec]:
    """Yield requests that share their first `shared_len` tokens, which come before those of the row."""
    shared = (Segment(0, shared_len),) if shared_len else ()
    next_token = shared_len
    for request_id, row in enumerate(rows):
        prompt = (*shared, Segment(next_token, row.num_prompt_tokens))
        output_start = next_token + row.num_prompt_tokens
        yield RequestSpec(
            request_id, row.arrival_ns, prompt, row.num_output_tokens, output_start, row.priority
        )
        next_token = output_start + row.num_output_tokens


def _lengths(workload: WorkloadSpec, seed: int) -> list[RequestSpec]:
    n = workload.resolved_num_prompts
    assert workload.prompt_len is not None, "WorkloadSpec wants lengths for this data set"
    assert workload.output_len is not None, "WorkloadSpec wants lengths for this data set"
    rows = map(
        TraceRow,
        arrival_times_ns(workload, n, stream(seed, "arrivals")),
        sample_lengths(workload.prompt_len, n, stream(seed, "prompt_lens")),
        sample_lengths(workload.output_len, n, stream(seed, "output_lens"), side="output"),
    )
    return list(fresh_requests(rows, workload.system_prompt_len))


def _random(workload: WorkloadSpec, vocab_size: int, seed: int) -> list[RequestSpec]:
    # Not a named stream: vLLM draws the intervals from numpy's global generator, seeded with --seed and not
    # used before, so this gives its very arrival times. (It refuses seeds of more than 32 bits.)
    rng = np.random.RandomState(seed % 2**32)
    arrivals_ns = arrival_times_ns(workload, workload.resolved_num_prompts, rng)
    return random_requests(workload, arrivals_ns, vocab_size, seed)


def _given(workload: WorkloadSpec, seed: int) -> list[RequestSpec]:
    given = sorted(workload.requests[: workload.num_prompts], key=lambda request: request.arrival_s)
    prefix_len = max(request.prefix_len for request in given)
    requests: list[RequestSpec] = []
    next_token = prefix_len
    for request in given:
        own_len = request.prompt_len - request.prefix_len
        segments = (Segment(0, request.prefix_len), Segment(next_token, own_len))
        requests.append(
            RequestSpec(
                len(requests),
                _scaled_ns(to_ns(request.arrival_s), workload),
                tuple(segment for segment in segments if segment.length),
                request.output_len,
                next_token + own_len,
                request.priority,
            )
        )
        next_token += own_len + request.output_len
    return requests


def _trace(workload: WorkloadSpec, seed: int, base_dir: Path | None) -> RequestStream:
    assert workload.dataset_path is not None, "WorkloadSpec wants a path for this data set"
    readers: dict[str, Reader] = {
        "azure": read_azure,
        "burstgpt": read_burstgpt,
        "mooncake": read_mooncake,
        "jsonl": read_jsonl,
        "vllm_bench": partial(read_vllm_bench, seed=seed),
    }
    path = find_dataset(workload.dataset_path, base_dir)
    trace = Trace(path, readers[workload.dataset_name], workload.num_prompts)
    _scaled_ns(trace.last_arrival_ns, workload)
    make: Callable[[Iterable[TraceRow]], Iterator[RequestSpec]] = fresh_requests
    if workload.dataset_name == "mooncake":
        make = hashed_requests

    def requests() -> Iterator[RequestSpec]:
        if workload.request_rate_scale == 1:
            return make(trace)
        return make(row._replace(arrival_ns=_scaled_ns(row.arrival_ns, workload)) for row in trace)

    return RequestStream(requests, trace.num_rows, trace.num_skipped)


def _scaled_ns(arrival_ns: int, workload: WorkloadSpec) -> int:
    """Return when a request comes if requests come `request_rate_scale` times as fast."""
    scale = workload.request_rate_scale
    if arrival_ns > to_ns(MAX_DURATION_S) * scale:
        raise ScenarioError(
            f"workload.request_rate_scale: {scale:g} makes {to_s(arrival_ns):g} seconds longer than "
            f"{MAX_DURATION_S:g}; raise it"
        )
    return arrival_ns if scale == 1 else round(arrival_ns / scale)


def find_dataset(dataset_path: str, base_dir: Path | None) -> Path:
    """Return the file meant by ``dataset_path``: in `base_dir`, else in the working directory.

    Raises `TraceError` if neither has it.
    """
    path = Path(os.path.expanduser(dataset_path))
    folders = [Path()] if base_dir is None or path.is_absolute() else [base_dir, Path()]
    for folder in folders:
        if os.path.exists(folder / path):
            return folder / path
    looked_in = " or ".join(str(folder.absolute()) for folder in folders)
    where = "" if path.is_absolute() else f" in {looked_in}"
    raise TraceError(f"{dataset_path}: wanted an existing trace file, got none{where}")
