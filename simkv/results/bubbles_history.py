"""The vocabulary of bubbles: causes of idle time, and what a moment rests on, by cause.

A *history* says of a moment how it came to be so late: a vector of nanoseconds, one a cause, that sums to the
time of that moment. It is the length of the chain of events that led there, each waiting for the one before:
batches on stages, transfers, work of the CPU, waits of the engine. Two moments are compared by the difference
of their histories, in which all that they share drops out.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Final

from simkv.results.log import WaitKind

TRANSFER: Final = 0
STAGE_IMBALANCE: Final = 1
CHUNK_IMBALANCE: Final = 2
HOST: Final = 3
TOKEN_DEPENDENCY: Final = 4
FILL_DRAIN: Final = 8
NO_WORK: Final = 9

# In the order of precedence; in a history, chunk_imbalance also holds each batch's time on its fastest stage.
CAUSES = (
    "transfer", "stage_imbalance", "chunk_imbalance", "host", "token_dependency", "too_few_requests",
    "max_num_seqs", "kv_limited", "fill_drain", "no_work",
)  # fmt: skip

CAUSE_NAMES = {
    "transfer": "transfer",
    "stage_imbalance": "stage imbalance",
    "chunk_imbalance": "chunk imbalance",
    "host": "host (CPU before steps)",
    "token_dependency": "token dependency",
    "too_few_requests": "too few requests",
    "max_num_seqs": "max_num_seqs",
    "kv_limited": "KV-limited",
    "fill_drain": "fill and drain",
    "no_work": "no work",
}

STARVED_BY = {
    WaitKind.TOKEN_DEPENDENCY: TOKEN_DEPENDENCY,
    WaitKind.TOO_FEW_REQUESTS: 5,
    WaitKind.MAX_NUM_SEQS: 6,
    WaitKind.KV_LIMITED: 7,
}
KEPT_OUT = frozenset(STARVED_BY[kind] for kind in (WaitKind.MAX_NUM_SEQS, WaitKind.KV_LIMITED))
# What an engine's wait is while it passes, where the pipeline runs dry.
WHILE_DRY = {
    **STARVED_BY,
    WaitKind.NO_WORK: NO_WORK,
    WaitKind.DRAIN: FILL_DRAIN,
    WaitKind.FULL: FILL_DRAIN,
}

History = list[int]  # nanoseconds by cause, in the order of CAUSES
Shares = list[int]  # the same of an idle interval: none negative


def beginning(time_ns: int) -> History:
    """Return the history of a moment before which nothing happened."""
    history = [0] * len(CAUSES)
    history[NO_WORK] = time_ns
    return history


def difference(later: History, earlier: History) -> History:
    """Return what the later moment's history holds beyond the earlier one's; may be negative by cause."""
    return [ns - before_ns for ns, before_ns in zip(later, earlier, strict=True)]


def blame(difference_ns: History, starved_by: int | None, likeness: float) -> History:
    """Return a difference as it counts in front of a batch that came late because the engine starved.

    With another batch to issue there would have been less idle time. Where requests wait for seats or blocks
    that is all that counts, but for transfers. Where too few run, the batches' own times count for that; where
    enough run but wait for their tokens, the share `likeness` of them, at most 1: what it would be if the batch
    that makes the tokens took no longer than the one that waits for them.
    """
    if starved_by is None:
        return difference_ns
    if starved_by in KEPT_OUT:
        blamed = [0] * len(CAUSES)
        blamed[TRANSFER] = difference_ns[TRANSFER]
        blamed[starved_by] = sum(difference_ns) - difference_ns[TRANSFER]
        return blamed
    blamed = difference_ns.copy()
    moved_ns = blamed[CHUNK_IMBALANCE]
    if starved_by == TOKEN_DEPENDENCY and moved_ns > 0:
        moved_ns = round(moved_ns * likeness)
    blamed[starved_by] += moved_ns
    blamed[CHUNK_IMBALANCE] -= moved_ns
    return blamed


def take(difference_ns: Iterable[int], amount_ns: int) -> Shares:
    """Share `amount_ns` out among the causes that a difference holds, in the order of precedence.

    What is negative has shortened the idle time: it is made up for at the end of the order.

    >>> take([30, 0, 50, 0, 0, -20, 0, 0, 0, 0], 60)
    [30, 0, 30, 0, 0, 0, 0, 0, 0, 0]
    """
    shares = []
    for ns in difference_ns:
        share_ns = min(max(ns, 0), amount_ns)
        shares.append(share_ns)
        amount_ns -= share_ns
    assert amount_ns == 0, f"{amount_ns} ns of idle time have no cause"
    return shares


def clip_parts(parts_ns: Iterable[int], amount_ns: int) -> list[int]:
    """Return how much of parts that follow each other lies within the first `amount_ns`.

    >>> clip_parts([5, 0, 7], 8)
    [5, 0, 3]
    """
    ends = [min(end_ns, amount_ns) for end_ns in accumulate(parts_ns, initial=0)]
    return [end_ns - start_ns for start_ns, end_ns in pairwise(ends)]
