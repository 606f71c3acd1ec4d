"""A scenario: model × hardware × parallel × engine × workload, and what is asked of it."""

from __future__ import annotations

from functools import cached_property

from simkv.spec.base import NonNegativeInt, PositiveFloat, Spec
from simkv.spec.engine import EngineSpec, ResolvedEngine, resolve_engine
from simkv.spec.hardware import HardwareSpec
from simkv.spec.model import ModelSpec
from simkv.spec.parallel import ParallelSpec, split_layers
from simkv.spec.sweep import SweepSpec
from simkv.spec.workload import WorkloadSpec


class SloSpec(Spec):
    """What a good request is, for goodput: limits per request."""

    ttft_ms: PositiveFloat | None = None
    tpot_ms: PositiveFloat | None = None
    e2el_ms: PositiveFloat | None = None


class Scenario(Spec):
    """One question to the simulator."""

    name: str = "scenario"
    model: ModelSpec
    hardware: HardwareSpec
    parallel: ParallelSpec = ParallelSpec()
    engine: EngineSpec = EngineSpec()
    workload: WorkloadSpec | None = None
    slo: SloSpec = SloSpec()
    seed: NonNegativeInt = 0
    sweep: SweepSpec | None = None

    @cached_property
    def resolved_engine(self) -> ResolvedEngine:
        """The engine options with every default of the version filled in."""
        parallel = self.parallel
        return resolve_engine(
            self.engine,
            self.model,
            self.hardware,
            parallel.num_gpus_per_replica,
            parallel.pipeline_parallel_size,
        )

    @cached_property
    def resolved_hardware(self) -> HardwareSpec:
        """The box with the kernel calibration of the engine version that is nearest to the one asked for."""
        return self.hardware.at_version(*self.resolved_engine.version)

    @cached_property
    def layers_per_stage(self) -> tuple[int, ...]:
        """Layers on each pipeline stage."""
        return self.parallel.pipeline_layer_partition or split_layers(
            self.model.num_hidden_layers, self.parallel.pipeline_parallel_size, self.resolved_engine.version
        )
