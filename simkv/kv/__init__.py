"""Paged KV cache: the block pool, its manager, and the memory ledger that sizes it."""

from simkv.kv.block_pool import BlockPool
from simkv.kv.manager import KVCacheManager

__all__ = ["BlockPool", "KVCacheManager"]
