"""Block tables of requests: admission, growth, prefix hits, freeing. Semantics of vLLM's V1 manager.

It knows requests only by what it needs of them (`TokenHolder`), so it can be driven without a scheduler:

>>> from simkv.kv import BlockPool
>>> manager = KVCacheManager(BlockPool(10), block_size=16, max_model_len=4096)
>>> from types import SimpleNamespace
>>> request = SimpleNamespace(request_id=7, num_tokens=40, num_computed_tokens=0)
>>> manager.allocate_slots(request, 32), manager.block_table(7)
([1, 2], [1, 2])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from simkv.kv.block_pool import BlockPool
from simkv.kv.prefix import PrefixNames, TokenRuns
from simkv.units import ceil_div


class TokenHolder(Protocol):
    """What the manager reads of a request."""

    @property
    def request_id(self) -> int:
        """Its key in the tables."""

    @property
    def num_tokens(self) -> int:
        """Known tokens: the prompt and the outputs so far."""

    @property
    def num_computed_tokens(self) -> int:
        """Tokens whose KV is in the cache (or about to be)."""


class KVCacheManager:
    """Block tables over a `BlockPool`.

    max_model_len          no request gets blocks for more tokens than that
    enable_prefix_caching  full blocks are findable by their tokens and all tokens before them
    watermark              the fraction of blocks that an admission (never a running request) leaves free
    """

    def __init__(
        self,
        pool: BlockPool,
        block_size: int,
        max_model_len: int,
        enable_prefix_caching: bool = False,
        watermark: float = 0.0,
    ):
        self.pool = pool
        self.block_size = block_size
        self.max_model_len = max_model_len
        self.enable_prefix_caching = enable_prefix_caching
        self.num_watermark_blocks = int(watermark * pool.num_gpu_blocks)
        self._tables: dict[int, list[int]] = {}
        self._num_hashed_blocks: dict[int, int] = {}
        self._prefix_names = PrefixNames()
        self._runs: dict[int, TokenRuns] = {}

    def add_request(self, request_id: int, tokens: Sequence[tuple[int, int]]) -> None:
        """Make a request's tokens known to the prefix cache, as (start, length) segments.

        All it will ever have: the prompt, then the outputs to come. How many of them are known is read from
        the request when it is looked at.
        """
        if self.enable_prefix_caching:
            runs = self._runs[request_id] = TokenRuns(self._prefix_names)
            for start, length in tokens:
                runs.append(start, length)

    def remove_request(self, request_id: int) -> None:
        """Forget a finished request's tokens; its blocks must have been freed."""
        self._runs.pop(request_id, None)

    def block_table(self, request_id: int) -> list[int]:
        """The block ids that a request holds, in the order of its tokens."""
        return self._tables.get(request_id, [])

    def get_computed_blocks(self, request: TokenHolder) -> list[int]:
        """Return the cached blocks that hold the beginning of a request's tokens.

        At most ``(num_tokens - 1) // block_size`` of them: the last token is always computed, to sample from.
        """
        if not self.enable_prefix_caching:
            return []
        return self._lookup(self._runs[request.request_id], request.num_tokens)

    def num_cached_blocks(self, prompt: Sequence[tuple[int, int]], num_tokens: int) -> int:
        """How many blocks a prompt of (start, length) segments would hit, were it to arrive now."""
        if not self.enable_prefix_caching:
            return 0
        runs = TokenRuns(self._prefix_names)
        for start, length in prompt:
            runs.append(start, length)
        return len(self._lookup(runs, num_tokens))

    def _lookup(self, runs: TokenRuns, num_tokens: int) -> list[int]:
        last = (num_tokens - 1) // self.block_size
        hits: list[int] = []
        for block_hash in runs.block_hashes(0, last, self.block_size):
            block = self.pool.lookup(block_hash)
            if block is None:
                break
            hits.append(block)
        return hits

    def allocate_slots(self, request: TokenHolder, num_new_tokens: int) -> list[int] | None:
        """Return new blocks for a running request's next tokens, or None, changing nothing, if too few are free."""
        num_tokens = request.num_computed_tokens + num_new_tokens
        table = self._tables.setdefault(request.request_id, [])
        if num_tokens < len(table) * self.block_size:
            return []  # the last block has room, and does not become full: most decodes end here
        num_new_blocks = self._num_blocks(num_tokens) - len(table)
        if num_new_blocks > self.pool.num_free_blocks:
            return None
        new_blocks: list[int] = []
        if num_new_blocks > 0:
            new_blocks = self.pool.allocate(num_new_blocks)
            table.extend(new_blocks)
        if self.enable_prefix_caching:
            self.cache_blocks(request, num_tokens)
        return new_blocks

    def admit(
        self,
        request: TokenHolder,
        hits: Sequence[int],
        num_new_tokens: int,
        reserve_full: bool,
        leave_watermark: bool,
    ) -> list[int] | None:
        """Give an admitted request its hit blocks and blocks for its first chunk; return its table.

        None, changing nothing, if too few blocks are free: for the chunk or, with `reserve_full`, for all its
        known tokens (of which only the chunk's are then taken). Hit blocks in the free queue count as needed.
        """
        num_tokens = len(hits) * self.block_size + num_new_tokens
        num_blocks = self._num_blocks(max(num_tokens, request.num_tokens) if reserve_full else num_tokens)
        num_needed = num_blocks - len(hits) + self.pool.num_free_among(hits)
        if leave_watermark:
            num_needed += self.num_watermark_blocks
        if num_needed > self.pool.num_free_blocks:
            return None
        self.pool.touch(hits)
        new_blocks = self.pool.allocate(self._num_blocks(num_tokens) - len(hits))
        table = self._tables[request.request_id] = [*hits, *new_blocks]
        if self.enable_prefix_caching:
            self._num_hashed_blocks[request.request_id] = len(hits)
            self.cache_blocks(request, num_tokens)
        return table

    def cache_blocks(self, request: TokenHolder, num_computed_tokens: int) -> None:
        """Hash a request's full blocks within its first `num_computed_tokens` tokens, as far as known.

        This happens when the tokens are scheduled, so a request later in the same step can already hit them.
        """
        last = min(num_computed_tokens, request.num_tokens, self.max_model_len) // self.block_size
        first = self._num_hashed_blocks.get(request.request_id, 0)
        if first >= last:
            return
        table = self._tables[request.request_id]
        hashes = self._runs[request.request_id].block_hashes(first, last, self.block_size)
        for index, block_hash in enumerate(hashes, first):
            self.pool.cache(table[index], block_hash)
        self._num_hashed_blocks[request.request_id] = last

    def free(self, request_id: int) -> None:
        """Free all blocks of a request (it finished, or is preempted)."""
        self._num_hashed_blocks.pop(request_id, None)
        table = self._tables.pop(request_id, None)
        if table:
            self.pool.free(table)

    def _num_blocks(self, num_tokens: int) -> int:
        return ceil_div(min(num_tokens, self.max_model_len), self.block_size)
