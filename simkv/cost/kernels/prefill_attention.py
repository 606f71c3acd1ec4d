"""Causal attention of `batch` whole prompts of `chunk` tokens each, and the writing of their KV to the cache.

Every query head and block of 64 queries is a unit of work; it reads all keys up to its own. With N = ⌈chunk/64⌉
blocks, U = batch·heads·N units on S SMs and u = 4·64·64·head_dim / (e·F/S) seconds a square of 64 × 64:

    in all     a = U·((N + 1)/2·u + t1) / S
    longest    b = N·u + t1                        the last block of a prompt, on one SM
    Q, O, KV   c = batch·chunk·head_dim·(4·heads + (4 + kv bytes·2)·kv_heads) / (e_m·B)
    KV write   d = batch·chunk·t_kv·(min(kv_heads·head_dim, 512)/512)^x
    time       t0 + (aᵖ + bᵖ)^(1/p) + c + d

So efficiency grows with the prompt (diagonal blocks are half wasted, launch and traffic fade) and with
batch·heads·chunk (few units leave SMs idle). `d` is vLLM's `reshape_and_cache`, a thread block a token with a
thread for each of up to 512 elements: 4 KV heads of 128 cost four to ten times what one does, 8 no more than 4.
No prompt reads a prefix here; for a chunk over a prefix see `chunked_attention`.

Sources: Dao, "FlashAttention-2" (2023) for the work of causal blocks; numbers fitted to measured tables by
`simkv.calibrate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simkv.cost.kernels.ufuncs import Timing, Values, larger, smaller, smooth_max

BLOCK_TOKENS = 64
_WRITE_THREADS = 512.0
_MAX_SPLITS = 32.0  # vLLM's `flash_attn_max_num_splits_for_cuda_graph`


@dataclass(frozen=True)
class PrefillAttentionParameters:
    """One KV dtype on one GPU; see the module for the form."""

    launch_s: float  # t0: the shortest call, seconds
    efficiency: float  # e: share of the peak of long prompts
    block_s: float  # t1: a block of 64 queries, however few keys it sees, seconds
    sharpness: float  # p: 1 = the longest unit runs after all others, larger = beside them
    memory_efficiency: float  # e_m: share of the memory bandwidth of the traffic of Q, K, V and O
    kv_write_s: float  # t_kv: writing a token's KV of 512 elements or more, seconds (tokens run side by side)
    kv_write_growth: float  # x: how that time grows with the elements up to 512
    kv_bytes: float = 2.0  # of one element of the KV cache; not fitted


def timing(
    parameters: PrefillAttentionParameters,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    num_sms: int,
    batch: Values,
    chunk: Values,
    heads: Values,
    kv_heads: Values,
    head_dim: Values,
) -> Timing:
    """Time of one layer's call, scalars or arrays."""
    p = parameters
    num_blocks = -(-chunk // BLOCK_TOKENS)
    square_s = 4 * BLOCK_TOKENS**2 * head_dim * num_sms / (p.efficiency * peak_flops_per_s)
    all_s = batch * heads * num_blocks * ((num_blocks + 1) / 2 * square_s + p.block_s) / num_sms
    longest_s = num_blocks * square_s + p.block_s
    compute_s = smooth_max(all_s, longest_s, p.sharpness)
    num_tokens = batch * chunk
    num_bytes = num_tokens * head_dim * (4.0 * heads + (4.0 + 2.0 * p.kv_bytes) * kv_heads)
    write_s = _write_seconds(p, kv_heads * head_dim)
    memory_s = num_bytes / (p.memory_efficiency * bandwidth_bytes_per_s) + num_tokens * write_s
    return Timing(p.launch_s + compute_s + memory_s, memory_s >= compute_s)


def batch_timing(
    parameters: PrefillAttentionParameters,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    num_sms: int,
    chunks: Sequence[tuple[int, int]],
    heads: int,
    kv_heads: int,
    head_dim: int,
) -> Timing:
    """Time of one layer's call for chunks of (tokens, context) of any sizes; scalars only.

    Equal chunks without context take what `timing` says. A context adds its squares to every block, and its KV
    is read once; among SMs that would idle up to 32 share it (split-KV). No public table has such a point on
    Hopper: an extrapolation.
    """
    p = parameters
    square_s = 4 * BLOCK_TOKENS**2 * head_dim * num_sms / (p.efficiency * peak_flops_per_s)
    num_units = work = num_tokens = num_context = 0.0
    longest = longest_context = 0.0
    for chunk, context in chunks:
        num_blocks = -(-chunk // BLOCK_TOKENS)
        num_units += heads * num_blocks
        work += heads * num_blocks * ((num_blocks + 1) / 2 + context / BLOCK_TOKENS)
        longest = larger(longest, num_blocks)
        longest_context = larger(longest_context, context / BLOCK_TOKENS)
        num_tokens += chunk
        num_context += context
    all_s = (work * square_s + num_units * p.block_s) / num_sms
    num_splits = larger(smaller(num_sms / num_units, _MAX_SPLITS), 1.0)
    longest_s = (longest + longest_context / num_splits) * square_s + p.block_s
    compute_s = smooth_max(all_s, longest_s, p.sharpness)
    num_bytes = num_tokens * head_dim * (4.0 * heads + (4.0 + 2.0 * p.kv_bytes) * kv_heads)
    num_bytes += num_context * head_dim * 2.0 * p.kv_bytes * kv_heads
    memory_s = num_bytes / (p.memory_efficiency * bandwidth_bytes_per_s)
    memory_s += num_tokens * _write_seconds(p, kv_heads * head_dim)
    return Timing(p.launch_s + compute_s + memory_s, memory_s >= compute_s)


def _write_seconds(p: PrefillAttentionParameters, width: Values) -> Values:
    """Seconds of writing one token's keys to the cache."""
    return p.kv_write_s * (smaller(width, _WRITE_THREADS) / _WRITE_THREADS) ** p.kv_write_growth


def seconds(
    parameters: PrefillAttentionParameters,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    num_sms: int,
    batch: Values,
    chunk: Values,
    heads: Values,
    kv_heads: Values,
    head_dim: Values,
) -> Values:
    """Seconds of one layer's call, scalars or arrays."""
    shape = (batch, chunk, heads, kv_heads, head_dim)
    return timing(parameters, peak_flops_per_s, bandwidth_bytes_per_s, num_sms, *shape).seconds
