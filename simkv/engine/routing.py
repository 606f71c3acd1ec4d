"""How requests are dealt out to the replicas of a data-parallel server."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simkv.engine.replica import Replica

Router = Callable[[Sequence[Replica], int], int]


def round_robin(replicas: Sequence[Replica], num_routed: int) -> int:
    """The next replica in turn."""
    return num_routed % len(replicas)


ROUTERS: dict[str, Router] = {"round_robin": round_robin}
