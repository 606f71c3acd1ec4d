"""Maximum concurrency from what a log prints beside it: blocks, or tokens from which the blocks follow.

V0     tokens / L                                 L = max_model_len
V1     blocks / blocks of a request of L tokens   ceil(L / block_size) where all layers cache alike
0.20   the printed tokens are int(concurrency × L), whatever the layers

A request's blocks in a model of several groups need its dimensions (`simkv.kv.groups`); else neither the model,
nor the GPU, nor, where both engines divide alike, the version need be known.
"""

from __future__ import annotations

from math import ceil

from simkv.kv.groups import HYBRID_SINCE
from simkv.kv.ledger import PRINTS_CONCURRENCY_SINCE, MemoryLedger
from simkv.spec.engine import FIRST_V1, parse_version
from simkv.units import ceil_div
from simkv.validate.startup_rows import DEFAULT_BLOCK_SIZE, StartupRow, version_of

NOT_LOGGED = "neither blocks nor tokens are logged"


def concurrency_of_logged(row: StartupRow, ledger: MemoryLedger | None) -> tuple[float | None, str]:
    """Return the concurrency that follows from the logged blocks, or None and why there is none.

    `ledger` is that of the row's model, None where its dimensions are not known.
    """
    if row.whole("num_gpu_blocks") is None and row.whole("kv_tokens") is None:
        return None, NOT_LOGGED
    if ledger is None:
        return _of_the_row_alone(row)
    if version_of(row) is None and _engines_differ(
        ledger.max_model_len, ledger.block_size, len(ledger.groups.kinds)
    ):
        return None, "the version is not stated, and V0 and V1 divide differently"
    return _of_the_ledger(row, ledger), ""


def _engines_differ(max_model_len: int, block_size: int, num_groups: int) -> bool:
    """False if tokens / L is blocks / ceil(L / block_size)."""
    return num_groups > 1 or max_model_len % block_size > 0


def _of_the_row_alone(row: StartupRow) -> tuple[float | None, str]:
    """As far as a row goes whose model is not known."""
    length, block_size = row.whole("max_model_len"), row.whole("block_size") or DEFAULT_BLOCK_SIZE
    tokens, blocks, text = row.whole("kv_tokens"), row.whole("num_gpu_blocks"), version_of(row)
    version = None if text is None else parse_version(text)
    if not length:
        return None, "max_model_len is not stated"
    if version is not None and version >= PRINTS_CONCURRENCY_SINCE and tokens is not None:
        return tokens / length, ""
    why = _why_unlike(row.text("params_note"), version)
    if version is None and not why and _engines_differ(length, block_size, 1):
        why = "the version is not stated, and V0 and V1 divide differently"
    if why:
        return None, why
    if blocks is None:
        assert tokens is not None
        blocks = tokens // block_size
    if version is not None and version < FIRST_V1:
        return blocks * block_size / length, ""
    return blocks / ceil_div(length, block_size), ""


def _why_unlike(note: str, version: tuple[int, int] | None) -> str:
    """Why the layers of a model cannot be taken to cache alike, by what a row says of it; empty if they can."""
    if version is not None and version < HYBRID_SINCE:
        return ""
    if "hybrid" in note:
        return "its layers do not cache alike, and their dimensions are not known"
    return "" if note else "whether its layers cache alike is not known"


def _of_the_ledger(row: StartupRow, ledger: MemoryLedger) -> float | None:
    """With the model's groups.

    Tokens of a model with groups say the blocks only up to the groups' number: the candidate nearest to the
    log is taken. A table whose collector divided printed tokens by 16 has the tokens of one group as blocks.
    """
    logged, tokens, blocks = (
        row.number("max_concurrency"),
        row.whole("kv_tokens"),
        row.whole("num_gpu_blocks"),
    )
    num_groups, block_size = len(ledger.groups.kinds), ledger.block_size
    if blocks is not None and (num_groups == 1 or tokens is None or blocks != tokens // block_size):
        return ledger.concurrency_of(blocks)
    if tokens is None:
        return None
    candidates = [tokens // block_size * num_groups + i for i in range(num_groups)]
    if ledger.tokens_of(candidates[0]) != tokens:  # printed as int(concurrency × max_model_len)
        candidates = [ceil(tokens / ledger.max_model_len * ledger.blocks_per_request)]
    nearest = candidates[0] if logged is None else min(
        candidates, key=lambda blocks: abs(ledger.concurrency_of(blocks) - logged)
    )  # fmt: skip
    return ledger.concurrency_of(nearest)
