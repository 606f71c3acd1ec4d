"""Kernels that only move bytes (norms, rotary embedding, activation, embedding, sampler), and the head.

    bytes      tokens·width·(bytes an element)
    waves      w = ⌈tokens/S⌉                    a thread block a row, one on each of S SMs at a time
    time       t0 + t1·width + t2·(w - 1) + bytes·((1 - miss)/r + miss/(e·B)),   miss = 1/(1 + (C/bytes)^k)

Small tensors are still in the L2 cache, written there by the kernel before, and stream at the cache's rate r;
once they outgrow it (C bytes), at the memory's. An activation on an RTX PRO 6000 takes 15 µs for 73 MB and 29 µs
for 78 MB; rotary embedding there takes a step up at every multiple of 188 rows. Up to 16 rows PyTorch looks
embeddings up one after the other (3 to 6 µs, then 3 again): that dip is the residual's, as forms do not fall.
The head is one product with a large weight, over rows in tiles of 64:

    time       t0 + ((2·(n·k + m·k + m·n)/(e_m·B))⁸ + (2·m'·n·k/(e·F))⁸)^(1/8)

Numbers: LLMServingSim's profiles of vLLM 0.19 on RTX 4090 and RTX PRO 6000.
"""

from __future__ import annotations

from dataclasses import dataclass

from simkv.cost.kernels.ufuncs import Timing, Values, smaller, smooth_max

# Bytes that a kernel reads and writes for each element that it puts out, in 16 bits; the norms add the residual
# first (two read, two written), an activation multiplies gate and up, the sampler works on float32.
BYTES_PER_ELEMENT = {
    "embedding": 4.0,
    "layernorm": 8.0,
    "final_layernorm": 8.0,
    "rotary_emb": 4.0,
    "act_fn": 6.0,
    "sampler": 8.0,
    "reshape_and_cache": 4.0,
    # what the collector measures in their stead, see `simkv.cost.stand_ins`
    "copy": 4.0,
    "rms_norm": 4.0,
    "glu": 6.0,
    "gather": 4.0,
}
_HEAD_TILE = 64
_HEAD_SHARPNESS = 8.0


@dataclass(frozen=True)
class ElementwiseParameters:
    """One kernel on one GPU; see the module for the form."""

    floor_s: float  # t0: a single token, seconds
    cached_bytes_per_s: float  # r: while the tensors stay in the L2 cache
    cache_bytes: float  # C: bytes moved at which half comes from memory
    memory_efficiency: float  # e: share of the memory bandwidth beyond that
    sharpness: float  # k: how sharply cache gives way to memory
    bytes_per_element: float  # moved for each element put out; not fitted
    element_s: float = 0.0  # t1: what a row takes for each of its elements, however few the rows, seconds
    wave_s: float = 0.0  # t2: a further row on every SM, seconds
    wave_rows: int = 1  # S: rows that run side by side, the SMs; not fitted


@dataclass(frozen=True)
class HeadParameters:
    """The product with the vocabulary on one GPU; see the module for the form."""

    floor_s: float  # t0, seconds
    memory_efficiency: float  # e_m: share of the memory bandwidth
    efficiency: float  # e: share of the peak


def seconds(
    parameters: ElementwiseParameters, bandwidth_bytes_per_s: float, tokens: Values, width: Values
) -> Values:
    """Seconds of a kernel that puts out `width` elements for each of `tokens`; scalars or arrays."""
    p = parameters
    num_bytes = tokens * width * p.bytes_per_element
    miss = 1 / (1 + (p.cache_bytes / num_bytes) ** p.sharpness)
    memory_rate = smaller(p.memory_efficiency * bandwidth_bytes_per_s, p.cached_bytes_per_s)
    rows_s = p.element_s * width + p.wave_s * (-(-tokens // p.wave_rows) - 1)
    return p.floor_s + rows_s + num_bytes * ((1 - miss) / p.cached_bytes_per_s + miss / memory_rate)


def head_timing(
    parameters: HeadParameters,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    tokens: Values,
    n: Values,
    k: Values,
) -> Timing:
    """Time of logits of `tokens` rows over a vocabulary of `n` from hidden states of `k`; scalars or arrays."""
    p = parameters
    memory_s = 2 * (n * k + tokens * (n + k)) / (p.memory_efficiency * bandwidth_bytes_per_s)
    rows = -(-tokens // _HEAD_TILE) * _HEAD_TILE
    compute_s = 2 * rows * n * k / (p.efficiency * peak_flops_per_s)
    return Timing(p.floor_s + smooth_max(memory_s, compute_s, _HEAD_SHARPNESS), memory_s >= compute_s)


def head_seconds(
    parameters: HeadParameters,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    tokens: Values,
    n: Values,
    k: Values,
) -> Values:
    """Seconds of the same."""
    return head_timing(parameters, peak_flops_per_s, bandwidth_bytes_per_s, tokens, n, k).seconds
