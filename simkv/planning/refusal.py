"""Why a server would not start, in numbers, in the order in which it would find out."""

from __future__ import annotations

from simkv.kv.budget import MemoryLedger
from simkv.units import GIB


def refusal_of(ledger: MemoryLedger) -> str | None:
    """Return what stops the start-up, as a clause; None if nothing does."""
    if not ledger.loads_weights:
        return _too_large(ledger)
    if not ledger.fits_weights:
        return _no_room(ledger)
    if not ledger.fits_one_request:
        return _whole_model(ledger) if is_pipeline_quirk(ledger) else _one_request(ledger)
    if not ledger.fits_memory:
        return _out_of_memory(ledger)
    return None


def is_pipeline_quirk(ledger: MemoryLedger) -> bool:
    """True if vLLM 0.14 or 0.15 refuses a pipeline each of whose stages has room for its share of a request."""
    return not ledger.fits_one_request and ledger.blocks_per_request <= ledger.num_usable_blocks


def _too_large(ledger: MemoryLedger) -> str:
    rank = max(ledger.ranks, key=lambda rank: rank.weights_bytes - rank.total_bytes)
    return (
        f"weights of {rank.weights_bytes / GIB:.2f} GiB exceed the {rank.total_bytes / GIB:.2f} GiB of a GPU "
        f"on stage {rank.stage} by {(rank.weights_bytes - rank.total_bytes) / GIB:.2f} GiB: out of memory while "
        "they load"
    )


def _no_room(ledger: MemoryLedger) -> str:
    rank = min(ledger.ranks, key=lambda rank: rank.kv_bytes)
    least = 1 + ledger.num_gpu_blocks - ledger.num_usable_blocks  # with the null block, where it counts
    short_bytes = max(2, least) * rank.kv_block_bytes - rank.kv_bytes
    return (
        f"weights of {rank.weights_bytes / GIB:.2f} GiB do not leave room for a KV cache within "
        f"{rank.requested_bytes / GIB:.2f} GiB on stage {rank.stage}: short by {short_bytes / GIB:.2f} GiB"
    )


def _one_request(ledger: MemoryLedger) -> str:
    rank = ledger.ranks[ledger.binding_stage]
    need, have = ledger.blocks_per_request, ledger.num_usable_blocks
    return (
        f"one request of max_model_len {ledger.max_model_len:,} tokens needs "
        f"{need * rank.kv_block_bytes / GIB:.2f} GiB of KV cache per GPU on stage {rank.stage} ({need:,} blocks), "
        f"{have * rank.kv_block_bytes / GIB:.2f} GiB are available ({have:,} blocks)"
    )


def _whole_model(ledger: MemoryLedger) -> str:
    rank = max(ledger.ranks, key=lambda rank: rank.kv_block_bytes)
    num_blocks, major_minor = ledger.blocks_per_request, ".".join(map(str, ledger.version))
    return (
        f"vLLM {major_minor} compares one request of max_model_len {ledger.max_model_len:,} tokens in all layers, "
        f"{num_blocks * sum(each.kv_block_bytes for each in ledger.ranks) / GIB:.2f} GiB, with the smallest "
        f"stage's {min(each.kv_bytes for each in ledger.ranks) / GIB:.2f} GiB and says that "
        f"{ledger.longest_request_tokens:,} tokens would fit; a stage needs only "
        f"{num_blocks * rank.kv_block_bytes / GIB:.2f} GiB, and 0.16 mended the check"
    )


def _out_of_memory(ledger: MemoryLedger) -> str:
    rank = max(ledger.ranks, key=lambda rank: ledger.used_bytes(rank) - rank.total_bytes)
    outside = rank.outside_bytes + (0 if rank.deducts_graphs else rank.graph_bytes)
    what = "the CUDA context and the sampler's warm-up"
    if not rank.deducts_graphs and rank.graph_bytes:
        what = f"CUDA graphs, {what}"
    return (
        f"out of memory on stage {rank.stage}: weights, activations, CUDA graphs and KV cache take "
        f"{ledger.used_bytes(rank) / GIB:.2f} GiB of {rank.total_bytes / GIB:.2f} GiB, "
        f"{outside / GIB:.2f} GiB of them outside the budget ({what})"
    )
