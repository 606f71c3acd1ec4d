"""The memory ledger's public names; the terms are in `ledger`, `weights`, `activation`, `overheads`, `groups`."""

from simkv.kv.activation import activation_peak_bytes
from simkv.kv.ledger import MemoryLedger, Outcome, RankLedger, memory_ledger
from simkv.kv.weights import weights_bytes

__all__ = [
    "MemoryLedger",
    "Outcome",
    "RankLedger",
    "activation_peak_bytes",
    "memory_ledger",
    "weights_bytes",
]
