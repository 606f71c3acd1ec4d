"""Calibrated collectives inside one node: forms with fitted parameters, times what measured messages leave over.

Marks and conventions are those of `simkv.cost.fitted`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from math import inf
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from simkv.cost.kernels.collectives import (
    CustomParameters,
    RingParameters,
    custom_seconds,
    kernel_changes,
    ring_seconds,
    send_recv_seconds,
)
from simkv.cost.message_residual import MessageResidual, measured_ratios
from simkv.cost.tally import Kernel, Side
from simkv.spec.calibration import KernelFit
from simkv.step import Provenance

Points: TypeAlias = Mapping[str, Mapping[str, np.ndarray]]  # by group: a column for each size, and seconds
MessageTime: TypeAlias = Callable[[float, bool], Kernel]  # of bytes, inside a CUDA graph or not


class FittedCollectives:
    """Times collectives of groups of a node; `alone` marks a form without points."""

    def __init__(self, fits: Mapping[str, KernelFit], points: Points, alone: Provenance):
        self._fits, self._points, self._alone = fits, points, alone

    def all_reduce(self, world_size: int, is_custom: bool) -> MessageTime | None:
        """Time all-reduces: vLLM's own kernel where it runs, else NCCL; None without such a fit."""
        name = "all_reduce/custom" if is_custom else "all_reduce/nccl"
        if name not in self._fits:
            return None
        custom = parameters_from(CustomParameters, self._fits[name].parameters) if is_custom else None
        ring = None if is_custom else parameters_from(RingParameters, self._fits[name].parameters)

        def seconds_of(num_bytes: float, in_graph: bool) -> float:
            if custom is not None:
                return float(custom_seconds(custom, world_size, num_bytes, in_graph))
            return float(ring_seconds(cast(RingParameters, ring), "all_reduce", world_size, num_bytes))

        residuals = {
            in_graph: self._message_residual(name, world_size, backend, seconds_of, in_graph)
            for in_graph, backend in (
                (True, "custom_graph" if is_custom else "nccl"),
                (False, "custom_eager" if is_custom else "nccl"),
            )
        }

        def time(num_bytes: float, in_graph: bool) -> Kernel:
            residual = residuals[in_graph]
            ratio, mark = residual(num_bytes) if residual else (1.0, self._alone)
            return Kernel(seconds_of(num_bytes, in_graph) * ratio, Side.COMM, mark)

        return time

    def one_way(self, op: Literal["all_gather", "reduce_scatter"], world_size: int) -> MessageTime | None:
        """Time NCCL's all-gathers or reduce-scatters; None without such a fit."""
        return self._plain(
            f"{op}/nccl", world_size, lambda ring, num_bytes: ring_seconds(ring, op, world_size, num_bytes)
        )

    def send_recv(self) -> MessageTime | None:
        """Time NCCL's hand-off of a message from one GPU to another; None without such a fit."""
        return self._plain("send_recv/nccl", 2, send_recv_seconds)

    def _plain(
        self, name: str, world_size: int, form: Callable[[RingParameters, float], Any]
    ) -> MessageTime | None:
        """Time what NCCL has one kernel for, inside a CUDA graph or not."""
        if name not in self._fits:
            return None
        ring = parameters_from(RingParameters, self._fits[name].parameters)

        def seconds_of(num_bytes: float, in_graph: bool) -> float:
            return float(form(ring, num_bytes))

        residual = self._message_residual(name, world_size, "nccl", seconds_of, True)

        def time(num_bytes: float, in_graph: bool) -> Kernel:
            ratio, mark = residual(num_bytes) if residual else (1.0, self._alone)
            return Kernel(seconds_of(num_bytes, in_graph) * ratio, Side.COMM, mark)

        return time

    def _message_residual(
        self,
        name: str,
        world_size: int,
        backend: str,
        seconds_of: Callable[[float, bool], float],
        in_graph: bool,
    ) -> MessageResidual | None:
        columns = self._points.get(f"{name.partition('/')[0]}/{backend}")
        if columns is None:
            return None
        own = columns["world_size"] == world_size
        if not own.any():
            return None
        sizes, seconds = columns["num_bytes"][own], columns["seconds"][own]
        form = [seconds_of(size, in_graph) for size in sizes.tolist()]
        octaves = self._fits[name].residual_octaves
        return MessageResidual(
            measured_ratios(sizes, seconds, form),
            inf if octaves is None else octaves,
            kernel_changes(backend, world_size),
        )


def parameters_from(parameters_class: Any, values: Mapping[str, Any]) -> Any:
    """Build a form's parameters from plain data; a mapping inside may be parameters of their own."""
    nested = {"large": RingParameters}
    known = {each.name for each in fields(parameters_class)}
    made = {
        name: parameters_from(nested[name], value) if name in nested else value
        for name, value in values.items()
        if name in known
    }
    built = parameters_class(**made)
    assert is_dataclass(built)
    return built
