"""From a `WorkloadSpec` and a seed to the requests of a run.

Fresh tokens: a prompt that shares nothing takes the next free range of an unbounded integer axis, and so do
its outputs, so no two ranges overlap. (`random_dataset` lays out its axis itself: its prompts may share.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from simkv.errors import TraceError
from simkv.spec.workload import WorkloadSpec
from simkv.units import to_ns
from simkv.workload.arrivals import arrival_times_ns
from simkv.workload.lengths import sample_lengths
from simkv.workload.prompt import RequestSpec, Segment
from simkv.workload.random_dataset import random_requests
from simkv.workload.rng import stream
from simkv.workload.traces import read_azure


def generate(
    workload: WorkloadSpec, vocab_size: int, seed: int, base_dir: Path | None = None
) -> list[RequestSpec]:
    """Return the requests in order of arrival, with ids 0, 1, …; same arguments, same requests.

    `vocab_size` matters to the ``random`` data set only. `base_dir` is the folder of the scenario file, where
    a relative ``dataset_path`` is looked for before the working directory. ``num_prompts`` also cuts a trace;
    a trace that is shorter is sent once. Raises `TraceError` if the trace is missing or wrong.
    """
    return _DATASETS[workload.dataset_name](workload, vocab_size, seed, base_dir)


def fresh_requests(
    arrivals_ns: Sequence[int], prompt_lens: Sequence[int], output_lens: Sequence[int]
) -> list[RequestSpec]:
    """Return requests that share nothing, from columns of equal length (ns, tokens, tokens)."""
    requests: list[RequestSpec] = []
    next_token = 0
    for arrival_ns, prompt_len, output_len in zip(arrivals_ns, prompt_lens, output_lens, strict=True):
        prompt = (Segment(next_token, prompt_len),)
        output_start = next_token + prompt_len
        requests.append(RequestSpec(len(requests), arrival_ns, prompt, output_len, output_start))
        next_token = output_start + output_len
    return requests


def _lengths(workload: WorkloadSpec, vocab_size: int, seed: int, base_dir: Path | None) -> list[RequestSpec]:
    n = workload.resolved_num_prompts
    assert workload.prompt_len is not None, "WorkloadSpec wants lengths for this data set"
    assert workload.output_len is not None, "WorkloadSpec wants lengths for this data set"
    return fresh_requests(
        arrival_times_ns(workload, n, stream(seed, "arrivals")),
        sample_lengths(workload.prompt_len, n, stream(seed, "prompt_lens")),
        sample_lengths(workload.output_len, n, stream(seed, "output_lens")),
    )


def _random(workload: WorkloadSpec, vocab_size: int, seed: int, base_dir: Path | None) -> list[RequestSpec]:
    # Not a named stream: vLLM draws the intervals from numpy's global generator, seeded with --seed and not
    # used before, so this gives its very arrival times. (It refuses seeds of more than 32 bits.)
    rng = np.random.RandomState(seed % 2**32)
    arrivals_ns = arrival_times_ns(workload, workload.resolved_num_prompts, rng)
    return random_requests(workload, arrivals_ns, vocab_size, seed)


def _azure(workload: WorkloadSpec, vocab_size: int, seed: int, base_dir: Path | None) -> list[RequestSpec]:
    assert workload.dataset_path is not None, "WorkloadSpec wants a path for this data set"
    rows = read_azure(find_dataset(workload.dataset_path, base_dir), workload.num_prompts)
    return fresh_requests(
        [row.arrival_ns for row in rows],
        [row.num_prompt_tokens for row in rows],
        [row.num_output_tokens for row in rows],
    )


def _given(workload: WorkloadSpec, vocab_size: int, seed: int, base_dir: Path | None) -> list[RequestSpec]:
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
                to_ns(request.arrival_s),
                tuple(segment for segment in segments if segment.length),
                request.output_len,
                next_token + own_len,
                request.priority,
            )
        )
        next_token += own_len + request.output_len
    return requests


_DATASETS: dict[str, Callable[[WorkloadSpec, int, int, Path | None], list[RequestSpec]]] = {
    "lengths": _lengths,
    "random": _random,
    "azure": _azure,
    "requests": _given,
}


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
