"""Matrix products: weights are streamed once, rows are computed in tiles."""

from __future__ import annotations

from simkv.cost.tally import Kernel, roofline
from simkv.spec.hardware import HardwareSpec
from simkv.units import ceil_div


def gemm(
    hardware: HardwareSpec,
    m: int,
    n: int,
    k: int,
    compute_dtype: str,
    weight_bytes: float,
    activation_bytes: float = 2.0,
) -> Kernel:
    """Time of C[m, n] = A[m, k] · B[k, n].

    2·m'·n·k FLOPs with m' = m rounded up to a tile, over peak × efficiency; bytes of A, B and C over the
    bandwidth × efficiency; the slower binds. `weight_bytes` is per element of B, scales included.
    """
    gpu, kernels = hardware.gpu, hardware.kernels
    tile = int(kernels.gemm_tile_m.value)
    efficiency = kernels.gemm_compute_efficiency
    if compute_dtype == "fp8" and kernels.gemm_fp8_compute_efficiency is not None:
        efficiency = kernels.gemm_fp8_compute_efficiency
    flops = 2.0 * ceil_div(m, tile) * tile * n * k
    num_bytes = weight_bytes * n * k + activation_bytes * m * (n + k)
    return roofline(
        flops / (gpu.peak_flops_per_s[compute_dtype].value * efficiency.value),  # type: ignore[index]
        num_bytes / (gpu.hbm_bandwidth_bytes_per_s.value * kernels.gemm_memory_efficiency.value),
        gpu.kernel_launch_s.value,
    )


def elementwise(hardware: HardwareSpec, num_bytes: float) -> Kernel:
    """Time of a kernel that only moves bytes: norms, rotary embedding, activation, sampler passes."""
    bandwidth = hardware.gpu.hbm_bandwidth_bytes_per_s.value
    memory_s = num_bytes / (bandwidth * hardware.kernels.elementwise_memory_efficiency.value)
    floor = hardware.kernels.elementwise_floor_s or hardware.gpu.kernel_launch_s
    return roofline(0.0, memory_s, floor.value)
