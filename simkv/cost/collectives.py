"""Collectives and hand-offs between GPUs: which backend, over which links, how long.

A group of n ranks lies on consecutive GPUs. Inside a node the ring model holds: all_reduce moves
2·(n - 1)/n of the message over each link, all_gather and reduce_scatter half of that each. Across nodes it
is hierarchical.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simkv.cost.tally import Kernel, Side
from simkv.spec.hardware import HardwareSpec, LinkSpec
from simkv.units import MIB, ceil_div

if TYPE_CHECKING:
    from simkv.cost.fitted import FittedKernels
    from simkv.cost.fitted_collectives import MessageTime

# Bytes from which vLLM 0.32.0 leaves its custom all-reduce to NCCL (`distributed.device_communicators`).
CUSTOM_ALL_REDUCE_MAX_BYTES = 8 * MIB
CUSTOM_ALL_REDUCE_WORLD_SIZES = (2, 4, 6, 8)


class Collectives:
    """Times the collectives of one group of `num_ranks` consecutive GPUs."""

    def __init__(
        self,
        hardware: HardwareSpec,
        num_ranks: int,
        num_gpus_per_node: int,
        disable_custom_all_reduce: bool = False,
        fitted: FittedKernels | None = None,
    ):
        self.hardware = hardware
        self.num_ranks = num_ranks
        self.num_local = min(num_ranks, num_gpus_per_node)
        self.num_nodes = ceil_div(num_ranks, num_gpus_per_node)
        fabric = hardware.node.fabric
        self._is_nvlinked = fabric == "nvswitch" or (fabric == "nvlink_pairs" and num_ranks == 2)
        # Custom all-reduce: one node, even sizes, NVLink between all pairs (two PCIe GPUs are allowed).
        self._has_custom = (
            not disable_custom_all_reduce
            and self.num_nodes == 1
            and num_ranks in CUSTOM_ALL_REDUCE_WORLD_SIZES
            and (self._is_nvlinked or (num_ranks == 2 and hardware.node.pcie.has_peer_to_peer))
        )
        # calibrated on one node whose GPUs are joined as on the measured one
        is_tabled = (
            fitted is not None and self.num_nodes == 1 and 1 < num_ranks <= CUSTOM_ALL_REDUCE_WORLD_SIZES[-1]
        )
        self._fitted = fitted.all_reduce(num_ranks, self._has_custom) if fitted and is_tabled else None
        self._fitted_gather = fitted.one_way("all_gather", num_ranks) if fitted and is_tabled else None
        self._fitted_scatter = fitted.one_way("reduce_scatter", num_ranks) if fitted and is_tabled else None
        node = hardware.node
        link: LinkSpec = node.nvlink if self._is_nvlinked and node.nvlink is not None else node.pcie
        self._local_bytes_per_s = link.bandwidth_bytes_per_s.value * hardware.collective_efficiency(
            self.num_local
        )

    def all_reduce(self, num_bytes: float, in_graph: bool) -> Kernel:
        """Time of an all-reduce of a message of `num_bytes` on every rank."""
        if self.num_ranks == 1:
            return Kernel(0.0, Side.COMM)
        if self._fitted is not None:
            return self._fitted(num_bytes, in_graph)
        kernels = self.hardware.kernels
        if self._has_custom and num_bytes < CUSTOM_ALL_REDUCE_MAX_BYTES:
            floor_s = kernels.all_reduce_small_s.value + (
                0.0 if in_graph else kernels.all_reduce_eager_s.value
            )
            floor_s = min(floor_s, self._nccl_floor_s(2 * (self.num_local - 1)))
        else:
            floor_s = self._nccl_floor_s(2 * (self.num_local - 1))
        return Kernel(floor_s + 2 * self._ring_s(num_bytes) + self._across_nodes_s(num_bytes, 2), Side.COMM)

    def all_gather(self, num_bytes: float) -> Kernel:
        """Time of an all-gather after which every rank holds `num_bytes`."""
        return self._one_way(num_bytes, self._fitted_gather)

    def reduce_scatter(self, num_bytes: float) -> Kernel:
        """Time of a reduce-scatter of a message of `num_bytes` on every rank."""
        return self._one_way(num_bytes, self._fitted_scatter)

    def _one_way(self, num_bytes: float, fitted: MessageTime | None) -> Kernel:
        if self.num_ranks == 1:
            return Kernel(0.0, Side.COMM)
        if fitted is not None:
            return fitted(num_bytes, True)
        floor_s = self._nccl_floor_s(self.num_local - 1)
        return Kernel(floor_s + self._ring_s(num_bytes) + self._across_nodes_s(num_bytes, 1), Side.COMM)

    def _nccl_floor_s(self, num_hops: int) -> float:
        """The smallest message: measured between two GPUs (two hops of an all-reduce), plus further hops."""
        kernels = self.hardware.kernels
        return kernels.nccl_small_s.value + max(0, num_hops - 2) * kernels.nccl_hop_s.value

    def _ring_s(self, num_bytes: float) -> float:
        """Seconds that one pass of a ring inside a node takes for its bytes."""
        return (self.num_local - 1) / self.num_local * num_bytes / self._local_bytes_per_s

    def _across_nodes_s(self, num_bytes: float, num_passes: int) -> float:
        """Each GPU exchanges its share with its peers on the other nodes over its own network card."""
        if self.num_nodes == 1:
            return 0.0
        network = self.hardware.network
        share = num_bytes / self.num_local
        bandwidth = network.bandwidth_bytes_per_s.value * self.hardware.collective_efficiency(self.num_nodes)
        passes_s = (self.num_nodes - 1) / self.num_nodes * share / bandwidth
        return num_passes * (passes_s + (self.num_nodes - 1) * network.latency_s.value)


def send_recv_s(hardware: HardwareSpec, num_bytes: float, crosses_nodes: bool) -> float:
    """Seconds to hand `num_bytes` from one GPU to another: latency and bandwidth of the link between them."""
    node = hardware.node
    if crosses_nodes:
        link: LinkSpec = hardware.network
    else:
        link = node.nvlink if node.fabric == "nvswitch" and node.nvlink is not None else node.pcie
    bandwidth = link.bandwidth_bytes_per_s.value * hardware.collective_efficiency(2)
    return link.latency_s.value + num_bytes / bandwidth
