"""Fits of the collectives: rings per operation, vLLM's custom all-reduce, the hand-off between two GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from simkv.calibrate.fits.solve import Unknown, medians, solve
from simkv.cost.kernels.collectives import (
    CUSTOM_MAX_BYTES,
    CustomParameters,
    RingParameters,
    custom_seconds,
    one_shot_max_bytes,
    ring_seconds,
    send_recv_seconds,
    wire_bytes,
)

if TYPE_CHECKING:
    import pandas as pd

_NUM_CUSTOM_UNKNOWNS = 6  # of one-shot and two-shot kernels
NUM_SEND_RECV_UNKNOWNS = 3
_RATE = "bytes_per_s_"  # prefix of the unknowns that belong to one group size


def fit_ring(frame: pd.DataFrame, op: str, has_switch: bool = True) -> RingParameters:
    """Fit one collective of NCCL on one fabric; `frame` has the rows of one op and backend, any group sizes."""
    rows = medians(frame, op)
    world_size, num_bytes, seconds = (
        rows[column].to_numpy(float) for column in ("world_size", "num_bytes", "seconds")
    )
    sizes = [int(size) for size in np.unique(world_size)]
    floor_s = float(seconds.min())
    unknowns = {
        "latency_s": Unknown(floor_s, 1e-7, 1e-2),
        "hop_s": Unknown(1e-6, 1e-9, 1e-3),
        "sharpness": Unknown(0.7, 0.4, 2.0, log=False),
    }
    for size in sizes:
        own = world_size == size
        fastest = float((wire_bytes(op, size, num_bytes[own]) / seconds[own]).max())
        unknowns[f"{_RATE}{size}"] = Unknown(fastest, fastest / 4, fastest * 4)
    starts: list[dict[str, float]] = [{"sharpness": p} for p in (0.6, 1.0)]
    if has_switch:
        unknowns |= {
            "switch_s": Unknown(floor_s, 1e-9, 1e-2),
            "switch_hop_s": Unknown(1e-6, 1e-10, 1e-3),
            "switch_bytes": Unknown(1e6, 1e4, 1e8),
            "switch_growth": Unknown(0.5, -1.0, 1.0, log=False),
        }
        starts = [
            {**start, "switch_bytes": size, "switch_growth": growth}
            for start in starts
            for size in (2e5, 8e5, 3e6)
            for growth in (0.0, 0.9)
        ]
    found = solve(
        lambda values: ring_seconds(_ring(values, sizes), op, world_size, num_bytes),
        seconds,
        unknowns,
        starts,
    )
    return _ring(found, sizes)


def ring_unknowns(frame: pd.DataFrame, has_switch: bool = True) -> int:
    """How many parameters `fit_ring` finds for these rows."""
    return 3 + frame["world_size"].nunique() + (4 if has_switch else 0)


def _ring(values: dict[str, float], sizes: list[int]) -> RingParameters:
    own = {name: value for name, value in values.items() if not name.startswith(_RATE)}
    return RingParameters(bytes_per_s={size: values[f"{_RATE}{size}"] for size in sizes}, **own)


def fit_send_recv(frame: pd.DataFrame) -> RingParameters:
    """Fit the hand-off of a message between two GPUs of one fabric."""
    rows = medians(frame, "send_recv")
    num_bytes, seconds = rows["num_bytes"].to_numpy(float), rows["seconds"].to_numpy(float)
    fastest = float((num_bytes / seconds).max())

    def parameters(values: dict[str, float]) -> RingParameters:
        return RingParameters(
            values["latency_s"], 0.0, {2: values["bytes_per_s"]}, sharpness=values["sharpness"]
        )

    unknowns = {
        "latency_s": Unknown(float(seconds.min()), 1e-7, 1e-2),
        "bytes_per_s": Unknown(fastest, fastest / 4, fastest * 4),
        "sharpness": Unknown(1.0, 0.4, 4.0, log=False),
    }
    found = solve(lambda values: send_recv_seconds(parameters(values), num_bytes), seconds, unknowns)
    return parameters(found)


def fit_custom(graph: pd.DataFrame, eager: pd.DataFrame | None = None) -> CustomParameters:
    """Fit vLLM's custom all-reduce: rows measured inside a CUDA graph and, if there are any, outside of one."""
    rows = medians(graph, "all_reduce")
    large = fit_ring(rows[rows["num_bytes"] >= CUSTOM_MAX_BYTES], "all_reduce", has_switch=False)
    groups = _by_size(rows[rows["num_bytes"] < CUSTOM_MAX_BYTES])
    floor_s = min(float(seconds.min()) for _, _, seconds in groups)
    one_shot = {
        "latency_s": Unknown(floor_s, floor_s / 3, floor_s * 2),
        "hop_s": Unknown(1e-7, 1e-10, 1e-4),
        "one_shot_bytes_per_s": Unknown(2e11, 1e9, 1e13),
    }
    two_shot = {
        "two_shot_latency_s": Unknown(2 * floor_s, floor_s / 2, floor_s * 20),
        "two_shot_hop_s": Unknown(1e-7, 1e-10, 1e-4),
        "two_shot_bytes_per_s": Unknown(3e11, 1e9, 1e13),
    }

    def parameters(values: dict[str, float]) -> CustomParameters:
        if "two_shot_latency_s" not in values:  # only pairs were measured, which never take two shots
            values = values | {
                name: values[name.removeprefix("two_shot_")]
                for name in ("two_shot_latency_s", "two_shot_hop_s")
            }
            values["two_shot_bytes_per_s"] = values["one_shot_bytes_per_s"]
        return CustomParameters(
            **values, large=large, eager_s={2: 0.0}, eager_two_shot_s={2: 0.0}, eager_copy_bytes_per_s=1.0
        )

    def predict(values: dict[str, float]) -> np.ndarray:
        own = parameters(values)
        return np.concatenate([custom_seconds(own, size, num_bytes) for size, num_bytes, _ in groups])

    has_two_shots = any(size > 2 for size, _, _ in groups)
    unknowns = one_shot | two_shot if has_two_shots else one_shot
    found = solve(predict, np.concatenate([seconds for _, _, seconds in groups]), unknowns)
    return _with_eager(parameters(found), eager if eager is not None else graph)


def lacks(graph: pd.DataFrame, eager: pd.DataFrame | None = None) -> str | None:
    """Return what `fit_custom` would need beside these rows, None if they are enough."""
    for frame in (graph, graph if eager is None else eager):
        for size, num_bytes, _ in _by_size(frame):
            if not (num_bytes < min(one_shot_max_bytes(size), CUSTOM_MAX_BYTES / 4)).any():
                return f"small messages of {size} GPUs"
    large = graph[graph["num_bytes"] >= CUSTOM_MAX_BYTES]
    if len(large) <= ring_unknowns(large, has_switch=False):
        return f"more messages from {CUSTOM_MAX_BYTES // 1024**2} MiB on"
    if len(graph) - len(large) <= _NUM_CUSTOM_UNKNOWNS:
        return f"more messages below {CUSTOM_MAX_BYTES // 1024**2} MiB"
    return None


def _with_eager(parameters: CustomParameters, frame: pd.DataFrame) -> CustomParameters:
    """Add the host's launches, which are floors, and the copy, which shows in large messages."""
    groups = _by_size(medians(frame, "all_reduce"))
    one_shot: dict[int, float] = {}
    two_shot: dict[int, float] = {}
    few_bytes = CUSTOM_MAX_BYTES / 4  # below, the host's time hides the kernel's
    for size, num_bytes, seconds in groups:
        limit = one_shot_max_bytes(size)
        one_shot[size] = float(np.median(seconds[num_bytes < min(limit, few_bytes)]))
        small = (num_bytes >= limit) & (num_bytes <= few_bytes)
        two_shot[size] = float(np.median(seconds[small])) if small.any() else one_shot[size]
    parameters = replace(parameters, eager_s=one_shot, eager_two_shot_s=two_shot)

    def predict(copy: dict[str, float]) -> np.ndarray:
        own = replace(parameters, eager_copy_bytes_per_s=copy["bytes_per_s"])
        return np.concatenate([custom_seconds(own, size, num_bytes, False) for size, num_bytes, _ in groups])

    ordered = np.concatenate([seconds for _, _, seconds in groups])
    found = solve(predict, ordered, {"bytes_per_s": Unknown(2e12, 1e10, 1e14)})
    return replace(parameters, eager_copy_bytes_per_s=found["bytes_per_s"])


def _by_size(rows: pd.DataFrame) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Group sizes with their messages and times."""
    return [
        (int(str(size)), own["num_bytes"].to_numpy(float), own["seconds"].to_numpy(float))
        for size, own in rows.groupby("world_size", sort=True)
    ]
