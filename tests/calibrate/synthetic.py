"""Tables of our own making: kernels of an imaginary GPU whose parameters are known."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

from simkv.calibrate.families import GROUPS
from simkv.calibrate.group import Gpu
from simkv.calibrate.measurements import SHAPE_COLUMNS, validate
from simkv.load.hardware import find_hardware

HARDWARE = find_hardware("h100_sxm")
GROUP = {group.name: group for group in GROUPS}
TRUE = {
    "gemm/bfloat16": replace(GROUP["gemm/bfloat16"].starts[0], launch_s=2.5e-6, small_tile_efficiency=0.6),
    "gemm/fp8": replace(GROUP["gemm/fp8"].starts[0], launch_s=4e-6, many_rows_efficiency=0.5),
    "decode_attention/bfloat16": replace(
        GROUP["decode_attention/bfloat16"].starts[0], launch_s=8e-6, block_s=2e-6
    ),
    "prefill_attention/fp8": replace(
        GROUP["prefill_attention/fp8"].starts[0], efficiency=0.5, kv_write_s=6e-9
    ),
}
SHAPES = {
    "gemm": {
        "m": (1, 8, 16, 32, 64, 65, 128, 129, 256, 257, 512, 1024, 2048, 4096, 8192, 16384),
        "n": (256, 512, 1024, 2048, 4096, 8192),
        "k": (512, 1024, 2048, 4096, 8192),
    },
    "decode_attention": {
        "batch": (1, 2, 4, 8, 16, 32, 64, 128, 256),
        "context": (128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072),
        "heads": (8, 32),
        "kv_heads": (1, 4, 8),
        "head_dim": (128,),
    },
    "prefill_attention": {
        "batch": (1, 2, 4, 8, 16),
        "chunk": (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
        "context": (0,),
        "heads": (4, 8, 32),
        "kv_heads": (1, 2, 4),
        "head_dim": (128,),
    },
}
PROVENANCE = {"device": "imaginary", "engine": "vllm", "engine_version": "0.0.1", "source": "made up"}


def gpu_of(group):
    gpu = HARDWARE.gpu
    return Gpu(
        gpu.peak_flops_per_s[group.dtype].value, gpu.hbm_bandwidth_bytes_per_s.value, int(gpu.num_sms.value)
    )


def rows_of(name, noise=0.0, seed=0):
    """All shapes of a group with the seconds that its true parameters give, times log-normal noise."""
    group, columns = GROUP[name], SHAPES[GROUP[name].op]
    frame = pd.DataFrame(list(product(*columns.values())), columns=list(columns))
    gpu = gpu_of(group)
    seconds = group.seconds(
        TRUE[name], gpu.peak_flops_per_s, gpu.bandwidth_bytes_per_s, gpu.num_sms, *group.shape(frame)
    )
    factors = np.exp(np.random.default_rng(seed).normal(0.0, noise, len(frame))) if noise else 1.0
    return frame.assign(op=group.op, **group.variant, seconds=seconds * factors, **PROVENANCE)


def table_of(*names, noise=0.0):
    frames = [rows_of(name, noise, seed) for seed, name in enumerate(names or TRUE)]
    return validate(pd.concat(frames, ignore_index=True), "synthetic")


def shapes_in(frame, op):
    return frame[list(SHAPE_COLUMNS[op])]
