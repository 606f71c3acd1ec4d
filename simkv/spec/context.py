"""Decode context parallelism: which sizes vLLM takes, and which the mathematics of attention allow.

The ranks of a tensor-parallel group deal each request's tokens out among `decode_context_parallel_size` of them.
vLLM deals only to ranks that would otherwise hold the same keys and values: copies of a KV head, or of a latent.
"""

from __future__ import annotations

from collections.abc import Iterator

from simkv.spec.model import ModelSpec
from simkv.spec.scenario import Scenario

SIZE = ("parallel", "decode_context_parallel_size")
_PREFILL_SIZE = ("parallel", "prefill_context_parallel_size")
_MOST_RANKS = 64
_SINCE = (0, 10)  # decode context parallelism came with 0.10.2


def decode_context_parallel_sizes(scenario: Scenario) -> list[int]:
    """Return the sizes that the scenario's model, tensor parallelism, version and rules take, from 1 on."""
    tp = scenario.parallel.tensor_parallel_size
    sizes = range(1, min(tp, _MOST_RANKS) + 1)
    return [size for size in sizes if tp % size == 0 and _refusal(scenario, size) is None]


def context_parallel_faults(scenario: Scenario) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what the layout's rules refuse; sizes of 1 are no context parallelism."""
    parallel = scenario.parallel
    if parallel.prefill_context_parallel_size > 1:
        yield (
            _PREFILL_SIZE,
            "prefill context parallelism is not modelled yet, neither its memory nor its time; wanted 1, got "
            f"{parallel.prefill_context_parallel_size}",
        )
    reason = _refusal(scenario, parallel.decode_context_parallel_size)
    if reason is not None:
        yield SIZE, f"{reason}; use {one_of(decode_context_parallel_sizes(scenario))}"


def context_parallel_warnings(scenario: Scenario) -> Iterator[str]:
    """Yield what vLLM would refuse and ``parallel.rules: generic`` allows."""
    size = scenario.parallel.decode_context_parallel_size
    if scenario.parallel.rules == "generic" and (reason := _vllm_refusal(scenario, size)) is not None:
        yield f"parallel.rules is generic; vLLM would refuse decode_context_parallel_size: {reason}"


def one_of(sizes: list[int]) -> str:
    """Return ``1, 2 or 4``."""
    head, last = sizes[:-1], sizes[-1]
    return f"{', '.join(map(str, head))} or {last}" if head else str(last)


def _refusal(scenario: Scenario, size: int) -> str | None:
    rules = _vllm_refusal if scenario.parallel.rules == "vllm" else _generic_refusal
    return rules(scenario, size)


def _generic_refusal(scenario: Scenario, size: int) -> str | None:
    """Why tokens cannot be dealt out evenly: `size` ranks share the KV heads of tp / size ranks."""
    model, tp = scenario.model, scenario.parallel.tensor_parallel_size
    if tp % size:
        return f"{size} does not divide tensor_parallel_size {tp}"
    shares, heads = tp // size, _num_cached_heads(model)
    if not model.is_mla and heads % shares and shares % heads:
        return f"{heads} KV heads cannot be shared out among {tp} / {size} ranks"
    return None


def _vllm_refusal(scenario: Scenario, size: int) -> str | None:
    model, tp = scenario.model, scenario.parallel.tensor_parallel_size
    version, heads = scenario.resolved_engine, _num_cached_heads(model)
    rules = (  # the first that is broken is said
        (
            version.version >= _SINCE,
            f"vLLM {version.vllm_version} has no decode context parallelism, 0.11 has",
        ),
        (tp % size == 0, f"{size} does not divide tensor_parallel_size {tp}"),
        (not model.is_hybrid, f"vLLM deals out full attention only, and {model.name} has other layers"),
        (
            model.is_mla or tp > heads,
            f"wanted tensor_parallel_size above the {heads} KV heads, whose copies it deals tokens to, got {tp}",
        ),
        (
            model.is_mla or size <= tp // heads,
            f"{size} is above the {tp // heads} copies of a KV head on {tp} ranks",
        ),
        (
            model.is_mla or model.num_attention_heads // heads % size == 0,
            f"{size} does not divide the {model.num_attention_heads // heads} query heads of a KV head",
        ),
    )
    return None if size == 1 else next((reason for holds, reason in rules if not holds), None)


def _num_cached_heads(model: ModelSpec) -> int:
    return 1 if model.is_mla else model.num_key_value_heads
