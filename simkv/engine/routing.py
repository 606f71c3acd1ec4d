"""How requests are dealt out to the replicas of a data-parallel server."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simkv.engine.replica import Replica
from simkv.workload import RequestSpec

Router = Callable[[Sequence[Replica], RequestSpec], int]


def round_robin() -> Router:
    """The next replica in turn."""
    num_routed = 0

    def route(replicas: Sequence[Replica], request: RequestSpec) -> int:
        nonlocal num_routed
        num_routed += 1
        return (num_routed - 1) % len(replicas)

    return route


def least_loaded() -> Router:
    """The replica with the smallest 4 · waiting + running; of equal ones the first.

    These are the weights of vLLM's own data-parallel balancer (`DPLBAsyncMPClient`).
    """

    def load(replica: Replica) -> int:
        return 4 * len(replica.scheduler.waiting) + len(replica.scheduler.running)

    def route(replicas: Sequence[Replica], request: RequestSpec) -> int:
        return min(range(len(replicas)), key=lambda index: load(replicas[index]))

    return route


def prefix_affinity() -> Router:
    """The replica that holds most of the prompt in its prefix cache; of equal ones the least loaded."""
    fall_back = least_loaded()

    def route(replicas: Sequence[Replica], request: RequestSpec) -> int:
        hits = [
            replica.scheduler.kv.num_cached_blocks(request.prompt, request.num_prompt_tokens)
            for replica in replicas
        ]
        best = [index for index, num_hits in enumerate(hits) if num_hits == max(hits)]
        return best[fall_back([replicas[index] for index in best], request)]

    return route


ROUTERS: dict[str, Callable[[], Router]] = {
    "round_robin": round_robin,
    "least_loaded": least_loaded,
    "prefix_affinity": prefix_affinity,
}
