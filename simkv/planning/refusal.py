"""Why a server would not start, in numbers, in the order in which it would find out."""

from __future__ import annotations

from simkv.kv.activation import activation_peak_bytes
from simkv.kv.budget import MemoryLedger, RankLedger
from simkv.spec.scenario import Scenario
from simkv.units import GIB

WORTH_SAYING = 0.2  # an activation peak of this share of the weights


def refusal_of(scenario: Scenario, ledger: MemoryLedger) -> str | None:
    """Return what stops the start-up, as a clause; None if nothing does."""
    if not ledger.loads_weights:
        return _too_large(ledger)
    if not ledger.fits_weights:
        return _no_room(scenario, ledger)
    if not ledger.fits_one_request:
        return _whole_model(ledger) if is_pipeline_quirk(ledger) else _one_request(scenario, ledger)
    if not ledger.fits_memory:
        return _out_of_memory(scenario, ledger)
    return None


def peak_share(ledger: MemoryLedger) -> float:
    """The activation peak as a share of the weights, on the rank where it is largest."""
    return max(rank.activation_bytes / rank.weights_bytes for rank in ledger.ranks)


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


def _no_room(scenario: Scenario, ledger: MemoryLedger) -> str:
    rank = min(ledger.ranks, key=lambda rank: rank.kv_bytes)
    least = 1 + ledger.num_gpu_blocks - ledger.num_usable_blocks  # with the null block, where it counts
    short_bytes = max(2, least) * rank.kv_block_bytes - rank.kv_bytes
    weights, share = (
        f"weights of {rank.weights_bytes / GIB:.2f} GiB",
        rank.activation_bytes / rank.weights_bytes,
    )
    if share > 1:
        what = f"{_peak(scenario, rank)} does"
    else:
        what = f"{weights} and {_peak(scenario, rank)} do" if share >= WORTH_SAYING else f"{weights} do"
    return (
        f"{what} not leave room for a KV cache within "
        f"{rank.requested_bytes / GIB:.2f} GiB on stage {rank.stage}: short by {short_bytes / GIB:.2f} GiB"
    )


def _one_request(scenario: Scenario, ledger: MemoryLedger) -> str:
    rank = ledger.ranks[ledger.binding_stage]
    need, have = ledger.blocks_per_request, ledger.num_usable_blocks
    return (
        f"one request of max_model_len {ledger.max_model_len:,} tokens needs "
        f"{need * rank.kv_block_bytes / GIB:.2f} GiB of KV cache per GPU on stage {rank.stage} ({need:,} blocks), "
        f"{have * rank.kv_block_bytes / GIB:.2f} GiB are available ({have:,} blocks){_beside(scenario, rank)}"
    )


def _beside(scenario: Scenario, rank: RankLedger) -> str:
    """A word on the activation peak where it takes more than the weights."""
    return f" beside {_peak(scenario, rank)}" if rank.activation_bytes > rank.weights_bytes else ""


def _peak(scenario: Scenario, rank: RankLedger) -> str:
    """The activation peak with the option that makes it: the batch's tokens, or the rows that are sampled."""
    engine = scenario.resolved_engine
    one_row = {"max_num_seqs": 1, "max_num_batched_tokens": engine.max_num_batched_tokens}
    if activation_peak_bytes(scenario.replace(engine=one_row), rank.stage) < rank.activation_bytes:
        cause = f"max_num_seqs {engine.max_num_seqs:,}"
    else:
        cause = f"max_num_batched_tokens {engine.max_num_batched_tokens:,}"
    return f"an activation peak of {rank.activation_bytes / GIB:.2f} GiB ({cause})"


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


def _out_of_memory(scenario: Scenario, ledger: MemoryLedger) -> str:
    rank = max(ledger.ranks, key=lambda rank: ledger.used_bytes(rank) - rank.total_bytes)
    outside = rank.outside_bytes + (0 if rank.deducts_graphs else rank.graph_bytes)
    what = "the CUDA context and the sampler's warm-up"
    if not rank.deducts_graphs and rank.graph_bytes:
        what = f"CUDA graphs, {what}"
    return (
        f"out of memory on stage {rank.stage}: weights, activations, CUDA graphs and KV cache take "
        f"{ledger.used_bytes(rank) / GIB:.2f} GiB of {rank.total_bytes / GIB:.2f} GiB, "
        f"{outside / GIB:.2f} GiB of them outside the budget ({what}){_beside(scenario, rank)}"
    )
