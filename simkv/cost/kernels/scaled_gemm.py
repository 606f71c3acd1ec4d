"""Matrix products in fp8 by vLLM's CUTLASS kernels: C[m, n] = (A[m, k] · B[k, n]) × scales, 16-bit A and C.

First the activations are quantised, a thread block a row. Then one of three kernels runs, chosen by m alone:
up to 64 rows, up to 128, and beyond; from 8,192 rows with k ≥ 6,144 the last has larger tiles
(``csrc/quantization/w8a8/cutlass/c3x/scaled_mm_sm90_fp8_dispatch.cuh`` of vLLM). None of them splits k, so a
narrow product runs its thread blocks through all of k on a few SMs. With m' = m rounded up to the kernel's rows
(64, 128, 256) and T = ⌈m'/tile_m⌉·⌈n/tile_n⌉ tiles on S SMs:

    quantise   m·max(t_row, t_element·k)
    waves      W = T/S + q·(⌈T/S⌉ - T/S)
    arithmetic a = W·2·tile_m·tile_n·k / (e·F/S)
    memory     b = (n·k + m·k + 2·m·n) / (e_m·B)
    time       t0 + quantise + the largest over the kernels of up to m rows of (aᵖ + bᵖ)^(1/p)

A kernel for few rows bounds those for more from below, and the third kernel at 8,192 rows or k = 6,144 the
larger tiles beyond, so time never falls as m or k grows. Measured time does: from 257 rows on, a last tile of
one row costs more than a full one (H100, 8192 × 8192: m 257 / 512 / 513 take 80 / 57 / 113 µs), and the larger
tiles are faster at once. This form passes between; the residual knows them apart. Numbers: fitted to measured
tables by `simkv.calibrate`.
"""

from __future__ import annotations

from dataclasses import dataclass

from simkv.cost.kernels.ufuncs import Timing, Values, larger, smaller, smooth_max, where

# the kernels for up to 64 rows, up to 128 and more: tile rows, tile columns, rows they round up to
_FEW, _SOME, _MANY = (64, 64, 64), (64, 128, 128), (128, 128, 256)
_HUGE_ROWS, _HUGE_K = 8192, 6144


@dataclass(frozen=True)
class ScaledGemmParameters:
    """fp8 on one GPU; see the module for the form."""

    launch_s: float  # t0: both kernels, empty, seconds
    row_s: float  # t_row: quantising a short row, seconds (many rows run at once)
    element_s: float  # t_element: quantising an element of a long row, seconds
    memory_efficiency: float  # e_m: share of the memory bandwidth that streaming reaches
    few_rows_efficiency: float  # e up to 64 rows: share of the fp8 peak
    some_rows_efficiency: float  # e up to 128 rows
    many_rows_efficiency: float  # e beyond
    huge_efficiency: float  # e from 8,192 rows with k ≥ 6,144
    wave_quantisation: float  # q, 0 to 1
    sharpness: float  # p: how sharply arithmetic gives way to memory
    weight_bytes: float = 1.0  # of one element of B, scales included; not fitted


def timing(
    parameters: ScaledGemmParameters,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    num_sms: int,
    m: Values,
    n: Values,
    k: Values,
) -> Timing:
    """Time of one product and the quantisation before it, scalars or arrays."""
    p = parameters
    num_bytes = p.weight_bytes * n * k + m * k + 2.0 * m * n
    memory_s = num_bytes / (p.memory_efficiency * bandwidth_bytes_per_s)
    flop_s = num_sms / peak_flops_per_s

    def arithmetic_s(kernel: tuple[int, int, int], rows: Values, depth: Values, efficiency: float) -> Values:
        tile_m, tile_n, round_to = kernel
        num_tiles = -(-rows // round_to) * (round_to // tile_m) * -(-n // tile_n)
        share = num_tiles / num_sms
        waves = share + p.wave_quantisation * (-(-num_tiles // num_sms) - share)
        return waves * (2.0 * tile_m * tile_n) * depth * flop_s / efficiency

    compute_s = arithmetic_s(_FEW, smaller(m, 64), k, p.few_rows_efficiency)
    some_s = arithmetic_s(_SOME, smaller(m, 128), k, p.some_rows_efficiency)
    compute_s = larger(compute_s, where(m > 64, some_s, 0.0))
    is_huge = (m >= _HUGE_ROWS) & (k >= _HUGE_K)
    many_s = arithmetic_s(_MANY, m, k, where(is_huge, p.huge_efficiency, p.many_rows_efficiency))
    fewer_rows_s = arithmetic_s(_MANY, smaller(m, _HUGE_ROWS), k, p.many_rows_efficiency)
    less_deep_s = arithmetic_s(_MANY, m, smaller(k, _HUGE_K), p.many_rows_efficiency)
    many_s = larger(many_s, larger(fewer_rows_s, less_deep_s))
    compute_s = larger(compute_s, where(m > 128, many_s, 0.0))
    quantise_s = m * larger(p.row_s, p.element_s * k)
    total_s = p.launch_s + quantise_s + smooth_max(compute_s, memory_s, p.sharpness)
    return Timing(total_s, memory_s >= compute_s)


def seconds(
    parameters: ScaledGemmParameters,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    num_sms: int,
    m: Values,
    n: Values,
    k: Values,
) -> Values:
    """Seconds of one product and the quantisation before it, scalars or arrays."""
    return timing(parameters, peak_flops_per_s, bandwidth_bytes_per_s, num_sms, m, n, k).seconds
