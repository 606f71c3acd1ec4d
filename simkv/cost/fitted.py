"""Calibrated kernels of a profile: the physical forms with fitted parameters, times measured residuals.

A kernel's seconds are ``form × ratio``; the ratio is that of measured points, interpolated (`simkv.cost.residual`),
or 1 where none are at hand. What each answer rests on:

    measured       the shape itself is in the table
    interpolated   between shapes of the table; or the form alone, fitted to this GPU
    extrapolated   beyond the table: a chunk over a context where none was measured, chunks beside decodes, KV
                   that the benchmark read from cache and a server does not, another head dimension, a GPU that
                   took the fit over
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

from simkv.cost import fitted_batch
from simkv.cost.fitted_batch import BatchTime, RowsTime
from simkv.cost.fitted_chunks import ChunksTime, chunk_attention
from simkv.cost.fitted_collectives import FittedCollectives, MessageTime, Points, parameters_from
from simkv.cost.kernels import decode_attention, gemm, prefill_attention, scaled_gemm
from simkv.cost.kernels.decode_attention import DecodeAttentionParameters
from simkv.cost.kernels.gemm import GemmParameters
from simkv.cost.kernels.mixed_penalty import UnevenPenalty, uneven_seconds
from simkv.cost.kernels.prefill_attention import PrefillAttentionParameters
from simkv.cost.kernels.scaled_gemm import ScaledGemmParameters
from simkv.cost.residual import Residual
from simkv.cost.stand_ins import stand_in
from simkv.cost.tally import Kernel, Side
from simkv.spec.hardware import HardwareSpec
from simkv.step import PrefillChunk, Provenance

GemmTime: TypeAlias = Callable[[int], Kernel]  # of a number of rows
DecodeTime: TypeAlias = Callable[[int, int, int], Kernel]  # of decodes, their tokens in sum, the longest
PrefillTime: TypeAlias = ChunksTime

# tables whose attention does not write new KV: of `simkv collect`, and of Vidur, which times that apart
_WITHOUT_KV_WRITE = ("torch", "vidur")
_HEAD_DIM = 128  # of the measured tables
_SAME_BYTES = 0.1  # scales beside fp8 weights do not make another kernel
_FORMS: dict[str, tuple[Any, Any, tuple[str, ...]]] = {  # parameters, form, axes of the residual
    "gemm/bfloat16": (GemmParameters, gemm, ("m", "n", "k")),
    "gemm/fp8": (ScaledGemmParameters, scaled_gemm, ("m", "n", "k")),
    "decode_attention": (
        DecodeAttentionParameters,
        decode_attention,
        ("batch", "context", "heads", "kv_heads"),
    ),
    "prefill_attention": (
        PrefillAttentionParameters,
        prefill_attention,
        ("batch", "chunk", "heads", "kv_heads"),
    ),
}


class _Gpu(NamedTuple):
    peak_flops_per_s: float
    bandwidth_bytes_per_s: float
    num_sms: int


class FittedKernels:
    """Times kernels of one GPU; a method returns None where the calibration lacks the family."""

    def __init__(self, hardware: HardwareSpec, points: Points | None = None):
        self._hardware = hardware
        calibration = hardware.calibration
        self._calibration = calibration
        self._fits = calibration.families if calibration else {}
        self._points = points or {}
        self._residuals: dict[str, Residual] = {}
        is_own = calibration is not None and not calibration.is_transferred
        self._alone = Provenance.INTERPOLATED if is_own else Provenance.EXTRAPOLATED
        has_own_switch = is_own and hardware.node.fabric == "nvswitch"
        self._collectives = (
            FittedCollectives(self._fits, self._points, self._alone) if has_own_switch else None
        )

    def gemm(self, dtype: str, n: int, k: int, weight_bytes: float) -> GemmTime | None:
        """Time products with a weight of n × k, by rows."""
        name = "gemm/fp8" if dtype == "fp8" else "gemm/bfloat16"
        if name not in self._fits or dtype not in ("bfloat16", "float16", "fp8"):
            return None
        parameters_class, form, axes = _FORMS[name]
        parameters, gpu = self._parameters(name, parameters_class), self._gpu(dtype)
        residual, alone = None, self._alone
        if abs(parameters.weight_bytes - weight_bytes) > _SAME_BYTES:
            parameters, alone = replace(parameters, weight_bytes=weight_bytes), Provenance.EXTRAPOLATED
        elif name in self._points:
            residual = self._residual(name, form, parameters, gpu, axes).fixed(n=n, k=k)

        def time(m: int) -> Kernel:
            seconds, is_memory_bound = form.timing(parameters, *gpu, m, n, k)
            ratio, mark = residual(m) if residual else (1.0, alone)
            return Kernel(seconds * ratio, _side(is_memory_bound), mark)

        return time

    def batch(self, heads: int, kv_heads: int, head_dim: int, kv_bytes: float) -> BatchTime | None:
        """Time one layer's attention of chunks, decodes or both on a rank, where whole batches were measured."""
        if self._calibration is None:
            return None
        shape = (heads, kv_heads, head_dim, kv_bytes)
        gpu = self._gpu("bfloat16")
        return fitted_batch.batch_attention(self._calibration, self._points, gpu, *shape)

    def elementwise(self, name: str, width: int) -> RowsTime | None:
        """Time a kernel that moves bytes, by rows of `width` elements; names as in `fitted_batch.elementwise`."""
        if self._calibration is None:
            return None
        gpu = self._gpu("bfloat16")
        own = fitted_batch.elementwise(self._calibration, self._points, gpu, name, width)
        bandwidth = gpu.bandwidth_bytes_per_s
        return own or stand_in(self._calibration, self._points, bandwidth, name, width)

    @property
    def writes_kv(self) -> bool:
        """Whether attention's times include the writing of new KV, as those of vLLM's kernels do."""
        return self._calibration is not None and self._calibration.engine not in _WITHOUT_KV_WRITE

    def decode(self, heads: int, kv_heads: int, head_dim: int, kv_bytes: float) -> DecodeTime | None:
        """Time one layer's decodes on a rank, KV in memory as in a server."""
        found = self._attention("decode_attention", heads, kv_heads, kv_bytes)
        if found is None:
            return None
        parameters, gpu, residual, alone = found
        cold, cache_bytes = parameters.cold(), parameters.cache_bytes
        token_bytes = 2.0 * kv_heads * head_dim * kv_bytes
        is_tabled = head_dim == _HEAD_DIM

        @cache
        def at_batch(num_decodes: int) -> tuple[Any, Residual | None]:
            shape = (num_decodes, heads, kv_heads, head_dim)
            timing = decode_attention.at_batch(cold, *gpu, *shape, self._wait_per_token_s(cold, *shape))
            return timing, residual.fixed(batch=num_decodes) if residual else None

        def time(num_decodes: int, kv_tokens: int, longest: int) -> Kernel:
            timing, ratios = at_batch(num_decodes)
            context = kv_tokens / num_decodes
            seconds, is_memory_bound = timing(context, longest)
            ratio, mark = ratios(context) if ratios else (1.0, alone)
            if not is_tabled or kv_tokens * token_bytes < cache_bytes:
                mark = Provenance.EXTRAPOLATED
            elif longest * num_decodes != kv_tokens and mark is Provenance.MEASURED:
                mark = Provenance.INTERPOLATED
            return Kernel(seconds * ratio, _side(is_memory_bound), mark)

        return time

    def _wait_per_token_s(
        self, parameters: DecodeAttentionParameters, num_decodes: int, _: int, kv_heads: int, head_dim: int
    ) -> float:
        """What FlashAttention 2 waits for a token of the longest context beyond the mean; see `mixed_penalty`."""
        if parameters.splits_equal_heads:
            return 0.0
        gpu = self._gpu("bfloat16")
        shape = (num_decodes, 0, 1, kv_heads, head_dim)
        return float(uneven_seconds(UnevenPenalty(), gpu.peak_flops_per_s, gpu.num_sms, *shape))

    def chunks(self, heads: int, kv_heads: int, head_dim: int, kv_bytes: float) -> ChunksTime | None:
        """Time one layer's chunks, some over a prefix, on a rank, where such chunks were measured."""
        if self._calibration is None:
            return None
        shape = (heads, kv_heads, head_dim, kv_bytes)
        return chunk_attention(self._calibration, self._points, self._gpu("bfloat16"), *shape)

    def prefill(self, heads: int, kv_heads: int, head_dim: int, kv_bytes: float) -> PrefillTime | None:
        """Time one layer's chunks on a rank: whole prompts as measured, over a context by the form."""
        found = self._attention("prefill_attention", heads, kv_heads, kv_bytes)
        if found is None:
            return None
        parameters, gpu, residual, alone = found
        is_tabled = head_dim == _HEAD_DIM

        def time(chunks: Sequence[PrefillChunk]) -> Kernel:
            seconds, is_memory_bound = prefill_attention.batch_timing(
                parameters, *gpu, chunks, heads, kv_heads, head_dim
            )
            num_tokens = sum(chunk for chunk, _ in chunks)
            chunk = num_tokens / len(chunks)
            ratio, mark = residual(len(chunks), chunk) if residual else (1.0, alone)
            if not is_tabled or any(context or tokens != chunk for tokens, context in chunks):
                mark = Provenance.EXTRAPOLATED
            return Kernel(seconds * ratio, _side(is_memory_bound), mark)

        return time

    def all_reduce(self, world_size: int, is_custom: bool) -> MessageTime | None:
        """Time all-reduces inside one node: vLLM's own kernel where it runs, else NCCL.

        Only on NVSwitch, and not for a profile that took the fit over: its node may be another. PCIe's tables
        (L40S) are too uneven for the form, which misses one point in ten by 30 to 70 %.
        """
        return self._collectives.all_reduce(world_size, is_custom) if self._collectives else None

    def one_way(self, op: Literal["all_gather", "reduce_scatter"], world_size: int) -> MessageTime | None:
        """Time NCCL's all-gathers or reduce-scatters inside one node; where and why as for `all_reduce`."""
        return self._collectives.one_way(op, world_size) if self._collectives else None

    def send_recv(self) -> MessageTime | None:
        """Time the hand-off of a message to another GPU of the node; where and why as for `all_reduce`."""
        return self._collectives.send_recv() if self._collectives else None

    def _attention(
        self, op: str, heads: int, kv_heads: int, kv_bytes: float
    ) -> tuple[Any, _Gpu, Residual | None, Provenance] | None:
        """Parameters of a KV dtype, or those of bfloat16 with its bytes; the residual of these heads."""
        name = f"{op}/fp8" if kv_bytes == 1 and f"{op}/fp8" in self._fits else f"{op}/bfloat16"
        if name not in self._fits:
            return None
        parameters_class, form, axes = _FORMS[op]
        parameters, gpu = self._parameters(name, parameters_class), self._gpu("bfloat16")
        if parameters.kv_bytes != kv_bytes:
            return replace(parameters, kv_bytes=kv_bytes), gpu, None, Provenance.EXTRAPOLATED
        if name not in self._points:
            return parameters, gpu, None, self._alone
        residual = self._residual(name, form, parameters, gpu, axes, float(_HEAD_DIM))
        return parameters, gpu, residual.fixed(heads=heads, kv_heads=kv_heads), self._alone

    def _parameters(self, name: str, parameters_class: Any) -> Any:
        return parameters_from(parameters_class, self._fits[name].parameters)

    def _gpu(self, dtype: str) -> _Gpu:
        gpu = self._hardware.gpu
        peak = gpu.peak_flops_per_s[dtype].value  # type: ignore[index]
        return _Gpu(peak, gpu.hbm_bandwidth_bytes_per_s.value, int(gpu.num_sms.value))

    def _residual(
        self, name: str, form: Any, parameters: Any, gpu: _Gpu, axes: tuple[str, ...], *more: float
    ) -> Residual:
        if name not in self._residuals:
            columns = self._points[name]
            shape = [columns[axis] for axis in axes]
            ratios = columns["seconds"] / form.seconds(parameters, *gpu, *shape, *more)
            self._residuals[name] = Residual.from_points(axes, shape, ratios)
        return self._residuals[name]


def _side(is_memory_bound: bool) -> Side:
    return Side.MEMORY if is_memory_bound else Side.COMPUTE
