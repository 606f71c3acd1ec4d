"""A box of GPUs: what one GPU can do, how the GPUs of a node and the nodes are joined, and the host.

Every number is a `Quantity`: a value with the place it comes from.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from simkv.spec.base import PositiveInt, Spec, as_tuple
from simkv.spec.calibration import CalibrationSpec
from simkv.units import parse_quantity

_MINOR_VERSION = re.compile(r"[0-9]+\.[0-9]+")
_FAR = 10**6  # versions: further than any


class Quantity(Spec):
    """A number with its source.

    mark        ``measured``, ``datasheet`` or ``assumed``
    num_points  measurements behind a fitted value; error: their median relative error
    """

    value: float
    source: str = Field(min_length=1)
    mark: Literal["measured", "datasheet", "assumed"] = "datasheet"
    date: str | None = None
    num_points: int | None = None
    error: float | None = None


def _quantity_in(dimension: str, positive: bool = True) -> Any:
    """A `Quantity` whose value may be written with a unit of `dimension`, such as ``3.35 TB/s``."""

    def parse(raw: Any) -> Any:
        if not isinstance(raw, dict) or "value" not in raw:
            return raw
        value = raw["value"]
        if isinstance(value, str) and dimension:
            value = parse_quantity(value, dimension)
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = float(value)
            if value < 0 or (positive and value == 0):
                raise ValueError(
                    f"expected a {'positive' if positive else 'non-negative'} number, got {value:g}"
                )
        return {**raw, "value": value}

    return BeforeValidator(parse)


def _int_keys(raw: Any) -> Any:
    """Group sizes are numbers, whatever a YAML reader makes of keys."""
    if not isinstance(raw, dict) or not raw or "value" in raw:
        raise ValueError("wanted one quantity for each group size, such as {2: {value: 0.6, source: …}}")
    return {int(key) if isinstance(key, str) and key.isdigit() else key: value for key, value in raw.items()}


Bytes = Annotated[Quantity, _quantity_in("bytes")]
BytesPerSecond = Annotated[Quantity, _quantity_in("bytes_per_s")]
Flops = Annotated[Quantity, _quantity_in("flops")]
Seconds = Annotated[Quantity, _quantity_in("s", positive=False)]
Count = Annotated[Quantity, _quantity_in("")]
Fraction = Annotated[Quantity, _quantity_in("")]


class GpuSpec(Spec):
    """One GPU.

    peak_flops_per_s  dense peak by dtype (``bfloat16``, ``float16``, ``fp8``, ``int8``); a dtype that is not
                      listed cannot be computed in
    memory_bytes      what the driver reports, not what the box says
    """

    name: str
    compute_capability: str
    num_sms: Count
    memory_bytes: Bytes
    hbm_bandwidth_bytes_per_s: BytesPerSecond
    peak_flops_per_s: dict[Literal["bfloat16", "float16", "fp8", "int8", "nvfp4"], Flops]
    kernel_launch_s: Seconds  # the shortest a kernel takes inside a CUDA graph


class LinkSpec(Spec):
    """A link: what one GPU can send (and receive at the same time), and the time of the smallest message."""

    bandwidth_bytes_per_s: BytesPerSecond
    latency_s: Seconds


class PcieSpec(LinkSpec):
    """PCIe: per GPU link, with the host bridges that GPUs share on their way to each other."""

    generation: PositiveInt
    lanes: PositiveInt
    has_peer_to_peer: bool = True  # consumer cards copy through host memory
    num_gpus_per_host_bridge: PositiveInt = 4
    num_sockets: PositiveInt = 2


class NodeSpec(Spec):
    """How the GPUs of one node are joined.

    fabric         ``nvswitch``: NVLink from every GPU to every other; ``nvlink_pairs``: bridges between
                   neighbours 0-1, 2-3, …; ``pcie``: host bridges only
    max_num_gpus   the most such a node holds
    """

    max_num_gpus: PositiveInt
    fabric: Literal["nvswitch", "nvlink_pairs", "pcie"]
    nvlink: LinkSpec | None = None
    pcie: PcieSpec


class KernelSpec(Spec):
    """The few efficiencies of the step-time model; what each does is in ``docs/model.md``."""

    gemm_compute_efficiency: Fraction
    gemm_fp8_compute_efficiency: Fraction | None = None  # of the fp8 peak; None = as in 16 bits
    gemm_memory_efficiency: Fraction
    gemm_tile_m: Count
    prefill_attention_efficiency: Fraction
    prefill_attention_half_length_tokens: Count
    decode_attention_memory_efficiency: Fraction
    decode_attention_floor_s: Seconds
    decode_attention_per_token_s: Seconds
    # what a decode costs beside a prefill chunk, of what it costs alone; None = 1, the sum of the parts
    mixed_decode_factor: Fraction | None = None
    elementwise_memory_efficiency: Fraction
    elementwise_floor_s: Seconds | None = None  # of a kernel that moves a few bytes; None = kernel_launch_s
    all_reduce_small_s: Seconds  # floor of the custom kernel in a CUDA graph, 2 GPUs
    all_reduce_eager_s: Seconds  # what launching it without a graph adds
    nccl_small_s: Seconds  # floor of NCCL, 2 GPUs
    nccl_hop_s: Seconds  # what each further hop of a ring adds
    # share of a link's bandwidth that a large collective reaches, by group size
    collective_bandwidth_efficiency: Annotated[dict[int, Fraction], BeforeValidator(_int_keys)]


# What messages between processes take: the gap of 0.85 ms before 0.15 was measured on servers of several, so it
# holds their part; the smaller one since then on servers of one GPU, which have none.
_UNIPROC = Quantity(value=0.0, mark="assumed", source="no message leaves the process")
_MP = Quantity(
    value=0.0,
    mark="assumed",
    source="queues in shared memory; in the gap where that was measured with them, no public figure elsewhere",
)
_RAY = Quantity(
    value=0.27e-3,
    mark="assumed",
    source="vLLM pull request 11107 (V1, Ray compiled graphs): 9.427 s against 9.357 s with mp for 256 tokens, "
    "Llama-3.1-8B TP2 on L4 GPUs; taken over to all GPUs and versions",
)


class GapSpec(Spec):
    """The gap of `HostSpec` in older engine versions."""

    gap_s: Seconds
    gap_per_sequence_s: Seconds


def _versions(raw: Any) -> Any:
    if isinstance(raw, dict):
        wrong = [key for key in raw if not _MINOR_VERSION.fullmatch(str(key))]
        if wrong:
            raise ValueError(f"wanted engine versions such as '0.15', got {str(wrong[0])!r}")
    return raw


class HostSpec(Spec):
    """What the CPU adds to a batch, and the client to a request.

    Scheduling a batch and taking in its tokens takes `step_s` and a part a sequence and a new block; when
    scheduling runs ahead (async) it is hidden behind the batch that the GPU runs. The gap, in which the
    worker prepares the next batch's inputs, is not hidden. `before` has the gap of engine versions before its
    keys: ``{"0.15": {gap_s: …, gap_per_sequence_s: …}}``.
    """

    step_s: Seconds
    per_sequence_s: Seconds
    per_new_block_s: Seconds
    gap_s: Seconds
    gap_per_sequence_s: Seconds
    eager_step_s: Seconds  # launching a whole model's kernels one by one, without CUDA graphs
    client_round_trip_s: Seconds
    before: Annotated[dict[str, GapSpec], BeforeValidator(_versions)] = Field(default_factory=dict)
    # what an executor adds to the gap on each stage
    executor_uniproc_s: Seconds = _UNIPROC
    executor_mp_s: Seconds = _MP
    executor_ray_s: Seconds = _RAY

    def at_version(self, major: int, minor: int) -> HostSpec:
        """The host with the gap of an engine version as its only one."""
        keys = {tuple(int(part) for part in key.split(".")): key for key in self.before}
        later = [version for version in keys if version > (major, minor)]
        gap = self.before[keys[min(later)]] if later else None
        changes = {"gap_s": gap.gap_s, "gap_per_sequence_s": gap.gap_per_sequence_s} if gap else {}
        return self.replace(**changes, before={}) if self.before else self

    def executor_s(self, backend: Literal["uniproc", "mp", "ray"]) -> Quantity:
        """What an executor (`distributed_executor_backend`) adds to the gap of each batch on each stage."""
        return {"uniproc": self.executor_uniproc_s, "mp": self.executor_mp_s, "ray": self.executor_ray_s}[
            backend
        ]


class HardwareSpec(Spec):
    """GPUs × nodes. `num_gpus_per_node` None = what the layout needs, in one node.

    `calibration` takes the place of the figures in `kernels` for the families that it has. There may be
    `other_calibrations`, found with other engine versions; `at_version` chooses.
    """

    name: str
    description: str
    gpu: GpuSpec
    node: NodeSpec
    network: LinkSpec  # InfiniBand or RoCE, per GPU
    kernels: KernelSpec
    host: HostSpec
    calibration: CalibrationSpec | None = None
    other_calibrations: Annotated[tuple[CalibrationSpec, ...], BeforeValidator(as_tuple)] = ()
    num_gpus_per_node: PositiveInt | None = None
    num_nodes: PositiveInt = 1

    @property
    def num_gpus(self) -> int | None:
        """GPUs of the box, None if it takes what the layout needs."""
        return None if self.num_gpus_per_node is None else self.num_gpus_per_node * self.num_nodes

    def at_version(self, major: int, minor: int) -> HardwareSpec:
        """The box as an engine version finds it.

        With that version's gap, and of its calibrations that of the nearest version; the newer of two as near.
        """
        host = self.host.at_version(major, minor)
        if self.calibration is None or not self.other_calibrations:
            return self.replace(host=host, other_calibrations=())

        def distance(calibration: CalibrationSpec) -> tuple[int, int, int]:
            found = calibration.minor_version
            if found is None:
                return _FAR, _FAR, 0
            return abs(found[0] - major), abs(found[1] - minor), -found[1]

        nearest = min((self.calibration, *self.other_calibrations), key=distance)
        return self.replace(host=host, calibration=nearest, other_calibrations=())

    def has_dtype(self, dtype: str) -> bool:
        """True if the tensor cores compute in `dtype`."""
        return dtype in self.gpu.peak_flops_per_s

    def collective_efficiency(self, num_ranks: int) -> float:
        """The share of a link's bandwidth that a group reaches: that of the next larger group on record."""
        by_size = self.kernels.collective_bandwidth_efficiency
        sizes = sorted(by_size)
        return by_size[next((size for size in sizes if size >= num_ranks), sizes[-1])].value
