"""Times kernels with PyTorch: CUDA events around graphs of many calls, medians, cold weights and KV.

Attention is ``scaled_dot_product_attention`` with grouped KV heads and a causal mask aligned to the lower right
corner, which is what a chunk over its prefix needs; PyTorch picks its flash kernel for it on a GPU. Decodes are
contiguous, not paged. Weights and KV rotate through copies larger than the L2 cache, as in a real model, where
other layers come between.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from simkv.calibrate.collect import VOCABULARY, Point
from simkv.errors import SimkvError

_NUM_SAMPLES = 7
_SAMPLE_S = 2e-3  # a sample repeats its call for about this long
_MAX_CALLS = 64
_COLD_BYTES = 256 * 1024**2  # twice the largest L2 cache at hand
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")


def import_torch() -> Any:
    """PyTorch, or one error that says how to get it."""
    try:
        import torch
    except ImportError:
        raise SimkvError(
            "simkv collect: measuring needs PyTorch; install it with: pip install torch"
        ) from None
    return torch


class TorchBackend:
    """Times points on ``cuda`` or ``cpu``; collectives on as many GPUs (processes) as a point asks for."""

    def __init__(self, device_type: str = "cuda"):
        self._torch = torch = import_torch()
        if device_type == "cuda" and not torch.cuda.is_available():
            raise SimkvError(
                "simkv collect: PyTorch finds no CUDA GPU; --device cpu tries the command on tiny shapes"
            )
        self._type = device_type
        self.device = str(torch.cuda.get_device_name()) if device_type == "cuda" else "cpu"
        self.engine = "torch"
        self.engine_version = str(torch.__version__)
        self.num_gpus = int(torch.cuda.device_count()) if device_type == "cuda" else 1

    def measure(self, points: Sequence[Point]) -> Iterator[tuple[Point, float | None]]:
        """Yield each point with its median seconds; None for those that do not fit into memory."""
        for is_collective, some in groupby(points, key=lambda point: point.op in COLLECTIVES):
            if not is_collective:
                for point in some:
                    yield point, self._seconds(point)
                continue
            for world_size, own in groupby(some, key=lambda point: int(point.shape[0])):
                from simkv.calibrate.torch_collectives import measure_group

                batch = list(own)
                yield from zip(batch, measure_group(batch, world_size, self._type), strict=True)

    def _seconds(self, point: Point) -> float | None:
        torch = self._torch
        out_of_memory: type[BaseException] = (
            torch.cuda.OutOfMemoryError if self._type == "cuda" else MemoryError
        )
        try:
            with torch.no_grad():
                return self._timed(_CALLS[point.op](self, *point.shape, getattr(torch, point.dtype)))
        except out_of_memory:
            return None
        finally:
            if self._type == "cuda":
                torch.cuda.empty_cache()

    def _timed(self, call: Callable[[int], object]) -> float:
        """Median seconds of `call`, which is given its number so that it can rotate its operands."""
        for number in range(2):
            call(number)
        first = self._sample(call, 1)
        num_calls = max(1, min(_MAX_CALLS, int(_SAMPLE_S / max(first, 1e-9))))
        if self._type != "cuda":
            return statistics.median(self._sample(call, num_calls) for _ in range(_NUM_SAMPLES))
        try:
            return self._timed_in_graph(call, num_calls)
        except self._torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError:  # a kernel that cannot be captured: launches are hidden only if it is long
            return statistics.median(self._sample(call, num_calls) for _ in range(_NUM_SAMPLES))

    def _sample(self, call: Callable[[int], object], num_calls: int) -> float:
        """Seconds of one call, mean of `num_calls` launched one after the other."""
        torch = self._torch
        if self._type != "cuda":
            start = time.perf_counter()
            for number in range(num_calls):
                call(number)
            return (time.perf_counter() - start) / num_calls
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for number in range(num_calls):
            call(number)
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3 / num_calls

    def _timed_in_graph(self, call: Callable[[int], object], num_calls: int) -> float:
        """The same inside a CUDA graph: without the host's launches, which hide kernels of a few µs."""
        torch = self._torch
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            call(0)
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph):
            for number in range(num_calls):
                call(number)
        graph.replay()
        torch.cuda.synchronize()
        samples = [self._sample(lambda _: graph.replay(), 1) / num_calls for _ in range(_NUM_SAMPLES)]
        return statistics.median(samples)

    def _copies(self, num_bytes: int) -> int:
        """How many copies of an operand outgrow the cache, none beyond the calls of a sample."""
        if self._type != "cuda":
            return 1
        return max(1, min(_MAX_CALLS, -(-_COLD_BYTES // num_bytes)))

    def _random(self, dtype: Any, *shape: int) -> Any:
        return self._torch.randn(*shape, dtype=dtype, device=self._type)

    def _gemm(self, m: int, n: int, k: int, dtype: Any) -> Callable[[int], object]:
        rows = self._random(dtype, m, k)
        weights = [self._random(dtype, n, k) for _ in range(self._copies(2 * n * k))]
        linear = self._torch.nn.functional.linear
        return lambda number: linear(rows, weights[number % len(weights)])

    def _prefill_attention(
        self, batch: int, chunk: int, context: int, heads: int, kv_heads: int, head_dim: int, dtype: Any
    ) -> Callable[[int], object]:
        from torch.nn.attention.bias import causal_lower_right

        torch = self._torch
        total = context + chunk
        query = self._random(dtype, batch, heads, chunk, head_dim)
        copies = self._copies(4 * batch * kv_heads * total * head_dim)
        keys = [self._random(dtype, 2, batch, kv_heads, total, head_dim) for _ in range(copies)]
        attend = torch.nn.functional.scaled_dot_product_attention
        # the square mask has a flag of its own, which every kernel knows
        mask = {"is_causal": True} if context == 0 else {"attn_mask": causal_lower_right(chunk, total)}

        def call(number: int) -> object:
            key, value = keys[number % copies]
            return attend(query, key, value, enable_gqa=True, **mask)

        return call

    def _decode_attention(
        self, batch: int, context: int, heads: int, kv_heads: int, head_dim: int, dtype: Any
    ) -> Callable[[int], object]:
        query = self._random(dtype, batch, heads, 1, head_dim)
        copies = self._copies(4 * batch * kv_heads * context * head_dim)
        keys = [self._random(dtype, 2, batch, kv_heads, context, head_dim) for _ in range(copies)]
        attend = self._torch.nn.functional.scaled_dot_product_attention

        def call(number: int) -> object:
            key, value = keys[number % copies]
            return attend(query, key, value, enable_gqa=True)

        return call

    def _elementwise(self, kernel: str, tokens: int, width: int, dtype: Any) -> Callable[[int], object]:
        """One kernel a call that puts out `width` elements a token; see `simkv.cost.stand_ins`."""
        torch = self._torch
        functional = torch.nn.functional
        rows = self._random(dtype, tokens, 2 * width if kernel == "glu" else width)
        if kernel == "copy":
            other = torch.empty_like(rows)
            return lambda number: other.copy_(rows)
        if kernel == "rms_norm":
            weight = self._random(dtype, width)
            return lambda number: functional.rms_norm(rows, (width,), weight)
        if kernel == "glu":
            return lambda number: functional.glu(rows)
        words = torch.randint(VOCABULARY, (tokens,), device=self._type)
        table = self._random(dtype, VOCABULARY, width)
        return lambda number: functional.embedding(words, table)

    def _sampler(self, tokens: int, n: int, dtype: Any) -> Callable[[int], object]:
        """Sampling as vLLM's PyTorch does it: probabilities in float32 over exponential noise, the largest wins."""
        torch = self._torch
        logits = self._random(dtype, tokens, n)
        noise = self._random(torch.float32, tokens, n).exponential_()
        return lambda number: logits.float().softmax(-1).div_(noise).argmax(-1)


_CALLS: dict[str, Callable[..., Callable[[int], object]]] = {
    "gemm": TorchBackend._gemm,
    "prefill_attention": TorchBackend._prefill_attention,
    "decode_attention": TorchBackend._decode_attention,
    "elementwise": TorchBackend._elementwise,
    "sampler": TorchBackend._sampler,
}
