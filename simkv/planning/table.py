"""A plan as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from simkv.kv.budget import MemoryLedger
from simkv.planning.suggestion import LengthSuggestion
from simkv.units import GIB

_COLUMNS = (
    ("layers", 8), ("budget", 8), ("weights", 9), ("activation", 12), ("non-torch", 11), ("graphs", 8), ("KV", 8),
    ("blocks", 11), ("tokens", 12),
)  # fmt: skip


def format_ledger(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield `Plan.as_dict`'s memory ledger as lines of text, GiB per GPU of each stage."""
    yield f"{'GiB per GPU':<12}" + "".join(f"{title:>{width}}" for title, width in _COLUMNS)
    ranks = answer["ranks"]
    for rank in ranks:
        cells = [f"{rank['num_layers']}"]
        for key in ("requested", "weights", "activation", "non_torch", "graph", "kv"):
            cells.append(f"{rank[key + '_bytes'] / GIB:.2f}")
        if not rank["deducts_graphs"]:
            cells[5] += "*"
        cells += [f"{rank['num_gpu_blocks']:,}", f"{rank['kv_tokens']:,}"]
        row = "".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, _COLUMNS, strict=True))
        yield f"{'stage ' + str(rank['stage']):<12}{row}"
    if not ranks[0]["deducts_graphs"]:
        yield "* on top of the budget in this version"
    if answer["fits"]:
        yield from _cache_lines(answer)


def _cache_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """vLLM's own two lines, and what bounds them."""
    yield ""
    yield (
        f"GPU KV cache size: {answer['kv_tokens']:,} tokens "
        f"({answer['num_gpu_blocks']:,} blocks of {answer['block_size']}{_groups(answer['block_groups'])})"
    )
    yield (
        f"Maximum concurrency for {answer['max_model_len']:,} tokens per request: "
        f"{answer['max_concurrency']:.2f}x"
    )
    if answer["binding_reason"]:
        yield answer["binding_reason"]
    if answer["oom_from_utilization"] is not None:
        yield f"Out of memory from gpu_memory_utilization {answer['oom_from_utilization']:.2f} on."


def _groups(kinds: list[str]) -> str:
    if len(kinds) == 1:
        return ""
    names = dict.fromkeys(kind.removesuffix("_attention") for kind in kinds)
    counts = (f"{sum(kind.startswith(name) for kind in kinds)} {name}" for name in names)
    return f" in {len(kinds)} groups: {', '.join(counts)}"


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
