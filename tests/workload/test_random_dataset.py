import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.spec.workload import WorkloadSpec
from simkv.workload import RequestSpec, random_requests
from simkv.workload.random_dataset import wrapped

SEEDS = st.integers(0, 2**32 - 1)
SMALL = st.fixed_dictionaries(
    {
        "random_input_len": st.integers(1, 60),
        "random_output_len": st.integers(1, 20),
        "random_range_ratio": st.floats(0, 0.99),
        "random_prefix_len": st.integers(1, 10),
    }
)


def workload(**fields) -> WorkloadSpec:
    return WorkloadSpec.model_validate({"dataset_name": "random", **fields})


def tokens(request: RequestSpec) -> list[int]:
    return [token for start, length in request.prompt for token in range(start, start + length)]


def recomputed(spec: WorkloadSpec, n: int, vocab_size: int, seed: int) -> tuple[list[list[int]], list[int]]:
    """Prompts without their prefix and output lengths, straight from numpy in the order of vLLM's draws."""
    rng = np.random.default_rng(seed)
    r, i, o = spec.random_range_ratio, spec.random_input_len, spec.random_output_len
    input_lens = rng.integers(math.floor(i * (1 - r)), math.ceil(i * (1 + r)) + 1, size=n)
    output_lens = rng.integers(max(1, math.floor(o * (1 - r))), max(1, math.ceil(o * (1 + r))) + 1, size=n)
    offsets = rng.integers(0, vocab_size, size=n)
    bodies = [((offsets[k] + k + np.arange(input_lens[k])) % vocab_size).tolist() for k in range(n)]
    return bodies, output_lens.tolist()


@given(SMALL, st.integers(1, 12), st.integers(1, 50), SEEDS)
def test_equal_to_vllm_bench_serve(fields, n, vocab_size, seed):
    spec = workload(**fields)
    requests = random_requests(spec, range(n), vocab_size, seed)
    bodies, output_lens = recomputed(spec, n, vocab_size, seed)
    assert [tokens(r)[spec.random_prefix_len :] for r in requests] == bodies
    assert [r.max_tokens for r in requests] == output_lens
    assert [(r.request_id, r.arrival_ns) for r in requests] == [(i, i) for i in range(n)]


@given(SMALL, st.integers(1, 50), SEEDS)
def test_prefix_is_shared_and_outputs_are_nobody_elses(fields, vocab_size, seed):
    spec = workload(**fields)
    requests = random_requests(spec, [0] * 10, vocab_size, seed)
    prefixes = {tuple(tokens(r)[: spec.random_prefix_len]) for r in requests}
    assert len(prefixes) == 1
    assert not set(prefixes.pop()) & set(range(vocab_size))
    outputs = [token for r in requests for token in range(r.output_start, r.output_start + r.max_tokens)]
    assert len(set(outputs)) == len(outputs)
    assert not set(outputs) & {token for r in requests for token in tokens(r)}


@given(SEEDS, st.integers(1000, 200_000))
def test_lengths_do_not_depend_on_the_vocabulary(seed, vocab_size):
    spec = workload(random_range_ratio=0.5)
    a = random_requests(spec, [0] * 5, vocab_size, seed)
    b = random_requests(spec, [0] * 5, 128_256, seed)
    assert [(r.num_prompt_tokens, r.max_tokens) for r in a] == [
        (r.num_prompt_tokens, r.max_tokens) for r in b
    ]


@given(st.integers(0, 99), st.integers(0, 1000))
def test_wrapped_counts_up_modulo_the_vocabulary(start, length):
    segments = wrapped(start, length, 100)
    got = [token for s in segments for token in range(s.start, s.start + s.length)]
    assert got == [(start + k) % 100 for k in range(length)]
    assert len(segments) <= length // 100 + 2


def test_a_known_case():
    # numpy's default_rng(0): the lengths `vllm bench serve --seed 0` sends for these options
    spec = workload(
        random_input_len=1000, random_output_len=100, random_range_ratio=0.1, random_prefix_len=50
    )
    requests = random_requests(spec, [0] * 4, 128_256, 0)
    assert [r.num_prompt_tokens for r in requests] == [1120, 1078, 1052, 1004]
    assert [r.max_tokens for r in requests] == [96, 90, 91, 90]


def test_bounds_are_rounded_in_floating_point_as_in_vllm():
    spec = workload(random_input_len=100, random_range_ratio=0.1)
    lengths = [r.num_prompt_tokens for r in random_requests(spec, [0] * 20_000, 1000, 0)]
    assert (min(lengths), max(lengths)) == (90, 111)  # 100 · (1 + 0.1) is 110.00000000000001


def test_without_a_range_every_request_has_the_mean():
    (request,) = random_requests(workload(), [7], 128_256, 3)
    assert (request.num_prompt_tokens, request.max_tokens, request.arrival_ns) == (1024, 128, 7)


def test_a_prompt_may_be_its_prefix_alone():
    spec = workload(random_input_len=1, random_range_ratio=0.9, random_prefix_len=4)
    lengths = {r.num_prompt_tokens for r in random_requests(spec, [0] * 50, 100, 0)}
    assert lengths == {4, 5, 6}


def test_an_empty_prompt_is_refused():
    with pytest.raises(
        ValueError, match=r"random_input_len: with random_range_ratio 0\.9 the shortest prompt"
    ):
        workload(random_input_len=10, random_range_ratio=0.9)
