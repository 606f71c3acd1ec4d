"""The pool of KV blocks: who is free, in which order they are reused, and which carry a prefix hash.

vLLM keeps one doubly linked free queue. Its order always is: blocks without a hash, last freed first out,
then blocks with a hash, first freed first out, because a block without a hash is freed to the front and one
with a hash to the back, and only a block that is handed out loses its hash. So two containers hold the
queue: a stack and an ordered dictionary.

>>> pool = BlockPool(num_gpu_blocks=6)           # block 0 is the null block, never handed out
>>> pool.allocate(3)
[1, 2, 3]
>>> pool.free([1, 2, 3]); pool.free_queue()      # the table's last block is the next one handed out
[3, 2, 1, 4, 5]
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence

BlockHash = Hashable


class BlockPool:
    """`num_gpu_blocks` blocks, the null block (id 0) included, so one less can be used.

    A block has as many holders as block tables contain it. A block with a hash stays findable after its last
    holder has gone, until it is handed out again.
    """

    def __init__(self, num_gpu_blocks: int):
        if num_gpu_blocks < 1:
            raise ValueError(f"num_gpu_blocks: wanted at least 1 (the null block), got {num_gpu_blocks}")
        self.num_gpu_blocks = num_gpu_blocks
        self._free_unhashed = list(range(num_gpu_blocks - 1, 0, -1))  # a stack: the last is handed out first
        self._free_hashed: OrderedDict[int, None] = OrderedDict()  # least recently freed first
        self._num_holders = [0] * num_gpu_blocks
        self._hash_of_block: dict[int, BlockHash] = {}
        # Equal blocks are not merged: a hash may have several, the one registered first is used.
        self._blocks_of_hash: dict[BlockHash, int | OrderedDict[int, None]] = {}

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds, with or without a hash."""
        return len(self._free_unhashed) + len(self._free_hashed)

    @property
    def num_usable_blocks(self) -> int:
        """All blocks but the null block."""
        return self.num_gpu_blocks - 1

    @property
    def usage(self) -> float:
        """The share of usable blocks that somebody holds (``vllm:kv_cache_usage_perc``), 0 to 1."""
        if self.num_usable_blocks == 0:
            return 0.0
        return 1.0 - self.num_free_blocks / self.num_usable_blocks

    def allocate(self, num_blocks: int) -> list[int]:
        """Hand out blocks from the front of the free queue; a cached one loses its hash.

        Raises ValueError, and changes nothing, if there are too few: the caller checks first.
        """
        if num_blocks > self.num_free_blocks:
            raise ValueError(f"cannot hand out {num_blocks} blocks: {self.num_free_blocks} are free")
        if num_blocks <= 0:
            return []
        stack = self._free_unhashed
        blocks = stack[-num_blocks:]
        blocks.reverse()
        del stack[-num_blocks:]
        while len(blocks) < num_blocks:
            block, _ = self._free_hashed.popitem(last=False)
            self._evict(block)
            blocks.append(block)
        holders = self._num_holders
        for block in blocks:
            holders[block] = 1
        return blocks

    def touch(self, blocks: Sequence[int]) -> None:
        """Add a holder to each block of a prefix-cache hit; a free one leaves the free queue."""
        holders = self._num_holders
        for block in blocks:
            if holders[block] == 0:
                del self._free_hashed[block]
            holders[block] += 1

    def free(self, table: Sequence[int]) -> None:
        """Take one holder from each block of a table, walking from its last block to its first.

        Blocks left without a holder go, without a hash, to the front of the free queue as one group in the
        walk's order; with a hash, to the back. So tails are reused before heads.
        """
        holders = self._num_holders
        hashed = self._hash_of_block
        unhashed_in_walk_order: list[int] = []
        for block in reversed(table):
            holders[block] -= 1
            if holders[block] == 0:
                if block in hashed:
                    self._free_hashed[block] = None
                else:
                    unhashed_in_walk_order.append(block)
        # The first of the walk is to be handed out first, so it goes on top of the stack.
        self._free_unhashed.extend(reversed(unhashed_in_walk_order))

    def cache(self, block: int, block_hash: BlockHash) -> None:
        """Give a held block its prefix hash."""
        self._hash_of_block[block] = block_hash
        found = self._blocks_of_hash.get(block_hash)
        if found is None:
            self._blocks_of_hash[block_hash] = block
        elif isinstance(found, int):
            self._blocks_of_hash[block_hash] = OrderedDict.fromkeys((found, block))
        else:
            found[block] = None

    def lookup(self, block_hash: BlockHash) -> int | None:
        """Return the block that was registered first under a hash and still carries it, if any."""
        found = self._blocks_of_hash.get(block_hash)
        return found if found is None or isinstance(found, int) else next(iter(found))

    def num_free_among(self, blocks: Sequence[int]) -> int:
        """How many of these blocks nobody holds: a hit on them takes them out of the free queue."""
        holders = self._num_holders
        return sum(holders[block] == 0 for block in blocks)

    def reset(self) -> bool:
        """Drop all hashes; refuse (return False, change nothing) while any block is held."""
        if self.num_free_blocks != self.num_usable_blocks:
            return False
        # What was cached stays in its place in the queue: behind all blocks without a hash.
        self._free_unhashed[:0] = reversed(self._free_hashed)
        self._free_hashed.clear()
        self._hash_of_block.clear()
        self._blocks_of_hash.clear()
        return True

    def num_holders(self, block: int) -> int:
        """Tables that contain a block."""
        return self._num_holders[block]

    def free_queue(self) -> list[int]:
        """The free blocks, next to be handed out first."""
        return [*reversed(self._free_unhashed), *self._free_hashed]

    def cached_blocks(self) -> list[int]:
        """All blocks that carry a hash, sorted."""
        return sorted(self._hash_of_block)

    def _evict(self, block: int) -> None:
        block_hash = self._hash_of_block.pop(block)
        found = self._blocks_of_hash[block_hash]
        if isinstance(found, int):
            del self._blocks_of_hash[block_hash]
        else:
            del found[block]
            if len(found) == 1:
                self._blocks_of_hash[block_hash] = next(iter(found))
