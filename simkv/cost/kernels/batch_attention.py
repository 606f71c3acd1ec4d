"""Attention of any batch by fitted forms: chunks alone, decodes alone, or both in one call.

Decodes alone run a kernel of their own (`decode_attention`, split KV, and the wait for the longest of
`mixed_penalty`); a single chunk makes the whole batch one call of the kernel for chunks (`mixed`). A decode
kernel that is slower than the call beside a chunk would make time fall as a chunk is added, so the longer counts:
one measured batch in forty lies there, all small (RTX 4090, RTX PRO 6000).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simkv.cost.kernels import decode_attention, mixed
from simkv.cost.kernels.decode_attention import DecodeAttentionParameters
from simkv.cost.kernels.mixed import MixedParameters
from simkv.cost.kernels.mixed_penalty import UnevenPenalty, uneven_seconds
from simkv.cost.kernels.ufuncs import Timing, Values, larger


class GpuFigures(NamedTuple):
    """The three figures of a GPU that every form takes."""

    peak_flops_per_s: float
    bandwidth_bytes_per_s: float
    num_sms: int


class HeadShape(NamedTuple):
    """Heads of a rank."""

    heads: Values
    kv_heads: Values
    head_dim: Values = 128


@dataclass(frozen=True)
class BatchParameters:
    """The kernels of one GPU and KV dtype; `decode.kv_bytes` is that of all."""

    decode: DecodeAttentionParameters
    mixed: MixedParameters
    uneven: UnevenPenalty


def decode_timing(
    p: BatchParameters,
    gpu: GpuFigures,
    shape: HeadShape,
    num_decodes: Values,
    mean_context: Values,
    longest_context: Values,
) -> Timing:
    """Time of decodes alone, scalars or arrays."""
    if longest_context is mean_context:
        return decode_attention.timing(p.decode, *gpu, num_decodes, mean_context, *shape)
    wait_s = uneven_seconds(
        p.uneven, gpu[0], gpu[2], num_decodes, mean_context, longest_context, shape[1], shape[2]
    )
    return decode_attention.timing(p.decode, *gpu, num_decodes, mean_context, *shape, longest_context, wait_s)


class BatchTiming(NamedTuple):
    """Time of a batch, and seconds of its decodes alone (0 without any)."""

    seconds: float
    is_memory_bound: bool
    decodes_s: float


def timing(
    p: BatchParameters,
    gpu: GpuFigures,
    shape: HeadShape,
    chunks: Sequence[tuple[int, int]],
    num_decodes: int,
    decode_kv_tokens: int,
    longest_context: int,
) -> BatchTiming:
    """Time of one layer's attention of any batch that is not empty; `chunks` are (tokens, context). Scalars only.

    Non-decreasing when a chunk or decode is added or lengthened.
    """
    if num_decodes == 0:
        seconds, is_bound = mixed.batch_timing(p.mixed, *gpu, chunks, 0, 0, 0, *shape, p.decode.kv_bytes)
        return BatchTiming(seconds, is_bound, 0.0)
    mean = decode_kv_tokens / num_decodes
    alone_s, is_bound = decode_timing(
        p, gpu, shape, num_decodes, mean, mean if longest_context <= mean else longest_context
    )
    if not chunks:
        return BatchTiming(alone_s, is_bound, alone_s)
    both = mixed.batch_timing(
        p.mixed, *gpu, chunks, num_decodes, decode_kv_tokens, longest_context, *shape, p.decode.kv_bytes
    )
    return BatchTiming(*both, alone_s) if both.seconds > alone_s else BatchTiming(alone_s, is_bound, alone_s)


def chunk_seconds(
    p: BatchParameters, gpu: GpuFigures, shape: HeadShape, chunk: Values, context: Values
) -> Values:
    """Seconds of one chunk alone, scalars or arrays."""
    return mixed.seconds(p.mixed, *gpu, chunk, context, 0, 0, *shape, p.decode.kv_bytes)


def both_seconds(
    p: BatchParameters,
    gpu: GpuFigures,
    shape: HeadShape,
    chunk: Values,
    context: Values,
    num_decodes: Values,
    decode_context: Values,
) -> Values:
    """Seconds of one chunk beside decodes of equal contexts, scalars or arrays."""
    beside_s = mixed.seconds(
        p.mixed, *gpu, chunk, context, num_decodes, decode_context, *shape, p.decode.kv_bytes
    )
    alone_s = decode_attention.seconds(p.decode, *gpu, num_decodes, decode_context, *shape)
    return larger(beside_s, alone_s)
