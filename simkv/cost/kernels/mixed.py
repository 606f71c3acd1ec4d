"""Attention of a batch with prefill chunks and decodes in one call.

A mixed batch takes longer than its parts alone because it is not two kernels but one, made for chunks: each
decode becomes a whole tile of one useful row for each query head, walks over its keys alone (no split-KV), and
the heads that share a KV head read it again unless they run at the same time or the L2 cache holds it. With W
waves of decode tiles (batch·heads/S), contexts D on average and D⁺ at most, K and the other letters as in
`simkv.cost.kernels.chunked_attention`:

    keys       max(K,  W_p·p + W_p·(c/2 + r) + W·D + a·D⁺,  D⁺)
    arithmetic t1·max(⌈W_p⌉ - 1, W_p + W - 1) + keys·(seconds a key) + t2·(idle blocks)/S
    memory     (KV of chunks + KV of decodes·(1 + (g/h - 1)·miss)) / (e_m·B)
    time       t0 + (arithmetic⁸ + memory⁸)^(1/8)

g query heads share a KV head, of which h = b·S/(tiles of a head) run side by side, and miss = 1/(1 + (C/F)⁶)
is the share that a cache of C bytes does not hold of the F bytes of one KV head. The grid has as many blocks
for every request as the longest chunk needs; those of decodes return at once (t2), and there are thousands.
Decodes count with their average, so batches of equal sums cost the same but for D⁺: the tail of the last wave.

Form and numbers: LLMServingSim's profiles of vLLM 0.19 (FlashAttention 2) on RTX PRO 6000 and RTX 4090, whose
mixed batches (from 50 µs) take 1.28 and 1.53 times the sum of their parts in the median, and over twice at the
ninetieth percentile. FlashAttention 3 packs the query heads of a KV head into one tile and schedules
dynamically: on Hopper this form is an extrapolation (`simkv.cost.kernels.mixed_penalty` is the compact one).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simkv.cost.kernels.chunked_attention import (
    TileParameters,
    Tiles,
    key_seconds,
    last_keys,
    num_splits,
    tiles,
    tiles_of_all,
)
from simkv.cost.kernels.ufuncs import Timing, Values, larger, smaller, smooth_max

_BINDING_SHARPNESS = 8.0  # arithmetic or memory: the longer one, with a narrow blend
_CACHE_SHARPNESS = 6.0  # from all in the L2 cache to nothing within a doubling


@dataclass(frozen=True)
class MixedParameters:
    """One call for chunks and decodes on one GPU; see the module for the form."""

    tiles: TileParameters
    tail: float  # a: share of the longest decode by which the last tile outlasts the average
    idle_block_s: float  # t2: a thread block that finds no rows, seconds
    memory_efficiency: float  # e_m: share of the memory bandwidth
    concurrency: float  # b: share of the SMs whose blocks walk over the same keys at the same time
    cache_bytes: float  # C: of the L2 cache


def seconds(
    parameters: MixedParameters,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    num_sms: int,
    chunk: Values,
    context: Values,
    num_decodes: Values,
    decode_context: Values,
    heads: Values,
    kv_heads: Values,
    head_dim: Values,
    kv_bytes: float = 2.0,
    longest_decode: Values | None = None,
) -> Values:
    """Seconds of one layer's attention of a chunk over a context beside decodes; scalars or arrays.

    `decode_context` is the mean of the decodes, `longest_decode` the longest if they are uneven. The shape is
    that of one rank: its query and KV heads; `kv_bytes` is of one element of the KV cache.
    """
    work = tiles(parameters.tiles, num_sms, chunk, context, heads)
    longest = decode_context * (num_decodes > 0) if longest_decode is None else longest_decode
    num_idle = num_decodes * (work.num_rows - 1)
    return _timing(
        parameters,
        (peak_flops_per_s, bandwidth_bytes_per_s, num_sms),
        work,
        num_idle * heads,
        context + chunk,
        (num_decodes, num_decodes * decode_context, longest),
        (heads, kv_heads, head_dim),
        kv_bytes,
    ).seconds


def batch_timing(
    parameters: MixedParameters,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    num_sms: int,
    chunks: Sequence[tuple[int, int]],
    num_decodes: int,
    decode_kv_tokens: int,
    max_decode_context: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    kv_bytes: float = 2.0,
) -> Timing:
    """Time of one layer's attention of any batch with at least one chunk; scalars only.

    `chunks` are (tokens, context). One chunk gives what `seconds` gives. Non-decreasing when a chunk or a
    decode is added or lengthened.
    """
    rows = parameters.tiles.tile_rows
    num_rows = [-(-chunk // rows) for chunk, _ in chunks]
    num_idle = num_decodes * (max(num_rows) - 1)  # the grid has as many blocks for every request
    return _timing(
        parameters,
        (peak_flops_per_s, bandwidth_bytes_per_s, num_sms),
        tiles_of_all(rows, num_sms, chunks, num_rows, heads),
        num_idle * heads,
        sum(chunk + context for chunk, context in chunks),
        (num_decodes, decode_kv_tokens, max_decode_context),
        (heads, kv_heads, head_dim),
        kv_bytes,
    )


def _timing(
    parameters: MixedParameters,
    gpu: tuple[float, float, int],
    work: Tiles,
    num_idle: Values,
    chunk_kv_tokens: Values,
    decodes: tuple[Values, Values, Values],
    shape: tuple[Values, Values, Values],
    kv_bytes: float,
) -> Timing:
    p = parameters
    peak_flops_per_s, bandwidth_bytes_per_s, num_sms = gpu
    num_decodes, decode_kv_tokens, longest_decode = decodes
    heads, kv_heads, head_dim = shape
    flow = work.flow_keys + work.triangle_keys + decode_kv_tokens * heads / num_sms
    alone = last_keys(work) / num_splits(p.tiles, work.num_waves)
    keys = larger(larger(alone, flow + p.tail * longest_decode), longest_decode)
    waves = work.num_waves + num_decodes * heads / num_sms
    further = larger(larger(work.whole_waves, waves) - 1, 0)
    compute_s = (
        p.tiles.tile_s * further
        + keys * key_seconds(p.tiles, peak_flops_per_s, num_sms, head_dim)
        + p.idle_block_s * num_idle / num_sms
    )
    token_bytes = 2 * head_dim * kv_bytes  # key and value, one KV head
    group = heads / kv_heads
    side_by_side = smaller(larger(p.concurrency * num_sms / (num_decodes + work.num_rows), 1.0), group)
    footprint = larger(decode_kv_tokens * token_bytes, 1.0)
    miss = 1 / (1 + (p.cache_bytes / footprint) ** _CACHE_SHARPNESS)
    read_tokens = chunk_kv_tokens + decode_kv_tokens * (1 + (group / side_by_side - 1) * miss)
    memory_s = read_tokens * kv_heads * token_bytes / (p.memory_efficiency * bandwidth_bytes_per_s)
    total_s = p.tiles.floor_s + smooth_max(compute_s, memory_s, _BINDING_SHARPNESS)
    return Timing(total_s, memory_s >= compute_s)
