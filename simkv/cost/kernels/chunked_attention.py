"""Attention of prefill chunks over their cached prefixes, in tiles of query rows.

FlashAttention cuts the c query rows of a chunk into tiles of `tile_rows`, one thread block for each tile and
query head. A block walks over all the keys that its rows may see and one SM holds one block, so for heads·⌈c/64⌉
blocks on S SMs, W = blocks/S waves:

    keys     K = max(⌈W⌉·p + W·(c/2 + r) + c/2,  p + c)            that the last SM has walked over
    time     t0 + t1·(⌈W⌉ - 1) + K/s·(4·r·head_dim / (e·F/S))      r rows a tile, s splits of the keys

The prefix p costs whole waves: 257 tokens of 32 heads take twice the time of 256 on 128 SMs. The causal
triangle costs its average, a row of tiles more for the masked halves, and a tail: the longest tile comes last.
Few tiles leave SMs idle, so a chunk of 16 tokens over a long prefix takes as long as one of 256, unless the
kernel splits the keys (`max_num_splits` > 1), which vLLM 0.19's FlashAttention 2 does for decodes only. Splits
fill a last wave, too, so chunks alone in their batch then take no whole waves:

    split    K = max(W·p + W·(c/2 + r) + min(W, 1)·c/2,  (p + c)/s)

Form: from FlashAttention 2's grid and the measured wave edges of LLMServingSim's profiles of vLLM 0.19 (RTX
4090, RTX PRO 6000, 16 and 32 heads); the edges lie where tiles of 64 rows, one a SM, put them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simkv.cost.kernels.ufuncs import Timing, Values, larger, smaller


@dataclass(frozen=True)
class TileParameters:
    """A tiled attention kernel on one GPU; see the module for the form."""

    floor_s: float  # t0: the shortest call, its first tile's start and end included, seconds
    tile_s: float  # t1: start and end of each further tile on an SM, seconds
    efficiency: float  # e: share of an SM's peak that a tile reaches, masked rows counted
    tile_rows: int = 64  # r: query rows of a tile; not fitted
    max_num_splits: int = 1  # blocks that may share one tile's keys when SMs would idle; not fitted


class Tiles(NamedTuple):
    """Work of the chunks of a batch, in keys that a tile walks over."""

    num_rows: Values  # tiles of one head
    num_waves: Values  # W
    whole_waves: Values  # ⌈W⌉
    prefix_keys: Values  # of the last SM over the prefixes, in whole waves
    flow_keys: Values  # of the average SM over the prefixes
    triangle_keys: Values  # of the average SM inside the chunks
    tail_keys: Values  # by which the last tile outlasts the average
    longest_keys: Values  # of the longest tile


def key_seconds(
    parameters: TileParameters, peak_flops_per_s: float, num_sms: int, head_dim: Values
) -> Values:
    """Seconds that a tile takes for each key: query × key and weight × value, 2 FLOPs each."""
    p = parameters
    return 4 * p.tile_rows * head_dim * num_sms / (p.efficiency * peak_flops_per_s)


def tiles(parameters: TileParameters, num_sms: int, chunk: Values, context: Values, heads: Values) -> Tiles:
    """Tile up one chunk over its context."""
    rows = parameters.tile_rows
    num_rows = -(-chunk // rows)
    waves = num_rows * heads / num_sms
    whole = -(-num_rows * heads // num_sms)
    return Tiles(
        num_rows,
        waves,
        whole,
        prefix_keys=whole * context,
        flow_keys=waves * context,
        triangle_keys=waves * (chunk / 2 + rows),
        tail_keys=chunk / 2,
        longest_keys=context + chunk,
    )


def tiles_of_all(
    rows: int, num_sms: int, chunks: Sequence[tuple[int, int]], num_rows: Sequence[int], heads: int
) -> Tiles:
    """Tile up unequal chunks: over the keys that only the longest prefixes have, only their tiles wait."""
    total = sum(num_rows)
    flow = triangle = 0.0
    prefix = so_far = 0
    by_context = sorted(
        ((context, n) for (_, context), n in zip(chunks, num_rows, strict=True)), reverse=True
    )
    for index, (context, n) in enumerate(by_context):
        so_far += n
        shorter = by_context[index + 1][0] if index + 1 < len(by_context) else 0
        prefix += -(-so_far * heads // num_sms) * (context - shorter)
    for (chunk, context), n in zip(chunks, num_rows, strict=True):
        waves = n * heads / num_sms
        flow += waves * context
        triangle += waves * (chunk / 2 + rows)
    return Tiles(
        total,
        total * heads / num_sms,
        -(-total * heads // num_sms),
        prefix,
        flow,
        triangle,
        tail_keys=max(chunk for chunk, _ in chunks) / 2,
        longest_keys=max(chunk + context for chunk, context in chunks),
    )


def last_keys(work: Tiles) -> Values:
    """Keys that the last SM has walked over when chunks are alone in their batch."""
    return larger(work.prefix_keys + work.triangle_keys + work.tail_keys, work.longest_keys)


def num_splits(parameters: TileParameters, num_waves: Values) -> Values:
    """Thread blocks that share a tile's keys: as many as idle SMs allow, up to the kernel's limit."""
    if parameters.max_num_splits == 1:
        return 1.0
    return smaller(larger(1 / num_waves, 1.0), float(parameters.max_num_splits))


def timing(
    parameters: TileParameters,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    num_sms: int,
    chunk: Values,
    context: Values,
    heads: Values,
    kv_heads: Values,
    head_dim: Values,
    kv_bytes: float = 2.0,
) -> Timing:
    """Time of one layer's attention of one chunk alone, scalars or arrays; at least that of reading its KV once."""
    work = tiles(parameters, num_sms, chunk, context, heads)
    gpu = (peak_flops_per_s, bandwidth_bytes_per_s, num_sms)
    return _alone(parameters, gpu, work, chunk + context, kv_heads, head_dim, kv_bytes)


def seconds(
    parameters: TileParameters,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    num_sms: int,
    chunk: Values,
    context: Values,
    heads: Values,
    kv_heads: Values,
    head_dim: Values,
) -> Values:
    """Seconds of the same."""
    shape = (chunk, context, heads, kv_heads, head_dim)
    return timing(parameters, peak_flops_per_s, bandwidth_bytes_per_s, num_sms, *shape).seconds


def batch_timing(
    parameters: TileParameters,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    num_sms: int,
    chunks: Sequence[tuple[int, int]],
    heads: int,
    kv_heads: int,
    head_dim: int,
    kv_bytes: float = 2.0,
) -> Timing:
    """Time of one layer's call for chunks of (tokens, context) of any sizes, without decodes; scalars only.

    One chunk gives what `timing` gives. Non-decreasing when a chunk is added or lengthened.
    """
    rows = parameters.tile_rows
    work = tiles_of_all(rows, num_sms, chunks, [-(-chunk // rows) for chunk, _ in chunks], heads)
    gpu = (peak_flops_per_s, bandwidth_bytes_per_s, num_sms)
    num_keys = sum(chunk + context for chunk, context in chunks)
    return _alone(parameters, gpu, work, num_keys, kv_heads, head_dim, kv_bytes)


def _alone(
    p: TileParameters,
    gpu: tuple[float, float, int],
    work: Tiles,
    num_keys: Values,
    kv_heads: Values,
    head_dim: Values,
    kv_bytes: float,
) -> Timing:
    peak_flops_per_s, bandwidth_bytes_per_s, num_sms = gpu
    keys, waves = last_keys(work), work.whole_waves
    if p.max_num_splits > 1:
        waves = work.num_waves
        shared = work.flow_keys + work.triangle_keys + smaller(waves, 1.0) * work.tail_keys
        keys = larger(shared, work.longest_keys / p.max_num_splits)
    walk_s = key_seconds(p, peak_flops_per_s, num_sms, head_dim) * keys
    compute_s = p.tile_s * larger(waves - 1, 0) + walk_s
    memory_s = 2.0 * kv_bytes * num_keys * kv_heads * head_dim / bandwidth_bytes_per_s
    return Timing(p.floor_s + larger(compute_s, memory_s), memory_s >= compute_s)
