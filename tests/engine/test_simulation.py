"""Laws of whole runs: everything ends, once, in order, and no stage is anywhere twice."""

import statistics
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.errors import SimkvError
from simkv.results.log import RequestOutcome
from tests.engine.worlds import UnitCost, requests_of, simulation_of

rows = st.lists(
    st.tuples(st.integers(0, 400_000), st.integers(1, 90), st.integers(1, 30)), min_size=1, max_size=14
)


def assert_lawful(log, requests, max_model_len):
    """Request conservation, order of times, and one batch at a time on every stage."""
    assert [record.request_id for record in log.requests] == [request.request_id for request in requests]
    for record in log.requests:
        if record.num_prompt_tokens >= max_model_len:
            assert record.outcome is RequestOutcome.REJECTED
            continue
        assert record.outcome is RequestOutcome.FINISHED
        assert record.num_output_tokens == min(record.max_tokens, max_model_len - record.num_prompt_tokens)
        assert (
            record.arrival_ns
            <= record.sent_ns
            <= record.first_scheduled_ns
            <= record.first_token_ns
            <= record.finished_ns
            <= log.end_ns
        )
        assert record.finished_ns == record.last_token_ns
    sampled = sum(record.num_output_tokens for record in log.requests)
    with_tokens = sum(record.num_output_tokens > 0 for record in log.requests)
    assert sum(log.itls.column("num_tokens")) == sampled - with_tokens
    last_end = {}
    replicas = log.steps.column("replica")
    columns = (log.stages.column(name) for name in ("step", "stage", "start_ns", "end_ns"))
    for step, stage, start_ns, end_ns in zip(*columns, strict=True):
        assert start_ns >= last_end.get((replicas[step], stage), 0)
        last_end[replicas[step], stage] = end_ns


@given(
    rows=rows,
    num_gpu_blocks=st.integers(6, 60),
    pp=st.integers(1, 4),
    dp=st.integers(1, 2),
    max_num_seqs=st.integers(1, 8),
    budget=st.integers(8, 40),
    caching=st.booleans(),
    shared=st.sampled_from([0, 11]),
    policy=st.sampled_from(["fcfs", "priority"]),
    reserve=st.booleans(),
    max_concurrency=st.sampled_from([None, 1, 3]),
    round_trip_ns=st.sampled_from([0, 7_000]),
    host_s=st.sampled_from([0.0, 3e-6]),
    is_async=st.booleans(),
)
@settings(max_examples=250, deadline=None)
def test_every_request_finishes_exactly_once(
    rows, num_gpu_blocks, pp, dp, max_num_seqs, budget, caching, shared, policy, reserve, max_concurrency,
    round_trip_ns, host_s, is_async,
):  # fmt: skip
    requests = requests_of(rows, shared)
    simulation = simulation_of(
        requests,
        num_gpu_blocks=num_gpu_blocks,
        pp=pp,
        dp=dp,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        enable_prefix_caching=caching,
        policy=policy,
        scheduler_reserve_full_isl=reserve,
        max_concurrency=max_concurrency,
        round_trip_ns=round_trip_ns,
        async_scheduling=is_async,
        cost=UnitCost(pp, host_s),
    )
    log = simulation.run()
    assert_lawful(log, requests, simulation.max_model_len)
    for replica in simulation.replicas:
        pool = replica.scheduler.kv.pool
        assert pool.num_free_blocks == pool.num_usable_blocks
        assert not replica.scheduler.has_requests()


@pytest.mark.parametrize("pp", [1, 2, 3, 4, 5, 7, 8, 9, 18])
@pytest.mark.parametrize("num_requests", [1, 2, 5, 10])
@pytest.mark.parametrize("dp", [1, 2])
@pytest.mark.parametrize("is_async", [False, True])
def test_c15_every_depth_ends(pp, num_requests, dp, is_async):
    """Uneven drain: as many requests as not divide the depth, each of another length."""
    requests = requests_of([(0, 10 + 7 * i, 3 + i) for i in range(num_requests)])
    simulation = simulation_of(requests, num_gpu_blocks=200, pp=pp, dp=dp, async_scheduling=is_async)
    assert_lawful(simulation.run(), requests, simulation.max_model_len)


@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
def test_c16_one_long_prompt_in_two_batches_in_flight(caching, is_async):
    requests = requests_of([(0, 100, 5)])
    options = {"enable_prefix_caching": caching, "async_scheduling": is_async}
    simulation = simulation_of(requests, pp=2, max_num_batched_tokens=16, **options)
    log = simulation.run()
    assert_lawful(log, requests, simulation.max_model_len)
    # Chunks follow each other into the first stage without waiting for the last one.
    chunks = [n for n in log.steps.column("num_prefill_tokens") if n]
    assert chunks == [16] * 6 + [4]
    starts, ends = log.stages.column("start_ns"), log.stages.column("end_ns")
    first_stage = [i for i, stage in enumerate(log.stages.column("stage")) if stage == 0][:7]
    assert all(starts[b] == ends[a] for a, b in pairwise(first_stage))


def test_c10_reserving_the_full_prompt_recomputes_nothing():
    """Two prompts of which one fits: admitted on the first chunk they preempt each other; reserved, they queue."""
    requests = requests_of([(0, 120, 8), (0, 120, 8)])
    options = {"num_gpu_blocks": 41, "max_num_batched_tokens": 32, "max_model_len": 140}
    reserved = simulation_of(requests, scheduler_reserve_full_isl=True, **options).run()
    thrashing = simulation_of(requests, scheduler_reserve_full_isl=False, **options).run()
    assert sum(record.num_recomputed_tokens for record in reserved.requests) == 0
    assert sum(record.num_recomputed_tokens for record in thrashing.requests) > 0


def test_c25_a_128k_prompt_is_16_chunks():
    requests = requests_of([(0, 131_072, 1)])
    simulation = simulation_of(
        requests, num_gpu_blocks=10_000, block_size=16, max_num_batched_tokens=8_192, max_model_len=140_000
    )
    log = simulation.run()
    assert list(log.steps.column("num_prefill_tokens")) == [8_192] * 16


def test_a_closed_loop_never_has_more_on_their_way():
    requests = requests_of([(0, 20, 6)] * 9)
    log = simulation_of(requests, max_concurrency=3).run()
    events = sorted(
        [(record.sent_ns, 1) for record in log.requests]
        + [(record.finished_ns, -1) for record in log.requests],
    )
    on_their_way = peak = 0
    for _, change in events:
        on_their_way += change
        peak = max(peak, on_their_way)
    assert peak == 3
    assert [r.request_id for r in sorted(log.requests, key=lambda r: (r.sent_ns, r.request_id))] == list(
        range(9)
    )


def test_an_idle_engine_lets_time_pass_to_the_next_arrival():
    log = simulation_of(requests_of([(0, 4, 1), (5_000_000, 4, 1)])).run()
    assert list(log.steps.column("scheduled_ns")) == [0, 5_000_000]


def test_host_time_delays_the_batch():
    log = simulation_of(requests_of([(0, 8, 2)]), cost=UnitCost(host_s=5e-6)).run()
    assert list(log.steps.column("start_ns")) == [5_000, 18_000]
    assert list(log.steps.column("end_ns")) == [13_000, 19_000]


def test_scheduling_ahead_hides_host_work_behind_the_gpu():
    """Synchronous steps take host + GPU time, asynchronous ones the longer of the two."""
    requests = requests_of([(0, 4, 9)])

    def steady_gap_ns(is_async, host_s):
        log = simulation_of(requests, async_scheduling=is_async, cost=UnitCost(host_s=host_s)).run()
        return statistics.median(log.itls.column("gap_ns"))

    assert steady_gap_ns(False, 0.4e-6) == 1_400
    assert steady_gap_ns(True, 0.4e-6) == 1_000
    assert steady_gap_ns(False, 3e-6) == 4_000
    assert steady_gap_ns(True, 3e-6) == 3_000


def test_a_request_that_arrives_after_a_batch_was_issued_waits_for_the_next():
    """Scheduling ahead, batch 1 is fixed while batch 0 runs: a request that comes then joins batch 2."""
    requests = requests_of([(0, 8, 6), (1_000, 4, 2)])
    for is_async, scheduled_ns in ((False, 8_000), (True, 8_000)):
        log = simulation_of(requests, async_scheduling=is_async).run()
        assert log.requests[1].first_scheduled_ns == scheduled_ns
    log = simulation_of(requests, async_scheduling=True).run()
    # Batches 0 and 1 were issued at once; batch 2, at the end of batch 0, runs after batch 1.
    assert list(log.steps.column("scheduled_ns")[:3]) == [0, 0, 8_000]
    assert list(log.steps.column("num_requests")[:3]) == [1, 1, 2]
    assert log.requests[1].first_token_ns == 9_000 + 8_000


def test_a_prompt_that_leaves_no_room_is_rejected_and_counted():
    requests = requests_of([(0, 50, 3), (10, 20, 3)])
    simulation = simulation_of(requests, max_model_len=50)
    log = simulation.run()
    assert [record.outcome for record in log.requests] == [RequestOutcome.REJECTED, RequestOutcome.FINISHED]


def test_the_same_run_twice_is_the_same_log():
    requests = requests_of([(i * 1000, 10 + i, 5) for i in range(12)], shared_prefix=8)
    logs = [simulation_of(requests, enable_prefix_caching=True, num_gpu_blocks=30).run() for _ in range(2)]
    assert logs[0].steps.columns() == logs[1].steps.columns()
    assert logs[0].requests == logs[1].requests


def test_ctrl_c_leaves_what_was_served():
    requests = requests_of([(i * 50_000, 10, 5) for i in range(20)])
    simulation = simulation_of(requests)

    def stop(num_done, num_requests, now_ns):
        if num_done == 7:
            raise KeyboardInterrupt

    simulation.progress = stop
    log = simulation.run()
    assert not log.is_complete
    assert sum(record.outcome is RequestOutcome.FINISHED for record in log.requests) == 7


def test_a_later_turn_is_sent_after_its_answer_and_a_think_time():
    first, second, third, other = requests_of([(0, 20, 4), (0, 30, 4), (0, 40, 4), (0, 10, 4)])
    other = other._replace(arrival_ns=1_000_000)
    second = second._replace(after=0, arrival_ns=50_000)
    third = third._replace(after=1, arrival_ns=0)
    log = simulation_of([first, second, third, other]).run()
    assert_lawful(log, [first, second, third, other], 252)
    records = log.requests
    assert records[1].arrival_ns == records[1].sent_ns == records[0].finished_ns + 50_000
    assert records[2].sent_ns == records[1].finished_ns
    assert records[3].sent_ns == 1_000_000


def test_a_session_whose_turn_is_rejected_goes_on_to_the_next():
    first, second, third = requests_of([(0, 20, 4), (0, 30, 4), (0, 40, 4)])
    turns = [first, second._replace(after=0), third._replace(after=1)]
    log = simulation_of(turns, max_model_len=25).run()
    outcomes = [record.outcome for record in log.requests]
    assert outcomes == [RequestOutcome.FINISHED, RequestOutcome.REJECTED, RequestOutcome.REJECTED]


def test_sessions_share_one_slot():
    """A first turn may finish, or be refused, before the next is read: its session still goes on."""
    turns = requests_of([(0, 20 + i, 4) for i in range(6)])
    turns = [t._replace(after=i - 1) if i % 2 else t for i, t in enumerate(turns)]
    log = simulation_of(turns, max_concurrency=1).run()
    assert_lawful(log, turns, 252)
    too_long, second = requests_of([(0, 30, 4), (0, 31, 4)])
    log = simulation_of([too_long, second._replace(after=0)], max_model_len=20).run()
    assert [record.outcome for record in log.requests] == [RequestOutcome.REJECTED] * 2


def test_requests_are_read_as_their_times_come():
    """A trace of any length is never held whole: in a closed loop no more is read than has slots."""
    read = []

    def stream():
        for request in requests_of([(0, 10, 3)] * 50):
            read.append((request.request_id, num_done[0]))
            yield request

    num_done = [0]
    simulation = simulation_of([], max_concurrency=2)
    simulation.clients.requests = stream()
    simulation.num_requests = 50
    simulation.progress = lambda done, *_: num_done.__setitem__(0, done)
    assert len(simulation.run().requests) == 50
    assert all(request_id <= done + 4 for request_id, done in read)


@pytest.mark.parametrize("router", ["round_robin", "least_loaded", "prefix_affinity"])
def test_routers_serve_everyone(router):
    requests = requests_of([(i * 3_000, 30, 6) for i in range(20)], shared_prefix=16)
    simulation = simulation_of(requests, dp=3, router=router, enable_prefix_caching=True)
    log = simulation.run()
    assert_lawful(log, requests, simulation.max_model_len)
    served = [sum(record.replica == index for record in log.requests) for index in range(3)]
    if router == "round_robin":
        assert served == [7, 7, 6]
    elif router == "prefix_affinity":
        assert served == [20, 0, 0]  # whoever served the prefix first is asked again


def test_least_loaded_avoids_the_busy_replica():
    requests = requests_of([(0, 200, 40), (50_000, 10, 2), (100_000, 10, 2), (150_000, 10, 2)])
    log = simulation_of(requests, dp=2, router="least_loaded").run()
    assert [record.replica for record in log.requests] == [0, 1, 1, 1]


def test_a_run_that_thrashes_says_so_and_stops():
    """Admitted on their first chunks, three prompts preempt each other for ever under priority."""
    rows = [(0, 61, 13), (0, 23, 21), (0, 99, 1), (0, 64, 27), (0, 1, 1), (0, 1, 1), (0, 1, 1)]
    requests = [r._replace(request_id=i) for i, r in enumerate(requests_of(rows))]
    order = {row: i for i, row in enumerate(rows)}
    requests.sort(key=lambda r: order[0, r.num_prompt_tokens, r.max_tokens])
    requests = [r._replace(request_id=i) for i, r in enumerate(requests)]
    options = {"policy": "priority", "scheduler_reserve_full_isl": False, "long_prefill_token_threshold": 3}
    simulation = simulation_of(
        requests, num_gpu_blocks=129, block_size=1, max_model_len=128, max_num_seqs=3, ignore_eos=False,
        max_num_batched_tokens=61, **options,
    )  # fmt: skip
    with pytest.raises(SimkvError, match="thrashing"):
        simulation.run()
