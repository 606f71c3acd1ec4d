"""The rule of thumb for max_model_len, and what it would change."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from simkv.kv.budget import memory_ledger
from simkv.spec.checks import scenario_faults
from simkv.spec.scenario import Scenario
from simkv.units import ceil_div

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
