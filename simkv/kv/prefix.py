"""Names for prefixes: what a block's hash is made of, without hashing a single token.

A request's tokens are runs of consecutive ids on the token axis. A run is named by the run before it, how
many of that run's tokens come first, and its first id; so equal token sequences get equal names, and two
prompts that differ get different ones. The hash of a block is then (name of the run that holds its last
token, index of the block): a request that shares nothing costs two names in all, however long it is.
"""

from __future__ import annotations

from collections.abc import Iterator

RunName = int
BlockHash = tuple[RunName, int]
_Key = tuple[RunName, int, int]  # (run before, tokens taken from it, first id)

NO_RUN: RunName = 0


class PrefixNames:
    """Interns runs; one instance serves all requests of a KV cache."""

    def __init__(self) -> None:
        self._names: dict[_Key, RunName] = {}

    def name(self, previous: RunName, num_previous_tokens: int, start: int) -> RunName:
        """Return the name of the run that starts with id `start` after `num_previous_tokens` of `previous`."""
        return self._names.setdefault((previous, num_previous_tokens, start), len(self._names) + 1)


class TokenRuns:
    """The known tokens of one request as named runs, in positions of the request.

    >>> names = PrefixNames()
    >>> a, b = TokenRuns(names), TokenRuns(names)
    >>> for runs, segments in ((a, [(1000, 40), (9000, 30)]), (b, [(1000, 20), (1020, 20), (5000, 30)])):
    ...     for start, length in segments:
    ...         runs.append(start, length)
    >>> in_a, in_b = list(a.block_hashes(0, 4, 16)), list(b.block_hashes(0, 4, 16))
    >>> in_a[:2] == in_b[:2]   # tokens 0 to 31 are the same
    True
    >>> in_a[2] == in_b[2]     # block 2 ends in the second segment
    False
    """

    __slots__ = ("_ends", "_names", "_next_id", "_prefix_names")

    def __init__(self, prefix_names: PrefixNames):
        self._prefix_names = prefix_names
        self._names: list[RunName] = []
        self._ends: list[int] = []  # position after the run's last token
        self._next_id: int | None = None

    def append(self, start: int, length: int) -> None:
        """Add the tokens ``start, start + 1, …``; consecutive ids prolong the last run, so runs are maximal."""
        if length == 0:
            return
        end = self._ends[-1] if self._ends else 0
        if start == self._next_id:
            self._ends[-1] = end + length
        else:
            previous = self._names[-1] if self._names else NO_RUN
            length_of_previous = end - (self._ends[-2] if len(self._ends) > 1 else 0)
            self._names.append(self._prefix_names.name(previous, length_of_previous, start))
            self._ends.append(end + length)
        self._next_id = start + length

    def block_hashes(self, first: int, last: int, block_size: int) -> Iterator[BlockHash]:
        """Yield the hashes of blocks ``first … last - 1``, all of whose tokens are known."""
        block = first
        for name, end in zip(self._names, self._ends, strict=True):
            # The blocks whose last token lies in this run.
            while block < last and (block + 1) * block_size <= end:
                yield name, block
                block += 1
            if block == last:
                return
