"""The ``random`` data set of ``vllm bench serve``: the same lengths for the same seed, and the same sharing.

Mirrors ``RandomDataset`` in ``vllm/benchmarks/datasets`` and ``get_sampling_params`` beside it. What needs a
tokenizer is left out: no special tokens are subtracted from the input length or taken out of the vocabulary,
and the prompt is not decoded and encoded again (which in vLLM changes a few tokens, seldom the length).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simkv.spec.workload import WorkloadSpec
from simkv.workload.prompt import RequestSpec, Segment


class RandomLengths(NamedTuple):
    """Draws of the data set, one entry per request: tokens after the prefix, outputs, first token ids."""

    input_lens: list[int]
    output_lens: list[int]
    offsets: list[int]


def draw_random_lengths(workload: WorkloadSpec, n: int, vocab_size: int, seed: int) -> RandomLengths:
    """Draw lengths and offsets in vLLM's order from numpy's ``default_rng(seed)``.

    Input lengths are uniform in ``[floor(len · (1 − ratio)), ceil(len · (1 + ratio))]``, both included,
    output lengths likewise but at least 1, offsets uniform in ``[0, vocab_size)``. Lengths do not depend on
    `vocab_size`; a seed gives the lengths of ``vllm bench serve --seed``.
    """
    rng = np.random.default_rng(seed)
    ratio = workload.random_range_ratio
    low_in, high_in = _bounds(workload.random_input_len, ratio)
    low_out, high_out = _bounds(workload.random_output_len, ratio)
    return RandomLengths(
        input_lens=rng.integers(low_in, high_in + 1, size=n).tolist(),
        output_lens=rng.integers(max(low_out, 1), max(high_out, 1) + 1, size=n).tolist(),
        offsets=rng.integers(0, vocab_size, size=n).tolist(),
    )


def random_requests(
    workload: WorkloadSpec, arrivals_ns: Sequence[int], vocab_size: int, seed: int
) -> list[RequestSpec]:
    """Return one request per arrival time, in order.

    The token axis: bodies are true token ids in ``[0, vocab_size)``, request `i` counting up from
    ``offset + i`` and wrapping around, so two prompts agree exactly where vLLM's do; the prefix shared by all
    lies above, in ``[vocab_size, vocab_size + random_prefix_len)``; then come the outputs, each a range of
    its own.
    """
    draws = draw_random_lengths(workload, len(arrivals_ns), vocab_size, seed)
    prefix_len = workload.random_prefix_len
    prefix = (Segment(vocab_size, prefix_len),) if prefix_len else ()
    output_start = vocab_size + prefix_len
    requests = []
    for i, (arrival_ns, input_len, output_len, offset) in enumerate(zip(arrivals_ns, *draws, strict=True)):
        prompt = prefix + wrapped((offset + i) % vocab_size, input_len, vocab_size)
        requests.append(RequestSpec(i, arrival_ns, prompt, output_len, output_start))
        output_start += output_len
    return requests


def wrapped(start: int, length: int, vocab_size: int) -> tuple[Segment, ...]:
    """Return the tokens ``(start + k) % vocab_size`` for k in ``range(length)``, split where they wrap.

    >>> wrapped(7, 5, 10)
    (Segment(start=7, length=3), Segment(start=0, length=2))
    """
    segments = []
    while length > 0:
        piece = Segment(start, min(length, vocab_size - start))
        segments.append(piece)
        start, length = 0, length - piece.length
    return tuple(segments)


def _bounds(length: int, ratio: float) -> tuple[int, int]:
    # In floating point and in this order, as vLLM: 10 · (1 − 0.9) is below 1, so its floor is 0.
    return math.floor(length * (1 - ratio)), math.ceil(length * (1 + ratio))
