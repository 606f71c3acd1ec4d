"""``simkv plan``: does it fit, and how much? Answers from the ledger alone, without simulating."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from simkv.errors import InfeasibleError, InputError, ScenarioError
from simkv.kv.budget import MemoryLedger, memory_ledger
from simkv.spec.checks import layout, scenario_faults, scenario_warnings
from simkv.spec.scenario import Scenario
from simkv.units import GIB, ceil_div

_MAX_SAMPLE = 10_000  # requests that a suggestion looks at; a plan is to be quick


@dataclass(frozen=True)
class LengthSuggestion:
    """The rule of thumb for max_model_len, and what it would change: the requests that fit at once, no memory.

    p99_tokens       99th percentile of prompt + output over the first `num_requests` requests
    max_model_len    20 % more, in whole blocks, at most what the model can
    num_longer       requests that would be too long for it
    fits             whether the server would start with it
    """

    num_requests: int
    p99_tokens: int
    max_model_len: int
    num_longer: int
    fits: bool
    num_gpu_blocks: int
    max_concurrency: float


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

    def require(self) -> None:
        """Raise InfeasibleError if the configuration would not start."""
        if self.refusal is not None:
            raise InfeasibleError(self.refusal, self.remedies)

    @cached_property
    def suggestion(self) -> LengthSuggestion | None:
        """A max_model_len for the workload; None without one, or if its trace cannot be read."""
        try:
            return suggest_max_model_len(self.scenario, self.base_dir)
        except InputError:
            return None  # what `plan` is asked does not need the trace; `run` will say what is wrong with it

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as plain data, for JSON and the result folder."""
        ledger = self.ledger
        return {
            "model": self.scenario.model.name,
            "hardware": self.scenario.hardware.name,
            "layout": layout(self.scenario),
            "fits": self.fits,
            "refusal": self.refusal,
            "remedies": list(self.remedies),
            "warnings": list(self.warnings),
            "num_gpu_blocks": ledger.num_gpu_blocks,
            "kv_tokens": ledger.kv_tokens,
            "max_concurrency": ledger.max_concurrency,
            "max_model_len": ledger.max_model_len,
            "block_size": ledger.block_size,
            "max_num_seqs": self.scenario.resolved_engine.max_num_seqs,
            "binding_stage": ledger.binding_stage,
            "ranks": [
                {
                    "stage": rank.stage,
                    "num_layers": rank.num_layers,
                    "total_bytes": rank.total_bytes,
                    "requested_bytes": rank.requested_bytes,
                    "weights_bytes": rank.weights_bytes,
                    "activation_bytes": rank.activation_bytes,
                    "non_torch_bytes": rank.non_torch_bytes,
                    "graph_bytes": rank.graph_bytes,
                    "deducts_graphs": rank.deducts_graphs,
                    "kv_bytes": rank.kv_bytes,
                    "num_gpu_blocks": rank.num_gpu_blocks,
                }
                for rank in ledger.ranks
            ],
            "suggestion": asdict(self.suggestion) if self.suggestion else None,
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
        if self.suggestion is not None:
            yield format_suggestion(self.suggestion, self.ledger)
        for warning in self.warnings:
            yield f"Warning: {warning}."


def format_ledger(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield `Plan.as_dict`'s memory ledger as lines of text, GiB per GPU of each stage."""
    titles = ("layers", "budget", "weights", "activation", "non-torch", "graphs", "KV", "blocks")
    yield f"{'GiB per GPU':<12}" + "".join(f"{title:>11}" for title in titles)
    ranks = answer["ranks"]
    for rank in ranks:
        cells = [f"{rank['num_layers']}"]
        for key in ("requested", "weights", "activation", "non_torch", "graph", "kv"):
            cells.append(f"{rank[key + '_bytes'] / GIB:.2f}")
        if not rank["deducts_graphs"]:
            cells[5] += "*"
        cells.append(f"{rank['num_gpu_blocks']:,}")
        yield f"{'stage ' + str(rank['stage']):<12}" + "".join(f"{cell:>11}" for cell in cells)
    if not ranks[0]["deducts_graphs"]:
        yield "* on top of the budget in this version"
    if answer["fits"]:
        yield ""
        yield (
            f"GPU KV cache size: {answer['kv_tokens']:,} tokens "
            f"({answer['num_gpu_blocks']:,} blocks of {answer['block_size']})"
        )
        yield (
            f"Maximum concurrency for {answer['max_model_len']:,} tokens per request: "
            f"{answer['max_concurrency']:.2f}x"
        )
        if len(ranks) > 1:
            yield f"Stage {answer['binding_stage']} binds: its GPUs hold the fewest blocks."


def format_suggestion(suggestion: LengthSuggestion, ledger: MemoryLedger) -> str:
    """Return the suggestion as a line of text beside the plan it belongs to."""
    head = f"Workload: P99 of prompt + output {suggestion.p99_tokens:,} tokens; max_model_len "
    if suggestion.max_model_len == ledger.max_model_len:
        return f"{head}suits it."
    effect = f"{suggestion.max_concurrency:.2f}x" if suggestion.fits else "does not start"
    if suggestion.fits and suggestion.num_gpu_blocks == ledger.num_gpu_blocks:
        effect += ", the same KV cache"
    if suggestion.num_longer:
        effect += f", {suggestion.num_longer:,} of {suggestion.num_requests:,} requests too long"
    return f"{head}{suggestion.max_model_len:,} (20 % more): {effect}."


def suggest_max_model_len(scenario: Scenario, base_dir: Path | None = None) -> LengthSuggestion | None:
    """Return the workload's P99 plus 20 % in whole blocks, and the ledger with it; None without a workload.

    Raises TraceError if the trace cannot be read.
    """
    if scenario.workload is None:
        return None
    from simkv.workload.generate import generate  # numpy takes a tenth of a second

    workload, model = scenario.workload, scenario.model
    if workload.num_prompts is not None or workload.dataset_path is not None:
        num_prompts = min(workload.num_prompts or _MAX_SAMPLE, _MAX_SAMPLE)
        workload = workload.model_copy(update={"num_prompts": num_prompts})
    requests = islice(generate(workload, model.vocab_size, scenario.seed, base_dir), _MAX_SAMPLE)
    lengths = sorted(request.num_prompt_tokens + request.max_tokens for request in requests)
    p99_tokens = lengths[ceil_div(len(lengths) * 99, 100) - 1]
    block_size = scenario.resolved_engine.block_size
    suggested = ceil_div(ceil_div(p99_tokens * 6, 5), block_size) * block_size
    suggested = min(suggested, model.max_position_embeddings)
    variant = scenario.replace(engine={"max_model_len": suggested})
    ledger = memory_ledger(variant)
    return LengthSuggestion(
        num_requests=len(lengths),
        p99_tokens=p99_tokens,
        max_model_len=suggested,
        num_longer=sum(length > suggested for length in lengths),
        fits=ledger.fits and not scenario_faults(variant),
        num_gpu_blocks=ledger.num_gpu_blocks,
        max_concurrency=ledger.max_concurrency,
    )


def require_lawful(scenario: Scenario) -> None:
    """Raise ScenarioError with every rule between its parts that a scenario breaks."""
    faults = [f"{'.'.join(path)}: {text}" for path, text in scenario_faults(scenario)]
    if faults:
        raise ScenarioError(faults)


def plan(scenario: Scenario, base_dir: Path | None = None) -> Plan:
    """Return the memory ledger of a scenario, or why it would not start and what would help.

    `base_dir` is the folder from which a relative trace path is looked up.
    Raises ScenarioError for a layout or an engine option that vLLM refuses before it looks at memory.
    """
    require_lawful(scenario)
    ledger = memory_ledger(scenario)
    refusal = _refusal(ledger)
    remedies = () if refusal is None else tuple(_remedies(scenario, ledger))
    return Plan(scenario, ledger, refusal, remedies, tuple(scenario_warnings(scenario)), base_dir)


def _refusal(ledger: MemoryLedger) -> str | None:
    """Say why the server would not start, in the order in which it would find out."""
    rank = ledger.ranks[ledger.binding_stage]
    if not ledger.fits_weights:
        short_bytes = 2 * rank.kv_block_bytes - rank.kv_bytes  # the null block and one to use
        return (
            f"weights of {rank.weights_bytes / GIB:.2f} GiB do not leave room for a KV cache within "
            f"{rank.requested_bytes / GIB:.2f} GiB on stage {rank.stage}: short by {short_bytes / GIB:.2f} GiB"
        )
    if not ledger.fits_one_request:
        need = (ceil_div(ledger.max_model_len, ledger.block_size) + 1) * rank.kv_block_bytes
        available = ledger.num_gpu_blocks * rank.kv_block_bytes
        return (
            f"one request of max_model_len {ledger.max_model_len:,} tokens needs {need / GIB:.2f} GiB of KV cache "
            f"per GPU on stage {rank.stage}, {available / GIB:.2f} GiB are available"
        )
    if not ledger.fits_memory:
        rank = max(ledger.ranks, key=lambda rank: ledger.used_bytes(rank) - rank.total_bytes)
        return (
            f"out of memory on stage {rank.stage}: weights, activations, CUDA graphs and KV cache take "
            f"{ledger.used_bytes(rank) / GIB:.2f} GiB of {rank.total_bytes / GIB:.2f} GiB"
        )
    return None


def _remedies(scenario: Scenario, ledger: MemoryLedger) -> Iterator[str]:
    """Yield single changes, the mildest value of each, that the ledger itself says let the server start."""
    longest, parallel = ledger.longest_request_tokens, scenario.parallel
    candidates: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
        ("engine", "max_model_len", (longest,) if 0 < longest < ledger.max_model_len else ()),
        ("engine", "gpu_memory_utilization", (0.95, 0.9, 0.85, 0.8)),
        ("parallel", "tensor_parallel_size", _larger(parallel.tensor_parallel_size)),
        ("parallel", "pipeline_parallel_size", _larger(parallel.pipeline_parallel_size)),
        ("engine", "kv_cache_dtype", ("fp8",)),
    )
    for section, field, values in candidates:
        for value in values:
            variant = scenario.replace(**{section: {field: value}})
            if not scenario_faults(variant) and memory_ledger(variant).fits:
                yield f"{section}.{field}={value}"
                break


def _larger(size: int) -> tuple[int, ...]:
    return tuple(larger for larger in (2, 4, 8, 16) if larger > size)
