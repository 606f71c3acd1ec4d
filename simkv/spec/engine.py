"""Engine options, spelt as ``vllm serve`` spells its flags, and their defaults by version.

`EngineSpec` is what a scenario says (None = the version's default); `ResolvedEngine` has every number.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from simkv.spec.base import NonNegativeFloat, NonNegativeInt, PositiveInt, Spec
from simkv.spec.hardware import HardwareSpec
from simkv.spec.model import DTYPE_BYTES, ModelSpec
from simkv.units import GIB

LATEST_VLLM = "0.32.0"
FIRST_V1 = (0, 8)  # the first version whose default engine is V1
_VERSION = re.compile(r"v?([0-9]{1,3})\.([0-9]{1,4})(?:\.|$)")
KvCacheDtype = Literal["auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2"]
Policy = Literal["fcfs", "priority"]
BroadcastWait = Literal["always", "sampled", "never"]
Executor = Annotated[  # `uni` is how vLLM spells the first
    Literal["uniproc", "mp", "ray"], BeforeValidator(lambda name: "uniproc" if name == "uni" else name)
]


class EngineSpec(Spec):
    """The options of one engine; the scheduler's rules are those of `vllm_version`."""

    vllm_version: str = LATEST_VLLM
    max_model_len: PositiveInt | None = None
    max_num_seqs: PositiveInt | None = None
    max_num_batched_tokens: PositiveInt | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    kv_cache_dtype: KvCacheDtype = "auto"
    kv_cache_memory_bytes: PositiveInt | None = None
    num_gpu_blocks_override: PositiveInt | None = None
    block_size: Annotated[int, Field(gt=0, le=1024)] = 16
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    async_scheduling: bool | None = None
    scheduling_policy: Policy = "fcfs"
    watermark: Annotated[float, Field(ge=0, lt=1)] = 0.0
    scheduler_reserve_full_isl: bool | None = None
    long_prefill_token_threshold: NonNegativeInt = 0
    long_prefill_token_threshold_adaptive: bool = False
    enforce_eager: bool = False
    disable_custom_all_reduce: bool = False
    distributed_executor_backend: Executor | None = None
    dynamic_chunking: bool = False  # simkv's own, as is the next
    broadcast_wait: BroadcastWait | None = None
    swap_space: NonNegativeFloat | None = None  # accepted and without effect, as in vLLM V1

    @field_validator("vllm_version")
    @classmethod
    def _check_version(cls, version: str) -> str:
        parse_version(version)
        return version

    @model_validator(mode="after")
    def _check_chunks(self) -> EngineSpec:
        if self.dynamic_chunking and not self.enable_chunked_prefill:
            raise ValueError(
                "dynamic_chunking wants enable_chunked_prefill: true, got false; use one of them"
            )
        return self


class ResolvedEngine(Spec):
    """Engine options with every default filled in."""

    vllm_version: str
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float
    kv_cache_dtype: str
    kv_cache_memory_bytes: int | None
    num_gpu_blocks_override: int | None
    block_size: int
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    async_scheduling: bool
    scheduling_policy: Policy
    watermark: float
    scheduler_reserve_full_isl: bool
    long_prefill_token_threshold: int
    long_prefill_token_threshold_adaptive: bool
    enforce_eager: bool
    disable_custom_all_reduce: bool
    distributed_executor_backend: Executor
    dynamic_chunking: bool
    broadcast_wait: BroadcastWait

    @property
    def kv_cache_dtype_bytes(self) -> float:
        """Bytes of one element of the KV cache."""
        return DTYPE_BYTES[self.kv_cache_dtype]

    @property
    def version(self) -> tuple[int, int]:
        """(major, minor) of the vLLM version."""
        return parse_version(self.vllm_version)


def parse_version(version: str) -> tuple[int, int]:
    """Return (major, minor); raise ValueError if it is not a vLLM version.

    >>> parse_version("0.32.0")
    (0, 32)
    """
    match = _VERSION.match(version)
    if match is None:
        raise ValueError(f"expected a vLLM version such as {LATEST_VLLM!r}, got {version!r}")
    return int(match[1]), int(match[2])


def _default_async(version: tuple[int, int], pipeline_parallel_size: int) -> bool:
    """Async scheduling is on by default since 0.14, under a pipeline with model runner v2 (0.32)."""
    return version >= ((0, 14) if pipeline_parallel_size == 1 else (0, 32))


def _default_broadcast_wait(version: tuple[int, int]) -> BroadcastWait:
    """What a batch waits for that was scheduled ahead under a pipeline (`Replica`).

    Model runner v1 took the sampled tokens to the earlier stages in a broadcast that held up their next batch:
    always, and since pull request 38726 (April 2026, after 0.19) only if the batch before it samples at all.
    Runner v2, with a stream of its own for it (pull request 42187), is the default as read off 0.32.
    """
    if version >= (0, 32):
        return "never"
    return "sampled" if version >= (0, 20) else "always"


def _default_executor(hardware: HardwareSpec, num_gpus: int) -> Literal["uniproc", "mp", "ray"]:
    """One process for one GPU, processes for those of a node, Ray for several nodes."""
    if num_gpus == 1:
        return "uniproc"
    return "mp" if num_gpus <= (hardware.num_gpus_per_node or hardware.node.max_num_gpus) else "ray"


def _v0_sizes(version: tuple[int, int], max_model_len: int) -> tuple[int, int]:
    """Token budget and `max_num_seqs` of V0, which chunked prompts only in contexts above 32,768 tokens.

    Without chunks a batch holds a whole prompt, and the profile run as many tokens. Logged by servers of 0.6
    (activation peaks of 20,000 tokens, and of 512 above 32K) and 0.7 (2,048); 0.5 and before never chunked
    unless told to.
    """
    if max_model_len > 32_768 and version >= (0, 6):
        return (2048 if version >= (0, 7) else 512), 256
    return max(max_model_len, 2048), 256


def resolve_engine(
    engine: EngineSpec,
    model: ModelSpec,
    hardware: HardwareSpec,
    num_gpus_per_replica: int,
    pipeline_parallel_size: int = 1,
) -> ResolvedEngine:
    """Fill in the defaults of ``vllm serve`` for this version, model and GPU.

    Source: vLLM 0.32.0 `engine.arg_utils`: the token budget of a server is 8,192 (16,384 from 160 GiB on) and
    `max_num_seqs` 1,024 on devices of at least 70 GiB that are not an A100, else 2,048 and 256; a defaulted
    budget is capped at max_num_seqs × max_model_len, a defaulted max_num_seqs at the budget. V0: `_v0_sizes`.
    """
    version = parse_version(engine.vllm_version)
    max_model_len = engine.max_model_len or model.max_position_embeddings
    memory_gib = hardware.gpu.memory_bytes.value / GIB
    is_large = memory_gib >= 70 and "a100" not in hardware.gpu.name.lower()
    default_budget = (16384 if memory_gib >= 160 else 8192) if is_large else 2048
    default_seqs = 1024 if is_large else 256
    if version < FIRST_V1:
        default_budget, default_seqs = _v0_sizes(version, max_model_len)

    max_num_seqs = engine.max_num_seqs or default_seqs
    budget = engine.max_num_batched_tokens or default_budget
    if engine.max_num_batched_tokens is None:
        if not engine.enable_chunked_prefill:
            budget = max(budget, max_model_len)
        budget = min(budget, max_num_seqs * max_model_len)
    if engine.max_num_seqs is None:
        max_num_seqs = min(max_num_seqs, budget)

    # 0.92 is read off 0.32.0 and logged since 0.21, which began to deduct CUDA graphs; 0.9 is what every
    # logged server up to 0.19 ran with by default.
    default_utilization = 0.92 if version >= (0, 21) else 0.9
    kv_dtype = model.dtype if engine.kv_cache_dtype == "auto" else engine.kv_cache_dtype
    reserve = engine.scheduler_reserve_full_isl
    return ResolvedEngine(
        vllm_version=engine.vllm_version,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        gpu_memory_utilization=engine.gpu_memory_utilization or default_utilization,
        kv_cache_dtype=kv_dtype,
        kv_cache_memory_bytes=engine.kv_cache_memory_bytes,
        num_gpu_blocks_override=engine.num_gpu_blocks_override,
        block_size=engine.block_size,
        enable_prefix_caching=engine.enable_prefix_caching,
        enable_chunked_prefill=engine.enable_chunked_prefill,
        async_scheduling=_default_async(version, pipeline_parallel_size)
        if engine.async_scheduling is None
        else engine.async_scheduling,
        scheduling_policy=engine.scheduling_policy,
        watermark=engine.watermark,
        scheduler_reserve_full_isl=(version >= (0, 24)) if reserve is None else reserve,
        long_prefill_token_threshold=engine.long_prefill_token_threshold,
        long_prefill_token_threshold_adaptive=engine.long_prefill_token_threshold_adaptive,
        enforce_eager=engine.enforce_eager,
        disable_custom_all_reduce=engine.disable_custom_all_reduce,
        distributed_executor_backend=engine.distributed_executor_backend
        or _default_executor(hardware, num_gpus_per_replica),
        dynamic_chunking=engine.dynamic_chunking,
        broadcast_wait=engine.broadcast_wait or _default_broadcast_wait(version),
    )
