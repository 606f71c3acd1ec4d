"""Attention of one token each of `batch` sequences over `context` tokens of KV: FlashAttention with split KV.

A sequence and KV head is one unit of work, U = batch·kv_heads of them on S SMs; while U < S a unit is cut into
up to `max_splits` pieces of at least 64 tokens, whose results are then combined.

    splits     s = S/U, between 1 and x = min(max_splits, context/64)
    waves      W = U/S + q·(⌈U/S⌉ - U/S), at least 1
    serial     a = W·(t1 + t_row·heads/kv_heads) + t_token·max(context·U/S, longest/x, 64)
    bytes      X = KV bytes of all sequences + 16-bit queries and outputs
    stream     y = X/(e·B)
    memory     b = h·y/c + (1 - h)·(y + t2·y/(y + t2)),   h = 1 up to X₀ bytes, 0 from 2·X₀
    time       t0 + t3·log₂(x) + (aᵖ + bᵖ)^(1/p),  and no less than the longest sequence's s pieces alone take

`h` is the share that the level-2 cache serves: tables are measured with one KV tensor over and over, which fits
there up to about 35 MB on an H100. A server reads the layers in turn and finds each in memory: `cold` says so.
Few units reach little of the bandwidth because a thread block has a serial rate (t_token): one sequence with one
KV head of 131,072 tokens on an H100 gets 39 %. fp8 KV halves the bytes, not the serial time. Time grows with
batch and context; at a fixed number of tokens more sequences can be faster, as on hardware.

Sources: Dao et al., "Flash-Decoding" (2023); at most 32 splits in vLLM's CUDA graphs
(`flash_attn_max_num_splits_for_cuda_graph`); numbers fitted to measured tables by `simkv.calibrate`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log2 as scalar_log2

from simkv.cost.kernels.ufuncs import Timing, Values, larger, log2, smaller, smooth_max, where

_PIECE_TOKENS = 64.0


@dataclass(frozen=True)
class DecodeAttentionParameters:
    """One KV dtype on one GPU; see the module for the form."""

    launch_s: float  # t0: the shortest call, seconds
    block_s: float  # t1: a thread block, however short its context, seconds
    row_s: float  # t_row: each query head that shares the KV head, seconds
    token_s: float  # t_token: a thread block's time for a token of its piece, seconds
    wave_quantisation: float  # q, 0 to 1
    memory_efficiency: float  # e: share of the memory bandwidth that streaming reaches
    cache_speedup: float  # c, at least 1: how much faster the level-2 cache is
    cache_bytes: float  # X₀: KV of one call that the cache holds, bytes; 0 = nothing is ever found there
    memory_s: float  # t2: filling and draining the memory pipeline, seconds; less for less than fills it
    combine_s: float  # t3: combining splits, seconds for each doubling of their possible number
    sharpness: float  # p: how sharply serial time gives way to memory
    kv_bytes: float = 2.0  # of one element of the KV cache; not fitted
    max_splits: int = 32  # not fitted
    splits_equal_heads: bool = True  # False: FlashAttention 2, which never splits when heads = kv_heads

    def cold(self) -> DecodeAttentionParameters:
        """As in a server, where other layers have pushed a layer's KV out of the cache."""
        return replace(self, cache_bytes=0.0)


def timing(
    parameters: DecodeAttentionParameters,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    num_sms: int,
    batch: Values,
    context: Values,
    heads: Values,
    kv_heads: Values,
    head_dim: Values,
    longest_context: Values | None = None,
    wait_s: Values = 0.0,
) -> Timing:
    """Time of one layer's call, scalars or arrays. Serial time counts as arithmetic; the peak binds nothing.

    `context` is the mean of uneven contexts, `longest_context` then the longest, and `wait_s` what memory's time
    grows by because the longest is waited for (`simkv.cost.kernels.mixed_penalty`).
    """
    p = parameters
    units = batch * kv_heads
    longest = context if longest_context is None else longest_context
    max_splits = smaller(p.max_splits, larger(longest / _PIECE_TOKENS, 1.0))
    if not p.splits_equal_heads:
        max_splits = where(heads == kv_heads, 1.0, max_splits)
    num_splits = larger(smaller(num_sms / units, max_splits), 1.0)
    share = units / num_sms
    waves = larger(share + p.wave_quantisation * (-(-units // num_sms) - share), 1.0)
    piece_s = p.block_s + p.row_s * heads / kv_heads
    keys = larger(larger(context * share, longest / max_splits), _PIECE_TOKENS)
    serial_s = waves * piece_s + p.token_s * keys
    num_bytes = batch * head_dim * (2.0 * p.kv_bytes * context * kv_heads + 4.0 * heads)
    missing = larger(smaller(num_bytes / p.cache_bytes - 1.0, 1.0), 0.0) if p.cache_bytes else 1.0
    stream_s = num_bytes / (p.memory_efficiency * bandwidth_bytes_per_s)
    filling_s = p.memory_s * stream_s / (stream_s + p.memory_s)
    memory_s = stream_s * (missing + (1.0 - missing) / p.cache_speedup) + missing * filling_s + wait_s
    busy_s = smooth_max(serial_s, memory_s, p.sharpness)
    if longest_context is not None:
        busy_s = larger(busy_s, piece_s + p.token_s * longest / num_splits)
    total_s = p.launch_s + p.combine_s * log2(max_splits) + busy_s
    return Timing(total_s, memory_s >= serial_s)


def at_batch(
    parameters: DecodeAttentionParameters,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    num_sms: int,
    batch: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    wait_per_token_s: float = 0.0,
) -> Callable[[float, float], tuple[float, bool]]:
    """Return `timing` as a function of the mean and the longest context alone, three times as fast on scalars.

    `wait_per_token_s` is `wait_s` for each token that the longest is longer than the mean.
    """
    p = parameters
    units = batch * kv_heads
    share, splits_of_sms = units / num_sms, num_sms / units
    waves = max(share + p.wave_quantisation * (-(-units // num_sms) - share), 1.0)
    piece_s = p.block_s + p.row_s * heads / kv_heads
    waves_s = waves * piece_s
    has_splits = p.splits_equal_heads or heads != kv_heads
    token_bytes, row_bytes = batch * head_dim * 2.0 * p.kv_bytes * kv_heads, batch * head_dim * 4.0 * heads
    byte_s = 1.0 / (p.memory_efficiency * bandwidth_bytes_per_s)
    token_s, fill_s, sharpness, max_splits = p.token_s, p.memory_s, p.sharpness, float(p.max_splits)
    launch_s, combine_s, cache_bytes, speedup = p.launch_s, p.combine_s, p.cache_bytes, p.cache_speedup

    def timing_at(context: float, longest: float) -> tuple[float, bool]:
        splits = min(max_splits, max(longest / _PIECE_TOKENS, 1.0)) if has_splits else 1.0
        num_splits = max(min(splits_of_sms, splits), 1.0)
        serial_s = waves_s + token_s * max(context * share, longest / splits, _PIECE_TOKENS)
        num_bytes = token_bytes * context + row_bytes
        missing = max(min(num_bytes / cache_bytes - 1.0, 1.0), 0.0) if cache_bytes else 1.0
        stream_s = num_bytes * byte_s
        memory_s = stream_s * (missing + (1.0 - missing) / speedup)
        memory_s += missing * fill_s * stream_s / (stream_s + fill_s)
        memory_s += wait_per_token_s * (longest - context)
        most, least = (memory_s, serial_s) if memory_s >= serial_s else (serial_s, memory_s)
        busy_s = most * (1.0 + (least / most) ** sharpness) ** (1.0 / sharpness)
        busy_s = max(busy_s, piece_s + token_s * longest / num_splits)
        return launch_s + combine_s * scalar_log2(splits) + busy_s, memory_s >= serial_s

    return timing_at


def seconds(
    parameters: DecodeAttentionParameters,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    num_sms: int,
    batch: Values,
    context: Values,
    heads: Values,
    kv_heads: Values,
    head_dim: Values,
) -> Values:
    """Seconds of one layer's call, scalars or arrays."""
    shape = (batch, context, heads, kv_heads, head_dim)
    return timing(parameters, peak_flops_per_s, bandwidth_bytes_per_s, num_sms, *shape).seconds
