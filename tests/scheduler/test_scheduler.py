"""Single rules of the scheduler, each in the smallest case that shows it."""

from dataclasses import replace

from simkv.scheduler import RequestStatus
from simkv.step import GraphMode, PrefillChunk
from tests.scheduler.drive import ids, request_of, scheduled, scheduler_of, step


def test_running_requests_first_then_waiting_ones_in_order():
    scheduler = scheduler_of()
    scheduler.add_request(request_of(0, 10))
    assert scheduled(step(scheduler)) == [(0, 10)]
    scheduler.add_request(request_of(1, 40))
    scheduler.add_request(request_of(2, 5))
    assert scheduled(step(scheduler)) == [(0, 1), (1, 31)]
    assert scheduled(step(scheduler)) == [(0, 1), (1, 9), (2, 5)]


def test_a_victim_scheduled_in_this_step_gives_its_tokens_back_and_nobody_is_skipped():
    """Running are 0 (least urgent), 1 and 2; the budget is two tokens.

    0 is scheduled; 1 needs a block, which preempts 0; with 0's token back in the budget, 1 and 2 both run.
    """
    scheduler = scheduler_of(num_gpu_blocks=6, policy="priority")
    scheduler.add_request(request_of(0, 5, priority=9))
    step(scheduler)
    scheduler.add_request(request_of(1, 4, priority=1))  # fills its block: its next token needs another
    scheduler.add_request(request_of(2, 5, priority=2))
    step(scheduler)
    assert ids(scheduler.running) == [0, 1, 2]
    assert scheduler.kv.pool.num_free_blocks == 0
    scheduler.config = replace(scheduler.config, max_num_batched_tokens=2)
    plan = step(scheduler)
    assert ids(plan.preempted) == [0]
    assert scheduled(plan) == [(1, 1), (2, 1)]
    assert list(plan.new_blocks) == [1]
    assert scheduler.running[0].status is RequestStatus.RUNNING


def test_a_request_that_is_its_own_victim_ends_the_scan():
    scheduler = scheduler_of(num_gpu_blocks=4, policy="priority")
    scheduler.add_request(request_of(0, 4, priority=9))
    scheduler.add_request(request_of(1, 5, priority=1))
    step(scheduler)
    scheduler.running.reverse()  # the least urgent stands first
    assert ids(scheduler.running) == [0, 1]
    plan = step(scheduler)
    assert ids(plan.preempted) == [0]
    assert scheduled(plan) == []
    assert ids(scheduler.running) == [1]


def test_a_preempted_request_keeps_its_outputs_and_recomputes_the_rest():
    scheduler = scheduler_of(num_gpu_blocks=8)
    scheduler.add_request(request_of(0, 12, max_tokens=9))
    scheduler.add_request(request_of(1, 11, max_tokens=9))
    plan = step(scheduler)
    while not plan.preempted:
        plan = step(scheduler)
    (victim,) = plan.preempted
    assert victim.request_id == 1
    assert (victim.num_computed_tokens, victim.num_output_tokens > 0) == (0, True)
    num_known = victim.num_tokens
    while victim not in plan.resumed:
        plan = step(scheduler)
    assert dict(scheduled(plan))[1] == num_known
    assert victim.num_recomputed_tokens == num_known - 1  # its newest token had never been computed
    assert victim.num_preemptions == 1


def test_nothing_is_admitted_in_a_step_that_preempted():
    scheduler = scheduler_of(num_gpu_blocks=7)
    for request_id in (0, 1):
        scheduler.add_request(request_of(request_id, 11))
    while not step(scheduler).preempted:
        pass
    assert len(scheduler.running) == 1


def test_the_shape_tells_decodes_from_chunks():
    scheduler = scheduler_of(num_gpu_blocks=100)
    scheduler.add_request(request_of(0, 9))
    scheduler.add_request(request_of(1, 1))
    shape = step(scheduler).shape
    assert shape.prefills == (PrefillChunk(9, 0), PrefillChunk(1, 0))
    assert (shape.num_decodes, shape.num_sampled, shape.num_tokens) == (0, 2, 10)
    assert (shape.num_padded_tokens, shape.graph_mode) == (16, GraphMode.PIECEWISE)
    shape = step(scheduler).shape
    assert (shape.num_decodes, shape.decode_kv_tokens, shape.max_decode_context) == (2, 10 + 2, 10)
    assert (shape.num_padded_tokens, shape.graph_mode) == (2, GraphMode.FULL)


def test_the_shape_counts_new_blocks_not_hits():
    scheduler = scheduler_of(caching=True)
    scheduler.add_request(request_of(0, 12, max_tokens=1))
    assert step(scheduler).shape.num_new_blocks == 3
    again = request_of(1, 12, max_tokens=1)
    again.prompt = [(0, 12)]
    scheduler.add_request(again)
    plan = step(scheduler)
    assert plan.hits == {1: 8}
    assert plan.shape.num_new_blocks == 1


def test_a_batch_above_the_largest_graph_is_neither_padded_nor_a_graph():
    scheduler = scheduler_of(num_gpu_blocks=200, max_num_batched_tokens=600, max_model_len=700)
    scheduler.add_request(request_of(0, 555))
    shape = step(scheduler).shape
    assert (shape.num_padded_tokens, shape.graph_mode) == (555, GraphMode.NONE)


def test_an_empty_scheduler_plans_an_empty_batch():
    scheduler = scheduler_of()
    plan = scheduler.schedule()
    assert plan.is_empty
    assert plan.shape.is_empty
    assert not scheduler.has_requests()
    assert scheduler.update_from_output(plan) == []


def test_async_runs_one_step_ahead_of_the_tokens():
    scheduler = scheduler_of(async_scheduling=True)
    scheduler.add_request(request_of(0, 10, max_tokens=3))
    first, second = scheduler.schedule(), scheduler.schedule()
    assert scheduled(first) == [(0, 10)]
    assert scheduled(second) == [(0, 1)]
    assert scheduler.running[0].num_output_placeholders == 2
    assert scheduler.update_from_output(first) == []
    third = scheduler.schedule()
    assert scheduled(third) == [(0, 1)]
    scheduler.update_from_output(second)
    assert scheduled(scheduler.schedule()) == []  # its last token is on its way
    assert ids(scheduler.update_from_output(third)) == [0]


def test_async_a_stop_token_costs_one_more_step():
    scheduler = scheduler_of(async_scheduling=True)
    scheduler.add_request(request_of(0, 10, max_tokens=9, stop_after=1))
    first, second = scheduler.schedule(), scheduler.schedule()
    assert ids(scheduler.update_from_output(first)) == [0]
    assert scheduled(second) == [(0, 1)]
    assert scheduler.update_from_output(second) == []
    assert scheduler.kv.pool.num_free_blocks == scheduler.kv.pool.num_usable_blocks
