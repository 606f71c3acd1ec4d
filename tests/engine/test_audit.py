"""The auditor notices: each violation that it guards against is planted once."""

import pytest

from tests.engine.worlds import requests_of, simulation_of


def run_with(fault, **options):
    requests = requests_of([(0, 40, 20), (0, 40, 20), (5_000, 30, 20)])
    simulation = simulation_of(requests, num_gpu_blocks=24, **options)
    scheduler = simulation.replicas[0].scheduler
    fault(scheduler)
    return simulation.run()


def leak_a_block(scheduler):
    free = scheduler.kv.pool.free
    scheduler.kv.pool.free = lambda table: free(table[1:])


def hand_out_twice(scheduler):
    allocate = scheduler.kv.pool.allocate

    def broken(num_blocks):
        blocks = allocate(num_blocks)
        return [1, *blocks[1:]] if blocks else blocks

    scheduler.kv.pool.allocate = broken


def lose_a_request(scheduler):
    finish = scheduler._finish

    def broken(request):
        finish(request)
        if len(scheduler.waiting):
            scheduler.waiting.remove(next(iter(scheduler.waiting)))

    scheduler._finish = broken


def exceed_the_budget(scheduler):
    scheduler._chunk_limit = lambda: 10**6
    object.__setattr__(scheduler.config, "max_num_batched_tokens", 64)
    admit = scheduler._admit_waiting

    def broken(plan, batch, chunk_limit, budget):
        admit(plan, batch, chunk_limit, 64)
        object.__setattr__(scheduler.config, "max_num_batched_tokens", 16)

    scheduler._admit_waiting = broken


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (leak_a_block, "blocks: "),
        (hand_out_twice, "handed out while held|blocks: "),
        (lose_a_request, "requests: "),
        (exceed_the_budget, "exceed the budget"),
    ],
)
def test_a_planted_fault_is_found(fault, message):
    with pytest.raises(AssertionError, match=message):
        run_with(fault)
