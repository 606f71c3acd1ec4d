"""Times collectives with ``torch.distributed``: one process a rank, all points of a group size in one start."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from simkv.calibrate.collect import Point

_NUM_WARM_UP = 5
_NUM_SAMPLES = 7
_SAMPLE_S = 5e-3


def measure_group(points: Sequence[Point], world_size: int, device_type: str) -> list[float | None]:
    """Return the median seconds of each point in a group of `world_size` ranks."""
    import torch.multiprocessing as mp

    with tempfile.TemporaryDirectory() as folder:
        # spawned, not forked: CUDA cannot be used in a forked child
        mp.spawn(_rank, (world_size, device_type, folder, list(points)), nprocs=world_size)
        seconds: list[float | None] = json.loads((Path(folder) / "seconds.json").read_text("utf-8"))
    return seconds


def _rank(rank: int, world_size: int, device_type: str, folder: str, points: Sequence[Point]) -> None:
    import torch
    import torch.distributed as dist

    if device_type == "cuda":
        torch.cuda.set_device(rank)
    backend = "nccl" if device_type == "cuda" else "gloo"
    dist.init_process_group(backend, f"file://{folder}/rendezvous", rank=rank, world_size=world_size)
    try:
        times = [_seconds(rank, point, device_type) for point in points]
        if rank == 0:
            (Path(folder) / "seconds.json").write_text(json.dumps(times), "utf-8")
        dist.barrier()
    finally:
        dist.destroy_process_group()


def _seconds(rank: int, point: Point, device_type: str) -> float:
    import torch
    import torch.distributed as dist

    dtype = getattr(torch, point.dtype)
    call = _call(
        point.op, rank, int(point.shape[0]), int(point.shape[1]) // dtype.itemsize, dtype, device_type
    )

    def wait() -> None:
        if device_type == "cuda":
            torch.cuda.synchronize()

    def sample(num_calls: int) -> float:
        dist.barrier()
        wait()
        start = time.perf_counter()
        for _ in range(num_calls):
            call()
        wait()
        return (time.perf_counter() - start) / num_calls

    # every rank must make the same number of calls: that of the slowest
    slowest = torch.tensor([sample(_NUM_WARM_UP)], device=device_type)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    num_calls = max(1, min(200, int(_SAMPLE_S / max(float(slowest), 1e-9))))
    return statistics.median(sample(num_calls) for _ in range(_NUM_SAMPLES))


def _call(
    op: str, rank: int, world_size: int, num_elements: int, dtype: Any, device_type: str
) -> Callable[[], object]:
    """One collective; `num_elements` are a rank's before it, of an all-gather those after it."""
    import torch
    import torch.distributed as dist

    message = torch.ones(num_elements, dtype=dtype, device=device_type)
    share = torch.ones(max(1, num_elements // world_size), dtype=dtype, device=device_type)
    whole = torch.ones(share.numel() * world_size, dtype=dtype, device=device_type)
    if op == "all_reduce":
        return lambda: dist.all_reduce(message)
    if op == "all_gather":
        return lambda: dist.all_gather_into_tensor(whole, share)
    if op == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(share, whole)
    if op == "all_to_all":
        other = torch.empty_like(whole)
        return lambda: dist.all_to_all_single(other, whole)
    return lambda: dist.send(message, 1) if rank == 0 else dist.recv(message, 0)
