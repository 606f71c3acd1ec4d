"""Which CUDA graph a batch replays: the rows it is padded to, and how it is launched."""

from __future__ import annotations

from bisect import bisect_left

from simkv.step import GraphMode


class CudaGraphs:
    """The captured batch sizes of vLLM at its default optimisation level (``FULL_AND_PIECEWISE``).

    Source: vLLM 0.32.0 `config.vllm` and `v1.worker.gpu.cudagraph_utils`. The largest size is
    min(2 · max_num_seqs, 512, max_num_batched_tokens), 1,024 instead of 512 on compute capability 10.x.

    >>> CudaGraphs(max_num_seqs=64, max_num_batched_tokens=8192).sizes[-3:]
    (112, 120, 128)
    """

    def __init__(
        self,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        enforce_eager: bool = False,
        largest_allowed: int = 512,
    ):
        self.sizes: tuple[int, ...] = ()
        if not enforce_eager:
            largest = min(2 * max_num_seqs, largest_allowed, max_num_batched_tokens)
            sizes = {1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)}
            sizes |= {max_num_seqs, max_num_batched_tokens}
            self.sizes = tuple(sorted(size for size in sizes if size <= largest))

    def pick(self, num_tokens: int, is_decode_only: bool) -> tuple[int, GraphMode]:
        """Return (padded tokens, launch mode); a batch above the largest size is neither padded nor a graph."""
        i = bisect_left(self.sizes, num_tokens)
        if i == len(self.sizes):
            return num_tokens, GraphMode.NONE
        return self.sizes[i], GraphMode.FULL if is_decode_only else GraphMode.PIECEWISE
