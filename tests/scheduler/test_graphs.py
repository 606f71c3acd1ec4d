"""The captured sizes of vLLM 0.32.0."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.scheduler.graphs import CudaGraphs
from simkv.step import GraphMode


@pytest.mark.parametrize(
    ("max_num_seqs", "largest_allowed", "num_sizes", "largest"),
    [(256, 512, 51, 512), (1024, 512, 51, 512), (1024, 1024, 83, 1024), (64, 512, 19, 128)],
)
def test_number_of_sizes(max_num_seqs, largest_allowed, num_sizes, largest):
    graphs = CudaGraphs(max_num_seqs, 8192, largest_allowed=largest_allowed)
    assert (len(graphs.sizes), graphs.sizes[-1]) == (num_sizes, largest)


def test_max_num_seqs_and_the_budget_are_sizes_of_their_own():
    assert 100 in CudaGraphs(100, 8192).sizes
    assert CudaGraphs(100, 150).sizes[-1] == 150


@given(max_num_seqs=st.integers(1, 600), budget=st.integers(1, 9000), num_tokens=st.integers(1, 1200))
def test_the_smallest_size_that_holds_the_batch(max_num_seqs, budget, num_tokens):
    graphs = CudaGraphs(max_num_seqs, budget)
    padded, mode = graphs.pick(num_tokens, is_decode_only=False)
    larger = [size for size in graphs.sizes if size >= num_tokens]
    assert padded == (min(larger) if larger else num_tokens)
    assert mode is (GraphMode.PIECEWISE if larger else GraphMode.NONE)
    assert padded >= num_tokens


def test_eager_has_no_graphs():
    assert CudaGraphs(64, 8192, enforce_eager=True).pick(3, is_decode_only=True) == (3, GraphMode.NONE)
    assert CudaGraphs(64, 8192).pick(3, is_decode_only=True) == (4, GraphMode.FULL)
