"""What holds the KV cache down: the rank that binds, and where the memory of a GPU ends."""

from __future__ import annotations

from simkv.kv.budget import MemoryLedger, RankLedger, memory_ledger
from simkv.spec.scenario import Scenario
from simkv.units import GIB

_SMALL_SHARE = 0.2  # of the largest cause; smaller ones are left unsaid


def binding_reason(scenario: Scenario, ledger: MemoryLedger) -> str | None:
    """Return which stage binds and why, as a sentence; None where nothing fits."""
    if ledger.num_gpu_blocks == 0:
        return None
    if ledger.is_overridden:
        return f"num_gpu_blocks_override sets the blocks: {ledger.num_gpu_blocks:,}."
    binding = ledger.ranks[ledger.binding_stage]
    roomiest = max(ledger.ranks, key=lambda rank: rank.num_gpu_blocks)
    if binding.num_gpu_blocks == roomiest.num_gpu_blocks:
        if scenario.resolved_engine.kv_cache_memory_bytes is not None:
            return f"kv_cache_memory_bytes sets the cache: {binding.kv_bytes / GIB:.2f} GiB."
        return _alike(binding, len(ledger.ranks))
    causes = sorted(_causes(scenario, binding, roomiest), reverse=True)
    said = [text for size, text in causes if size >= _SMALL_SHARE * causes[0][0]]
    return f"Stage {binding.stage} binds: against stage {roomiest.stage} {' and '.join(said)}."


def _alike(rank: RankLedger, num_stages: int) -> str:
    terms = [("weights", rank.weights_bytes), ("the activation peak", rank.activation_bytes)]
    terms.append(("non-torch memory", rank.non_torch_bytes))
    if rank.deducts_graphs:
        terms.append(("CUDA graphs", rank.graph_bytes))
    name, size = max(terms, key=lambda term: term[1])
    verb = "take" if name.endswith("s") else "takes"
    head = "All stages bind alike" if num_stages > 1 else "All ranks are alike"
    return (
        f"{head}: beside the KV cache {name} {verb} the most, "
        f"{size / GIB:.2f} of {rank.requested_bytes / GIB:.2f} GiB."
    )


def _causes(scenario: Scenario, rank: RankLedger, other: RankLedger) -> list[tuple[int, str]]:
    """What a stage has less room for than another one, each with its bytes."""
    is_last = rank.stage == len(scenario.layers_per_stage) - 1
    activation = rank.activation_bytes - other.activation_bytes
    terms = [
        ("its weights", " (with the head)" if is_last else "", rank.weights_bytes - other.weights_bytes),
        ("its activation peak", " (the sampler's)" if is_last else "", activation),
    ]
    if rank.deducts_graphs:
        terms.append(("its CUDA graphs", "", rank.graph_bytes - other.graph_bytes))
    causes = []
    for name, note, size in terms:
        if size > 0:
            verb = "take" if name.endswith("s") else "takes"
            causes.append((size, f"{name}{note} {verb} {size / GIB:.2f} GiB more"))
    cache = (rank.kv_block_bytes - other.kv_block_bytes) * rank.num_gpu_blocks
    if cache > 0:
        count = f"{rank.num_layers} layers' KV instead of {other.num_layers}"
        causes.append((cache, f"it holds {count} ({cache / GIB:.2f} GiB more)"))
    return causes


def oom_from_utilization(scenario: Scenario) -> float | None:
    """Return the least gpu_memory_utilization, in hundredths, with which a rank takes more than its GPU has.

    None if none does, or if the utilization does not set the cache.
    """
    engine = scenario.engine
    if engine.num_gpu_blocks_override is not None or engine.kv_cache_memory_bytes is not None:
        return None

    def fits(percent: int) -> bool:
        return memory_ledger(scenario.replace(engine={"gpu_memory_utilization": percent / 100})).fits_memory

    low, high = 1, 100
    if fits(high) or not fits(low):
        return None
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return high / 100
