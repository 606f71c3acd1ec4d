"""Single changes that let a server start: the mildest value of each, found by asking the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from simkv.kv.budget import MemoryLedger, memory_ledger
from simkv.planning.refusal import is_pipeline_quirk
from simkv.spec.checks import scenario_faults
from simkv.spec.engine import FIRST_V1
from simkv.spec.scenario import Scenario

_CHECK_MENDED_IN = "0.16.0"  # see `simkv.kv.ledger.PIPELINE_CHECK_IS_WRONG`
_MOST_RANKS = 64
_LONGEST_WHOLE_PROMPT = 32_768  # V0 batches a whole prompt up to here: `simkv.spec.engine`
_HUNDREDTHS = range(1, 101)


def remedies_of(scenario: Scenario, ledger: MemoryLedger) -> Iterator[str]:
    """Yield changes as ``--set`` takes them; with each of them alone the ledger says that vLLM starts."""
    for section, field, values in _candidates(scenario, ledger):
        for value in values:
            if _starts(scenario, section, field, value):
                yield f"{section}.{field}={value}"
                break


def _starts(scenario: Scenario, section: str, field: str, value: Any) -> bool:
    variant = scenario.replace(**{section: {field: value}})
    return not scenario_faults(variant) and memory_ledger(variant).fits


def _candidates(scenario: Scenario, ledger: MemoryLedger) -> Iterator[tuple[str, str, Iterable[Any]]]:
    """Fields, each with its values from the mildest on."""
    parallel, engine = scenario.parallel, scenario.resolved_engine
    if is_pipeline_quirk(ledger):
        yield "engine", "vllm_version", (_CHECK_MENDED_IN,)
    if ledger.outcome == "refused":
        yield "engine", "max_model_len", _longest(scenario)
    if is_pipeline_quirk(ledger) and engine.kv_cache_memory_bytes is not None:
        pass  # more would help where it need not
    elif ledger.is_overridden:
        yield "engine", "num_gpu_blocks_override", _sizes(ledger)
    elif engine.kv_cache_memory_bytes is not None:
        widest = max(rank.kv_block_bytes for rank in ledger.ranks)
        yield "engine", "kv_cache_memory_bytes", (size * widest for size in _sizes(ledger))
    else:
        now = engine.gpu_memory_utilization
        more = [percent / 100 for percent in _HUNDREDTHS if percent / 100 > now]
        less = [percent / 100 for percent in reversed(_HUNDREDTHS) if percent / 100 < now]
        yield "engine", "gpu_memory_utilization", less if ledger.outcome == "oom" else more
    if ledger.outcome == "oom" and not engine.enforce_eager:
        yield "engine", "enforce_eager", (True,)
    tp, pp = parallel.tensor_parallel_size, parallel.pipeline_parallel_size
    yield "parallel", "tensor_parallel_size", range(tp + 1, _MOST_RANKS + 1)
    if parallel.pipeline_layer_partition is None:
        yield "parallel", "pipeline_parallel_size", range(pp + 1, _MOST_RANKS + 1)
    yield "parallel", "decode_context_parallel_size", _context_parallel_sizes(scenario)
    if engine.kv_cache_dtype_bytes > 1:
        yield "engine", "kv_cache_dtype", ("fp8",)


def _longest(scenario: Scenario) -> Iterator[int]:
    """The longest max_model_len, down to a block, with which the server starts."""
    engine = scenario.resolved_engine
    spans = [(engine.block_size, engine.max_model_len - 1)]
    if engine.version < FIRST_V1 and spans[0][1] > _LONGEST_WHOLE_PROMPT:
        spans = [(_LONGEST_WHOLE_PROMPT + 1, spans[0][1]), (spans[0][0], _LONGEST_WHOLE_PROMPT)]
    for shortest, longest in spans:
        low, high = shortest, longest
        if low > high or not _starts(scenario, "engine", "max_model_len", low):
            continue
        while low < high:
            middle = (low + high + 1) // 2
            is_good = _starts(scenario, "engine", "max_model_len", middle)
            low, high = (middle, high) if is_good else (low, middle - 1)
        yield low


def _sizes(ledger: MemoryLedger) -> tuple[int, ...]:
    """Blocks of a cache of given size: the fewest that hold a request, the most that the GPUs hold."""
    null_blocks = ledger.num_gpu_blocks - ledger.num_usable_blocks
    room = min((rank.total_bytes - ledger.used_bytes(rank)) // rank.kv_block_bytes for rank in ledger.ranks)
    most, fewest = ledger.num_gpu_blocks + room, ledger.blocks_per_request + max(1, null_blocks)
    return tuple(size for size in ((most, fewest) if ledger.outcome == "oom" else (fewest, most)) if size > 0)


def _context_parallel_sizes(scenario: Scenario) -> Iterator[int]:
    """Sizes of decode context parallelism that vLLM takes: of the tensor-parallel ranks that copy KV heads."""
    tp, now = scenario.parallel.tensor_parallel_size, scenario.parallel.decode_context_parallel_size
    kv_heads = 1 if scenario.model.is_mla else scenario.model.num_key_value_heads
    most = tp if scenario.model.is_mla else tp // kv_heads
    return (size for size in range(now + 1, most + 1) if tp % size == 0)
