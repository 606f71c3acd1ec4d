"""Collectives inside one node: NCCL's rings and trees, vLLM's custom all-reduce, and the hand-off of a stage.

A group of n GPUs moves (n - 1)/n of a message of `num_bytes` over each GPU's link for a reduce-scatter, an
all-gather or an all-to-all, and twice that for an all-reduce, which is one of each. `num_bytes` is what every
rank holds before an all-reduce or a reduce-scatter, and after an all-gather (the convention of ``nccl-tests``).

Forms, with latencies that grow by the hop:

    ring      (t0ᵖ + (wire/rate_n)ᵖ)^(1/p) + s·x⁸/(1 + x⁸),  x = bytes/(b·(n/2)^g)
    one-shot  t0 + (n - 1)·bytes/rate                 every rank reads all others' messages
    two-shot  t1 + 2·(n - 1)/n·bytes/rate             reduce-scatter and all-gather in one kernel
    eager     the same after a copy into registered memory, or the host's launch if that is longer
    hand-off  (t0ᵖ + (bytes/rate)ᵖ)^(1/p)             from one GPU to another

The second term of a ring is NCCL's change from a low-latency protocol to "Simple", which costs latency and
gains bandwidth; p < 1 is a bandwidth that keeps rising with size. `rate_n` includes what the fabric does:
NVLink SHARP adds up in the switch, so eight H100s pass the line rate of a ring; PCIe cards share host bridges,
so eight are slower than four. Sources of the numbers: whatever table `simkv.calibrate` fitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from simkv.cost.kernels.ufuncs import larger, smaller

# vLLM's `csrc/custom_all_reduce.cuh`: below these sizes every rank reads all messages, from them on two shots;
# two GPUs always take one shot. `num_ranks` up to the key.
ONE_SHOT_MAX_BYTES = ((2, float("inf")), (4, 512 * 1024.0), (8, 256 * 1024.0))
# vLLM's `distributed.device_communicators.custom_all_reduce`: from this size on NCCL takes over.
CUSTOM_MAX_BYTES = 8 * 1024 * 1024
_SWITCH_SHARPNESS = 8.0  # a protocol change is over within a doubling of the size
_LAUNCH_SHARPNESS = 8.0  # host and GPU run side by side: the longer one counts, with a narrow blend
_NUM_PASSES = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}

Sizes: TypeAlias = Mapping[int, float]  # by group size


@dataclass(frozen=True)
class RingParameters:
    """A collective of NCCL on one fabric; see the module for the form."""

    latency_s: float  # smallest message between two GPUs, seconds
    hop_s: float  # what each further GPU adds, seconds
    bytes_per_s: Sizes  # wire rate of an endless message, bytes per second and GPU, by group size
    sharpness: float  # p: 1 adds latency and transfer, below 1 bandwidth rises slowly with size
    switch_s: float = 0.0  # latency that the bandwidth protocol adds between two GPUs, seconds
    switch_hop_s: float = 0.0  # and for each further GPU, seconds
    switch_bytes: float = 1e6  # message between two GPUs at which half of that is paid, bytes
    switch_growth: float = 0.0  # exponent with which that size grows with the group


@dataclass(frozen=True)
class CustomParameters:
    """vLLM's custom all-reduce on one fabric."""

    latency_s: float  # smallest message between two GPUs, inside a CUDA graph, seconds
    hop_s: float  # what each further GPU adds, seconds
    one_shot_bytes_per_s: float  # rate at which a rank reads the others' messages
    two_shot_latency_s: float  # of the two-shot kernel between two GPUs (extrapolated), seconds
    two_shot_hop_s: float  # what each further GPU adds, seconds
    two_shot_bytes_per_s: float  # wire rate of two shots, bytes per second and GPU
    large: RingParameters  # what vLLM falls back to from CUSTOM_MAX_BYTES on
    eager_s: Sizes  # the host's time for a launch without CUDA graph, seconds, by group size
    eager_two_shot_s: Sizes  # the same for two shots
    eager_copy_bytes_per_s: float  # copy into registered memory, of bytes read and written


def wire_bytes(op: str, world_size: Any, num_bytes: Any) -> Any:
    """Bytes that each GPU sends in a ring."""
    return _NUM_PASSES[op] * (world_size - 1) / world_size * num_bytes


def ring_seconds(parameters: RingParameters, op: str, world_size: Any, num_bytes: Any) -> Any:
    """Seconds of a collective of NCCL; 0 in a group of one. Scalars or arrays."""
    p = parameters
    hops = world_size - 2
    transfer_s = wire_bytes(op, world_size, num_bytes) / by_size(p.bytes_per_s, world_size)
    latency_s = p.latency_s + p.hop_s * hops
    ratio = num_bytes / (p.switch_bytes * (world_size / 2) ** p.switch_growth)
    switched = 1 - 1 / (1 + ratio**_SWITCH_SHARPNESS)
    seconds = power_sum(latency_s, transfer_s, p.sharpness)
    return (seconds + (p.switch_s + p.switch_hop_s * hops) * switched) * (world_size > 1)


def send_recv_seconds(parameters: RingParameters, num_bytes: Any) -> Any:
    """Seconds to hand a message from one GPU to another: the whole of it crosses the link."""
    p = parameters
    return power_sum(p.latency_s, num_bytes / by_size(p.bytes_per_s, 2), p.sharpness)


def custom_seconds(
    parameters: CustomParameters, world_size: int, num_bytes: Any, in_graph: bool = True
) -> Any:
    """Seconds of vLLM's all-reduce in a group of `world_size` that has a custom kernel; bytes may be an array.

    A kernel that vLLM changes to at some size is never faster there than the one it leaves.
    """
    p = parameters
    limit = one_shot_max_bytes(world_size)
    hops = world_size - 2
    small = smaller(num_bytes, limit)
    one_shot_s = p.latency_s + p.hop_s * hops + (world_size - 1) * small / p.one_shot_bytes_per_s
    wire = wire_bytes("all_reduce", world_size, smaller(num_bytes, CUSTOM_MAX_BYTES))
    two_shot_s = p.two_shot_latency_s + p.two_shot_hop_s * hops + wire / p.two_shot_bytes_per_s
    large_s = ring_seconds(p.large, "all_reduce", world_size, num_bytes)
    seconds = larger(one_shot_s, (num_bytes >= limit) * two_shot_s)
    seconds = larger(seconds, (num_bytes >= CUSTOM_MAX_BYTES) * large_s)
    if in_graph:
        return seconds
    host_s = by_size(p.eager_s, world_size)
    more_s = max(0.0, by_size(p.eager_two_shot_s, world_size) - host_s)
    host_s = host_s + (num_bytes >= limit) * more_s
    return power_sum(host_s, seconds + 2 * num_bytes / p.eager_copy_bytes_per_s, _LAUNCH_SHARPNESS)


def one_shot_max_bytes(world_size: int) -> float:
    """Size from which the custom kernel of a group takes two shots."""
    return next((limit for size, limit in ONE_SHOT_MAX_BYTES if world_size <= size), 0.0)


def kernel_changes(backend: str, world_size: int) -> tuple[float, ...]:
    """Sizes in bytes from which a backend takes another kernel; NCCL blends its protocols itself."""
    if not backend.startswith("custom"):
        return ()
    limit = one_shot_max_bytes(world_size)
    return tuple(sorted({min(limit, float(CUSTOM_MAX_BYTES)), float(CUSTOM_MAX_BYTES)}))


def power_sum(first: Any, second: Any, power: float) -> Any:
    """(aᵖ + bᵖ)^(1/p): the sum for p = 1, nearly the larger for a high p."""
    if power == 1.0:
        return first + second
    return (first**power + second**power) ** (1 / power)


def by_size(values: Sizes, world_size: Any) -> Any:
    """The value of a group size: on record, else interpolated between its neighbours, or that of the nearest."""
    if not isinstance(world_size, np.ndarray):
        found = values.get(world_size)
        if found is not None:
            return found
    sizes = sorted(values)
    return np.interp(np.log2(np.maximum(world_size, 1)), np.log2(sizes), [values[size] for size in sizes])
