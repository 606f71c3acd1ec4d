"""The plan of a scenario: its ledger, whether a server would start, and what would help if not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Any

from simkv.errors import InfeasibleError, InputError, ScenarioError
from simkv.kv.budget import MemoryLedger, Outcome, memory_ledger
from simkv.planning.binding import binding_reason, oom_from_utilization
from simkv.planning.changes import CONTEXT
from simkv.planning.refusal import refusal_of
from simkv.planning.remedies import remedies_of
from simkv.planning.suggestion import LengthSuggestion, suggest_max_model_len
from simkv.planning.table import format_ledger, format_suggestion
from simkv.spec.checks import Fault, layout, scenario_faults, scenario_warnings, simulation_faults
from simkv.spec.scenario import Scenario


@dataclass(frozen=True)
class Plan:
    """The memory ledger of a scenario and what it means for its user; `print(plan)` is the answer.

    base_dir   the folder from which a relative trace path is looked up
    """

    scenario: Scenario
    ledger: MemoryLedger
    refusal: str | None
    remedies: tuple[str, ...]
    warnings: tuple[str, ...]
    base_dir: Path | None = None

    @property
    def fits(self) -> bool:
        """True if vLLM would start."""
        return self.refusal is None

    @property
    def outcome(self) -> Outcome:
        """``started``, ``refused`` (vLLM says so itself) or ``oom`` (CUDA does)."""
        return self.ledger.outcome

    def require(self) -> None:
        """Raise InfeasibleError if the configuration would not start; for a run, which cannot have all remedies."""
        if self.refusal is not None:
            is_simulated = [CONTEXT.name not in remedy for remedy in self.remedies]
            raise InfeasibleError(self.refusal, tuple(compress(self.remedies, is_simulated)))

    @cached_property
    def suggestion(self) -> LengthSuggestion | None:
        """A max_model_len for the workload; None without one, or if its trace cannot be read."""
        try:
            return suggest_max_model_len(self.scenario, self.base_dir)
        except InputError:
            return None  # what `plan` is asked does not need the trace; `run` will say what is wrong with it

    @cached_property
    def oom_from_utilization(self) -> float | None:
        """The least gpu_memory_utilization, in hundredths, that runs out of memory; None if none does."""
        return oom_from_utilization(self.scenario)

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as plain data, for JSON and the result folder."""
        ledger, engine = self.ledger, self.scenario.resolved_engine
        return {
            "model": self.scenario.model.name,
            "hardware": self.scenario.hardware.name,
            "layout": layout(self.scenario),
            "vllm_version": engine.vllm_version,
            "gpu_memory_utilization": engine.gpu_memory_utilization,
            "fits": self.fits,
            "outcome": self.outcome,
            "loads_weights": ledger.loads_weights,
            "refusal": self.refusal,
            "remedies": list(self.remedies),
            "warnings": list(self.warnings),
            "oom_from_utilization": self.oom_from_utilization,
            "num_gpu_blocks": ledger.num_gpu_blocks,
            "kv_tokens": ledger.kv_tokens,
            "max_concurrency": ledger.max_concurrency,
            "max_model_len": ledger.max_model_len,
            "longest_request_tokens": ledger.longest_request_tokens,
            "blocks_per_request": ledger.blocks_per_request,
            "block_size": ledger.block_size,
            "block_groups": list(ledger.groups.kinds),
            "max_num_seqs": engine.max_num_seqs,
            "binding_stage": ledger.binding_stage,
            "binding_reason": binding_reason(self.scenario, ledger),
            "ranks": [self._rank_as_dict(stage) for stage in range(len(ledger.ranks))],
            "suggestion": asdict(self.suggestion) if self.suggestion else None,
        }

    def _rank_as_dict(self, stage: int) -> dict[str, Any]:
        rank = self.ledger.ranks[stage]
        return {
            "stage": rank.stage,
            "num_layers": rank.num_layers,
            "total_bytes": rank.total_bytes,
            "requested_bytes": rank.requested_bytes,
            "weights_bytes": rank.weights_bytes,
            "activation_bytes": rank.activation_bytes,
            "non_torch_bytes": rank.non_torch_bytes,
            "graph_bytes": rank.graph_bytes,
            "deducts_graphs": rank.deducts_graphs,
            "outside_bytes": rank.outside_bytes,
            "kv_bytes": rank.kv_bytes,
            "kv_block_bytes": rank.kv_block_bytes,
            "num_gpu_blocks": rank.num_gpu_blocks,
            "kv_tokens": self.ledger.tokens_of(rank.num_gpu_blocks),
            "used_bytes": self.ledger.used_bytes(rank),
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        scenario, engine = self.scenario, self.scenario.resolved_engine
        yield (
            f"{scenario.model.name} on {scenario.hardware.name}, {layout(scenario)}, "
            f"vLLM {engine.vllm_version}, gpu_memory_utilization {engine.gpu_memory_utilization:g}, "
            f"KV in {engine.kv_cache_dtype}"
        )
        yield ""
        yield from format_ledger(self.as_dict())
        if self.refusal is not None:
            yield ""
            yield f"Does not start: {self.refusal}."
            for remedy in self.remedies:
                yield f"  try {remedy}"
            if not self.remedies:
                yield "  no change of length, batch, layout, KV dtype or utilization helps, nor a pair of them"
        if self.suggestion is not None:
            yield format_suggestion(self.suggestion, self.ledger)
        for warning in self.warnings:
            yield f"Warning: {warning}."


def require_lawful(scenario: Scenario) -> None:
    """Raise ScenarioError with every rule between its parts that a scenario breaks."""
    _raise_any(scenario_faults(scenario))


def require_simulated(scenario: Scenario) -> None:
    """Raise ScenarioError for what a plan answers and a run does not simulate: context parallelism."""
    _raise_any(simulation_faults(scenario))


def _raise_any(faults: list[Fault]) -> None:
    if faults:
        raise ScenarioError([f"{'.'.join(path)}: {text}" for path, text in faults])


def plan(scenario: Scenario, base_dir: Path | None = None) -> Plan:
    """Return the memory ledger of a scenario, or why it would not start and what would help.

    `base_dir` is the folder from which a relative trace path is looked up.
    Raises ScenarioError for a layout or an engine option that vLLM refuses before it looks at memory.
    """
    require_lawful(scenario)
    ledger = memory_ledger(scenario)
    refusal = refusal_of(scenario, ledger)
    remedies = () if refusal is None else tuple(remedies_of(scenario, ledger))
    return Plan(scenario, ledger, refusal, remedies, tuple(scenario_warnings(scenario)), base_dir)
