"""Matrix products of cuBLAS: C[m, n] = A[m, k] · B[k, n] in 16 bits.

The result is cut into tiles, and every SM computes one tile at a time. Two tile shapes stand for the many of
the library: 64 × 128 and 128 × 256. `s` thread blocks may share a tile along k (split-k) when there are fewer
tiles than SMs. For T tiles, C = s·T thread blocks on S SMs:

    waves      W = C/S + q·(⌈C/S⌉ - C/S), at least w                 (large tile: ⌈C/S⌉, no split)
    arithmetic a = W·(2·tile_m·tile_n·(k/s) / (e·F/S) + t1) + [s > 1]·r·4·m·n·s/B
    memory     b = (weight bytes·n·k + 2·m·k + 2·m·n) / (e_m·B)
    time       t0 + min over tiles and splits of (aᵖ + bᵖ)^(1/p)

q = 1 is full quantisation by waves (A100: a 109th tile costs as much as 108), q ≈ 0 none (Hopper's persistent
kernels). The minimum of forms that grow with m, n and k grows with them too. Where the form comes from: NVIDIA,
"Matrix Multiplication Background User's Guide" (tile and wave quantisation); split-k as in CUTLASS; the numbers
from measured tables by `simkv.calibrate`.
"""

from __future__ import annotations

from dataclasses import dataclass

from simkv.cost.kernels.ufuncs import Timing, Values, larger, smaller, smooth_max, where

SMALL_TILE = (64, 128)
LARGE_TILE = (128, 256)
SPLITS = (2, 4, 8)
_ACCUMULATOR_BYTES = 4.0  # partial sums of a split are float32


@dataclass(frozen=True)
class GemmParameters:
    """One dtype on one GPU; see the module for the form."""

    launch_s: float  # t0: an empty product, seconds
    memory_efficiency: float  # e_m: share of the memory bandwidth that streaming reaches
    small_tile_efficiency: float  # e of 64 × 128 tiles: share of the peak
    large_tile_efficiency: float  # e of 128 × 256 tiles
    wave_quantisation: float  # q, 0 to 1, of small tiles
    lone_wave: float  # w: the shortest wave, in waves; below 1 a lone thread block runs faster on its SM
    tile_s: float  # t1: prologue and epilogue of a tile, seconds
    split_traffic: float  # r: passes over memory for each partial sum of split-k
    sharpness: float  # p: how sharply arithmetic gives way to memory
    weight_bytes: float = 2.0  # of one element of B, scales included; not fitted
    activation_bytes: float = 2.0  # of one element of A and C; not fitted


def timing(
    parameters: GemmParameters,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    num_sms: int,
    m: Values,
    n: Values,
    k: Values,
) -> Timing:
    """Time of one product, scalars or arrays."""
    p = parameters
    num_bytes = p.weight_bytes * n * k + p.activation_bytes * m * (n + k)
    memory_s = num_bytes / (p.memory_efficiency * bandwidth_bytes_per_s)
    # of a large tile, never split
    tile_m, tile_n = LARGE_TILE
    waves = -(-(-(-m // tile_m) * -(-n // tile_n)) // num_sms)
    flop_s = num_sms / (p.large_tile_efficiency * peak_flops_per_s)
    compute_s = waves * (2 * tile_m * tile_n * k * flop_s + p.tile_s)
    best_s = smooth_max(compute_s, memory_s, p.sharpness)
    # of a small tile, whole or split among thread blocks
    tile_m, tile_n = SMALL_TILE
    num_tiles = -(-m // tile_m) * -(-n // tile_n)
    tile_s = 2 * tile_m * tile_n * k * num_sms / (p.small_tile_efficiency * peak_flops_per_s)
    small_s = _num_waves(p, num_tiles, num_sms) * (tile_s + p.tile_s)
    compute_s = smaller(compute_s, small_s)
    best_s = smaller(best_s, smooth_max(small_s, memory_s, p.sharpness))
    if not isinstance(num_tiles, int | float) or num_tiles < num_sms:
        reduce_s = p.split_traffic * _ACCUMULATOR_BYTES * m * n / bandwidth_bytes_per_s
        for num_splits in SPLITS:
            small_s = _num_waves(p, num_tiles * num_splits, num_sms) * (tile_s / num_splits + p.tile_s)
            split_s = smooth_max(small_s, memory_s, p.sharpness) + reduce_s * num_splits
            best_s = smaller(best_s, where(num_tiles < num_sms, split_s, best_s))
            compute_s = smaller(compute_s, where(num_tiles < num_sms, small_s, compute_s))
    return Timing(p.launch_s + best_s, memory_s >= compute_s)


def seconds(
    parameters: GemmParameters,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    num_sms: int,
    m: Values,
    n: Values,
    k: Values,
) -> Values:
    """Seconds of one product, scalars or arrays."""
    return timing(parameters, peak_flops_per_s, bandwidth_bytes_per_s, num_sms, m, n, k).seconds


def _num_waves(parameters: GemmParameters, num_blocks: Values, num_sms: int) -> Values:
    """Rounds in which `num_blocks` thread blocks of small tiles pass over the SMs."""
    share = num_blocks / num_sms
    rounded = -(-num_blocks // num_sms)
    return larger(share + parameters.wave_quantisation * (rounded - share), parameters.lone_wave)
