"""A plan against a start-up log: predicted and logged, term by term."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from simkv.kv.budget import MemoryLedger, RankLedger
from simkv.load.startup_gpus import profile_of_gpu
from simkv.load.startup_log import StartupLog
from simkv.planning.answer import Plan
from simkv.planning.refusal import is_pipeline_quirk
from simkv.spec.hardware import HardwareSpec
from simkv.units import GIB

_SAME_MEMORY = 0.02  # cards of a kind differ by 0.4 %: 79.11 to 79.25 GiB of H100s, 23.5 to 23.6 of 4090s


@dataclass(frozen=True)
class Term:
    """One figure. `difference` is predicted − logged for GiB, relative for counts, None for words.

    stage   None for what holds for the whole replica
    """

    term: str
    stage: int | None
    unit: str
    predicted: float | str
    logged: float | str

    @property
    def difference(self) -> float | None:
        """How far the prediction is off."""
        if isinstance(self.predicted, str) or isinstance(self.logged, str):
            return None
        if self.unit == "GiB":
            return self.predicted - self.logged
        return self.predicted / self.logged - 1 if self.logged else None

    def as_dict(self) -> dict[str, Any]:
        """Return the term as plain data."""
        return {**asdict(self), "difference": self.difference}


def compare_startup(answer: Plan, log: StartupLog) -> list[Term]:
    """Return every figure that a log shows beside the ledger's."""
    ledger = answer.ledger
    terms = [
        Term(name, rank.stage, "GiB", size / GIB, logged)
        for rank in ledger.ranks
        for name, size, figures in _sizes(rank)
        if (logged := _first(log, figures, rank.stage)) is not None
    ]
    terms += [
        Term(name, None, unit, value, logged)
        for name, unit, value, figure in _totals(ledger)
        if (logged := log.figure(figure)) is not None
    ]
    if log.outcome is not None:
        terms.append(Term("outcome", None, "", ledger.outcome, log.outcome))
    return terms


def _sizes(rank: RankLedger) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Terms of a rank, and the log's names for them, the better ones first."""
    fixed = rank.weights_bytes + rank.non_torch_bytes
    deducted = rank.graph_bytes if rank.deducts_graphs else 0
    yield "weights", rank.weights_bytes, ("weights",)
    yield "activation", rank.activation_bytes, ("activation",)
    yield "non-torch", rank.non_torch_bytes, ("non_torch",)
    yield "weights + non-torch", fixed, ("consumed",)
    yield "activation + graphs", rank.activation_bytes + deducted, ("headroom",)
    yield "graphs", rank.graph_bytes, ("graph_pool", "graphs", "graphs_estimated")
    yield "KV cache", rank.kv_bytes, ("kv",)


def _totals(ledger: MemoryLedger) -> Iterator[tuple[str, str, float, str]]:
    blocks = ledger.ranks if is_pipeline_quirk(ledger) else [ledger.ranks[ledger.binding_stage]]
    need = ledger.blocks_per_request * sum(rank.kv_block_bytes for rank in blocks)
    yield "one request", "GiB", need / GIB, "need"
    yield "blocks", "blocks", ledger.num_gpu_blocks, "num_gpu_blocks"
    yield "KV cache", "tokens", ledger.kv_tokens, "kv_tokens"
    yield "max concurrency", "x", ledger.max_concurrency, "max_concurrency"
    yield "longest request", "tokens", ledger.longest_request_tokens, "longest"


def _first(log: StartupLog, names: tuple[str, ...], stage: int) -> float | None:
    return next((value for name in names if (value := log.figure(name, stage)) is not None), None)


def format_check(terms: list[Term], log: StartupLog) -> Iterator[str]:
    """Yield the comparison as lines of text."""
    yield f"{'against ' + log.path:<32}{'predicted':>12}{'logged':>12}{'difference':>14}"
    stages = {term.stage for term in terms} - {None}
    for term in terms:
        name = term.term if term.unit in ("", "x", "blocks") else f"{term.term}, {term.unit}"
        if len(stages) > 1 and term.stage is not None:
            name += f", stage {term.stage}"
        cells = (_cell(term.predicted, term.unit), _cell(term.logged, term.unit), _difference(term))
        yield f"{name:<32}{cells[0]:>12}{cells[1]:>12}{cells[2]:>14}".rstrip()
    if log.error:
        yield f"The log says: {log.error}"


def hardware_warnings(log: StartupLog, hardware: HardwareSpec) -> Iterator[str]:
    """Yield where a log's GPU is not the one that was asked about; `hardware` has what its profile says."""
    asked = re.sub("_[0-9]*x[0-9]+$", "", hardware.name)
    profile = profile_of_gpu(log.gpu) or log.gpu
    if log.gpu and log.gpu != hardware.gpu.name and profile != asked:
        yield f"the log names the GPU {log.gpu}, the scenario has {asked}: the comparison is between two GPUs"
    total, memory_bytes = log.figure("total"), hardware.gpu.memory_bytes.value
    if total is not None and abs(total * GIB - memory_bytes) > _SAME_MEMORY * memory_bytes:
        yield (
            f"the log states {total:.2f} GiB of GPU memory, {asked} has {memory_bytes / GIB:.2f} GiB: "
            "it ran on other hardware"
        )


def _cell(value: float | str, unit: str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.2f}" if unit in ("GiB", "x") else f"{value:,.0f}"


def _difference(term: Term) -> str:
    if term.difference is None:
        return "" if term.predicted == term.logged else "differs"
    if term.unit == "GiB":
        return f"{round(term.difference, 2) + 0.0:+.2f} GiB"  # + 0.0: never −0.00
    return f"{term.difference:+.2%}"
