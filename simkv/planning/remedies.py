"""What lets a server start, found by asking the ledger: single changes, else the smallest pairs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from simkv.kv.budget import MemoryLedger, memory_ledger
from simkv.planning.changes import (
    ANY_BATCH,
    BATCH,
    BLOCKS,
    BYTES,
    CONTEXT,
    EAGER,
    KV_DTYPE,
    LENGTH,
    MOST_UTILIZATION,
    PIPELINE,
    REPLICAS,
    SEQUENCES,
    TENSOR,
    UTILIZATION,
    Change,
    Field,
    first_that_starts,
    sets_utilization,
    starts,
)
from simkv.planning.refusal import WORTH_SAYING, is_pipeline_quirk, peak_share
from simkv.spec.checks import rule_faults
from simkv.spec.scenario import Scenario

_CHECK_MENDED_IN = "0.16.0"  # see `simkv.kv.ledger.PIPELINE_CHECK_IS_WRONG`
_MOST_PAIRS = 2


def remedies_of(scenario: Scenario, ledger: MemoryLedger) -> Iterator[str]:
    """Yield changes as ``--set`` takes them, two joined by " and "; with each of them alone vLLM starts.

    Two at once are tried where nothing but a shorter max_model_len helps alone: it gives up what was asked.
    """
    found = [
        change
        for field in _fields(scenario, ledger)
        if (change := first_that_starts(scenario, field)) is not None
    ]
    yield from map(str, found)
    if all(change.field == LENGTH.name for change in found):
        pairs = _pairs(scenario, ledger, may_shorten=not found)
        yield from (f"{first} and {second}" for first, second in islice(pairs, _MOST_PAIRS))


def _fields(scenario: Scenario, ledger: MemoryLedger) -> Iterator[Field]:
    """Fields for single changes."""
    share = peak_share(ledger)
    if is_pipeline_quirk(ledger):
        yield Field("engine", "vllm_version", lambda _: (_CHECK_MENDED_IN,))
    if share > 1:
        yield from (BATCH, SEQUENCES)
    if ledger.outcome == "refused":
        yield LENGTH
    if is_pipeline_quirk(ledger) and scenario.engine.kv_cache_memory_bytes is not None:
        pass  # more would help where it need not
    elif ledger.is_overridden:
        yield BLOCKS
    elif scenario.engine.kv_cache_memory_bytes is not None:
        yield BYTES
    else:
        yield UTILIZATION
    if WORTH_SAYING <= share <= 1:
        yield from (BATCH, SEQUENCES)
    if ledger.outcome == "oom":
        yield EAGER
    yield from (TENSOR, PIPELINE, CONTEXT, KV_DTYPE)


def _pairs(scenario: Scenario, ledger: MemoryLedger, *, may_shorten: bool) -> Iterator[tuple[Change, Change]]:
    """Yield pairs that let the server start: without more GPUs, then of fewest, then with a shorter length."""
    has_large_batch, has_utilization = peak_share(ledger) >= WORTH_SAYING, sets_utilization(scenario, ledger)
    seconds = [KV_DTYPE]
    if has_large_batch:
        seconds.append(BATCH)
    if has_utilization:
        seconds.append(UTILIZATION)
    if ledger.loads_weights:
        for i, second in enumerate(seconds[1:], start=1):
            for first in seconds[:i]:
                yield from _first_pair(scenario, ANY_BATCH if first is BATCH else first, second)
    for layout in (TENSOR, PIPELINE):
        yield from _wider_replicas(scenario, layout)
    yield from _smallest_layout(scenario)
    for layout in (TENSOR, PIPELINE):
        for second in (*seconds, CONTEXT):
            yield from _first_pair(scenario, layout, second)
    if may_shorten:
        firsts = ([ANY_BATCH] if has_large_batch else []) + ([MOST_UTILIZATION] if has_utilization else [])
        for first in (*firsts, TENSOR, PIPELINE):
            yield from _first_pair(scenario, first, LENGTH)


def _first_pair(scenario: Scenario, first: Field, second: Field) -> Iterator[tuple[Change, Change]]:
    """Yield the mildest change of `first` that a change of `second` completes, if any."""
    for change in first.changes(scenario):
        variant = change.of(scenario)
        if rule_faults(variant) or not memory_ledger(variant).loads_weights:
            continue
        other = first_that_starts(variant, second)
        if other is not None:
            yield change, other
            return


def _wider_replicas(scenario: Scenario, layout: Field) -> Iterator[tuple[Change, Change]]:
    """Yield the most replicas that start if each has more GPUs, with the smallest such layout."""
    for fewer in REPLICAS.changes(scenario):
        wider = first_that_starts(fewer.of(scenario), layout)
        if wider is not None:
            yield fewer, wider
            return


def _smallest_layout(scenario: Scenario) -> Iterator[tuple[Change, Change]]:
    """Yield the tensor and pipeline sizes, both larger, that start on the fewest GPUs, with the fewest stages."""
    layouts = []
    for tensor in TENSOR.changes(scenario):
        wider = tensor.of(scenario)
        if rule_faults(wider):
            continue
        layouts += [(tensor.value * deeper.value, deeper, tensor) for deeper in PIPELINE.changes(wider)]
    layouts.sort(key=lambda each: (each[0], each[1].value))
    for _, deeper, tensor in layouts:
        if starts(deeper.of(tensor.of(scenario))):
            yield tensor, deeper
            return
