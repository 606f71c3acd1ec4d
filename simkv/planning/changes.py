"""Changes to a scenario that may let a server start: the fields, and for each its values from the mildest on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import floor
from typing import Any, NamedTuple

from simkv.kv.budget import MemoryLedger, memory_ledger
from simkv.spec.checks import rule_faults
from simkv.spec.context import decode_context_parallel_sizes
from simkv.spec.engine import FIRST_V1
from simkv.spec.scenario import Scenario

_MOST_RANKS = 64
_SHRINKS_TO = 0.8  # of a layout's weights is left at least in a larger one, which holds fewer copies
_LONGEST_WHOLE_PROMPT = 32_768  # V0 batches a whole prompt up to here: `simkv.spec.engine`


class Change(NamedTuple):
    """A field and its value, as after ``--set``."""

    section: str
    field: str
    value: Any

    def __str__(self) -> str:
        return f"{self.section}.{self.field}={self.value}"

    def of(self, scenario: Scenario) -> Scenario:
        """The scenario with this change."""
        return scenario.replace(**{self.section: {self.field: self.value}})


class Field(NamedTuple):
    """A field and what to try there: `values` of a scenario, the mildest first."""

    section: str
    name: str
    values: Callable[[Scenario], Iterable[Any]]

    def changes(self, scenario: Scenario) -> Iterator[Change]:
        """Every change of this field."""
        for value in self.values(scenario):
            yield Change(self.section, self.name, value)


def starts(scenario: Scenario) -> bool:
    """True if the rules allow the scenario and the ledger says that vLLM starts."""
    return not rule_faults(scenario) and memory_ledger(scenario).fits


def first_that_starts(scenario: Scenario, field: Field) -> Change | None:
    """The mildest change of a field that lets the server start."""
    return next((change for change in field.changes(scenario) if starts(change.of(scenario))), None)


# Values


def longest_lengths(scenario: Scenario) -> Iterator[int]:
    """The longest max_model_len, down to a block, with which the server starts."""
    engine = scenario.resolved_engine
    spans = [(engine.block_size, engine.max_model_len - 1)]
    if engine.version < FIRST_V1 and spans[0][1] > _LONGEST_WHOLE_PROMPT:
        spans = [(_LONGEST_WHOLE_PROMPT + 1, spans[0][1]), (spans[0][0], _LONGEST_WHOLE_PROMPT)]
    for shortest, longest in spans:
        low, high = shortest, longest
        if low > high or not _starts_at(scenario, low):
            continue
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if _starts_at(scenario, middle) else (low, middle - 1)
        yield low


def _starts_at(scenario: Scenario, max_model_len: int) -> bool:
    return starts(Change("engine", "max_model_len", max_model_len).of(scenario))


def utilizations(scenario: Scenario) -> Iterator[float]:
    """The nearest gpu_memory_utilization in hundredths with which the server is neither refused nor dies."""
    now = scenario.resolved_engine.gpu_memory_utilization
    ledger = memory_ledger(scenario)
    dies = ledger.outcome == "oom"
    # away from the one that is set: what is refused or dies comes first, the end of a long search last
    tried = [
        percent / 100
        for percent in range(100, 0, -1)
        if (percent / 100 < now if dies else percent / 100 > now)
    ]
    tried = tried if dies else tried[::-1]

    def is_no_better(utilization: float) -> bool:
        variant = scenario.replace(engine={"gpu_memory_utilization": utilization})
        return memory_ledger(variant).outcome == ledger.outcome

    if not tried or not ledger.loads_weights or is_no_better(tried[-1]):
        return
    low, high = 0, len(tried) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if is_no_better(tried[middle]) else (low, middle)
    yield tried[low]


def roomiest_utilizations(scenario: Scenario) -> Iterator[float]:
    """Utilizations above the one that is set, the most room first."""
    now = scenario.resolved_engine.gpu_memory_utilization
    return (percent / 100 for percent in range(100, 0, -1) if percent / 100 > now)


def any_batch_tokens(scenario: Scenario) -> list[int]:
    """Powers of two below max_num_batched_tokens, down to max_num_seqs, the largest first."""
    engine = scenario.resolved_engine
    return [
        size for size in _powers_below(engine.max_num_batched_tokens)[::-1] if size >= engine.max_num_seqs
    ]


def batch_tokens(scenario: Scenario) -> Iterator[int]:
    """The largest of these with which the server starts."""
    return _largest(scenario, "max_num_batched_tokens", any_batch_tokens(scenario)[::-1])


def sequences(scenario: Scenario) -> Iterator[int]:
    """The largest power of two below max_num_seqs with which the server starts."""
    return _largest(scenario, "max_num_seqs", _powers_below(scenario.resolved_engine.max_num_seqs))


def _powers_below(number: int) -> list[int]:
    """From 1 on."""
    return [1 << bits for bits in range((number - 1).bit_length())]


def _largest(scenario: Scenario, name: str, sizes: list[int]) -> Iterator[int]:
    """The largest of rising sizes with which the server starts: all below it do."""

    def does_start(size: int) -> bool:
        return starts(Change("engine", name, size).of(scenario))

    if not sizes or not does_start(sizes[0]):
        return
    low, high = 0, len(sizes) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if does_start(sizes[middle]) else (low, middle - 1)
    yield sizes[low]


def cache_blocks(scenario: Scenario) -> tuple[int, ...]:
    """Blocks of a cache of given size: the fewest that hold a request, the most that the GPUs hold."""
    ledger = memory_ledger(scenario)
    null_blocks = ledger.num_gpu_blocks - ledger.num_usable_blocks
    room = min((rank.total_bytes - ledger.used_bytes(rank)) // rank.kv_block_bytes for rank in ledger.ranks)
    most, fewest = ledger.num_gpu_blocks + room, ledger.blocks_per_request + max(1, null_blocks)
    return tuple(size for size in ((most, fewest) if ledger.outcome == "oom" else (fewest, most)) if size > 0)


def cache_bytes(scenario: Scenario) -> Iterator[int]:
    """The same in bytes of the stage with the widest blocks."""
    widest = max(rank.kv_block_bytes for rank in memory_ledger(scenario).ranks)
    return (size * widest for size in cache_blocks(scenario))


def tensor_sizes(scenario: Scenario) -> Iterable[int]:
    """Larger sizes of tensor parallelism: enough GPUs for the weights, as many as there are at most."""
    return _sizes(scenario, scenario.parallel.tensor_parallel_size)


def pipeline_sizes(scenario: Scenario) -> Iterable[int]:
    """More stages; none where the layers of each are given."""
    if scenario.parallel.pipeline_layer_partition is not None:
        return ()
    return _sizes(scenario, scenario.parallel.pipeline_parallel_size)


def _sizes(scenario: Scenario, now: int) -> range:
    """What a size can be raised to: to hold the weights, and on these GPUs."""
    hardware, used, ranks = scenario.hardware, scenario.parallel.num_gpus, memory_ledger(scenario).ranks
    num_gpus = hardware.num_gpus or hardware.node.max_num_gpus
    held = sum(rank.weights_bytes for rank in ranks) / sum(rank.total_bytes for rank in ranks)
    least = max(now + 1, floor(_SHRINKS_TO * held * now))
    return range(least, min(_MOST_RANKS, num_gpus * now // used) + 1)


def replicas(scenario: Scenario) -> Iterator[int]:
    """Fewer replicas, which leave GPUs to each; the most first."""
    return iter(range(scenario.parallel.data_parallel_size - 1, 0, -1))


def context_sizes(scenario: Scenario) -> Iterator[int]:
    """Larger sizes of decode context parallelism."""
    now = scenario.parallel.decode_context_parallel_size
    return (size for size in decode_context_parallel_sizes(scenario) if size > now)


def smaller_kv_dtypes(scenario: Scenario) -> tuple[str, ...]:
    """8 bits, where the cache has more."""
    return ("fp8",) if scenario.resolved_engine.kv_cache_dtype_bytes > 1 else ()


def eager(scenario: Scenario) -> tuple[bool, ...]:
    """No CUDA graphs, where there are some."""
    return () if scenario.resolved_engine.enforce_eager else (True,)


LENGTH = Field("engine", "max_model_len", longest_lengths)
UTILIZATION = Field("engine", "gpu_memory_utilization", utilizations)
MOST_UTILIZATION = Field("engine", "gpu_memory_utilization", roomiest_utilizations)
BATCH = Field("engine", "max_num_batched_tokens", batch_tokens)
ANY_BATCH = Field("engine", "max_num_batched_tokens", any_batch_tokens)
SEQUENCES = Field("engine", "max_num_seqs", sequences)
BLOCKS = Field("engine", "num_gpu_blocks_override", cache_blocks)
BYTES = Field("engine", "kv_cache_memory_bytes", cache_bytes)
EAGER = Field("engine", "enforce_eager", eager)
TENSOR = Field("parallel", "tensor_parallel_size", tensor_sizes)
PIPELINE = Field("parallel", "pipeline_parallel_size", pipeline_sizes)
REPLICAS = Field("parallel", "data_parallel_size", replicas)
CONTEXT = Field("parallel", "decode_context_parallel_size", context_sizes)
KV_DTYPE = Field("engine", "kv_cache_dtype", smaller_kv_dtypes)


def sets_utilization(scenario: Scenario, ledger: MemoryLedger) -> bool:
    """True if the utilization decides how large the cache is."""
    return not ledger.is_overridden and scenario.engine.kv_cache_memory_bytes is None
