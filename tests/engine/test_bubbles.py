"""Busy and idle time of every stage: they sum to the wall, and nothing idles for a cause that is absent."""

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from simkv.results import bubbles_replay
from simkv.results.bubbles import StageTables, idle_intervals
from simkv.results.bubbles_history import CAUSES, take
from simkv.results.bubbles_replay import overlaps
from simkv.results.log import NOT_YET, WAIT_KINDS, WaitKind
from simkv.results.metrics import window_ns
from simkv.scheduler.chunks import ChunkRule
from tests.engine.bubbles import FlatCost, PromptCost, TokenCost, accounts_of, idle_of, run
from tests.engine.worlds import UnitCost, requests_of, simulation_of

rows = st.lists(
    st.tuples(st.integers(0, 400_000), st.integers(1, 90), st.integers(1, 30)), min_size=1, max_size=14
)


@st.composite
def worlds(draw):
    """Layouts and loads that queue, starve, preempt, overlap and drain; stages and transfers unlike."""
    pp = draw(st.integers(1, 5))
    slow = draw(st.dictionaries(st.integers(0, 4), st.sampled_from([0.5, 1.2, 3.0]), max_size=2))
    cost = UnitCost(
        pp,
        host_s=draw(st.sampled_from([0.0, 0.7e-6, 3e-6])),
        transfer_s=draw(st.sampled_from([0.0, 0.3e-6, 5e-6])),
        slow={stage: factor for stage, factor in slow.items() if stage < pp},
        gap_s=draw(st.sampled_from([0.0, 0.9e-6])),  # the executor's part is in it
    )
    options = {
        "num_gpu_blocks": draw(st.sampled_from([8, 30, 60, 2000])),
        "pp": pp,
        "dp": draw(st.integers(1, 2)),
        "max_num_seqs": draw(st.sampled_from([1, 2, 4, 32])),
        "max_num_batched_tokens": draw(st.integers(8, 40)),
        "max_model_len": 28,
        "async_scheduling": draw(st.booleans()),
        "max_concurrency": draw(st.sampled_from([None, 1, 3])),
        "round_trip_ns": draw(st.sampled_from([0, 7_000])),
        "scheduler_reserve_full_isl": draw(st.booleans()),
        "ignore_eos": draw(st.booleans()),
        "enable_prefix_caching": draw(st.booleans()),
        "broadcast_wait": draw(st.sampled_from(["always", "sampled", "never"])),
        "chunk_rule": draw(st.sampled_from([None, ChunkRule(1e-6, 1e-8, 4), ChunkRule(0.0, 1e-7, 1)])),
        "cost": cost,
    }
    if options["num_gpu_blocks"] >= 60:
        options["max_model_len"] = 200
    return requests_of(draw(rows)), options


def assert_partitioned(log, num_replicas, num_stages):
    """The law: busy + idle = wall, to the nanosecond; and the intervals are exactly the gaps between batches."""
    start_ns, end_ns = window_ns(log)
    accounts = accounts_of(log)
    assert len(accounts) == (num_replicas * num_stages if end_ns > start_ns else 0)
    for account in accounts:
        assert account.wall_ns == end_ns - start_ns
        assert min(*account.busy_ns.values(), *account.idle_ns.values()) >= 0
    tables = StageTables.from_log(log)
    for replica in range(num_replicas if accounts else 0):
        own = tables.rows_of(replica)
        starts = tables.by_stage("start_ns", own).tolist()
        ends = tables.by_stage("end_ns", own).tolist()
        for stage in range(num_stages):
            free = [start_ns, *(row[stage] for row in ends)]
            until = [*(row[stage] for row in starts), end_ns]
            gaps = [(a, min(b, end_ns)) for a, b in zip(free, until, strict=True) if a < min(b, end_ns)]
            found = [i for i in idle_intervals(tables, replica) if i.stage == stage]
            assert all(sum(i.shares) == i.end_ns - i.start_ns > 0 for i in found)
            merged = []
            for idle in found:  # of one batch: pieces that follow each other
                is_next_piece = merged and merged[-1][:2] == (idle.batch, idle.start_ns)
                start = merged.pop()[2] if is_next_piece else idle.start_ns
                merged.append((idle.batch, idle.end_ns, start))
            assert [(start, end) for _, end, start in merged] == gaps


@given(world=worlds())
@settings(max_examples=250, deadline=None)
def test_busy_and_bubbles_are_the_wall_and_no_absent_cause_is_blamed(world):
    requests, options = world
    simulation = simulation_of(requests, **options)
    log = simulation.run()
    assert_partitioned(log, options["dp"], options["pp"])
    idle, cost = idle_of(log), options["cost"]
    for cause in idle:
        event(cause)
    if not cost._host_s:
        assert "host" not in idle
    if not cost._transfer_s or options["pp"] == 1:
        assert "transfer" not in idle
    if not cost.slow or options["pp"] == 1:
        assert "stage_imbalance" not in idle
    if options["pp"] == 1:
        assert not {"chunk_imbalance", "fill_drain", "token_dependency", "too_few_requests"} & set(idle)
    if len(requests) <= options["max_num_seqs"]:
        assert "max_num_seqs" not in idle
    if options["num_gpu_blocks"] == 2000:
        assert "kv_limited" not in idle


@given(world=worlds(), stop_at=st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_the_law_holds_for_a_run_that_was_stopped(world, stop_at):
    requests, options = world
    simulation = simulation_of(requests, **options)

    def stop(num_done, num_requests, now_ns):
        if num_done == stop_at:
            raise KeyboardInterrupt

    simulation.progress = stop
    assert_partitioned(simulation.run(), options["dp"], options["pp"])


@given(world=worlds())
@settings(max_examples=100, deadline=None)
def test_the_engine_waits_or_works_at_every_moment(world):
    """Waits are disjoint, each ends when its batch's tokens are known, and the CPU works in between."""
    requests, options = world
    log = simulation_of(requests, **options).run()
    steps, waits = log.steps.columns(), log.waits.columns()
    for kind, step in zip(waits["kind"], waits["step"], strict=True):
        assert (WAIT_KINDS[kind] is WaitKind.NO_WORK) == (step == NOT_YET)
    for replica in range(options["dp"]):
        busy = [
            (scheduled_ns, scheduled_ns + host_ns)
            for owner, scheduled_ns, host_ns in zip(
                steps["replica"], steps["scheduled_ns"], steps["host_ns"], strict=True
            )
            if owner == replica
        ]
        waited = [
            (start_ns, end_ns)
            for owner, start_ns, end_ns, _, _, blocked in zip(*waits.values(), strict=True)
            if owner == replica and blocked == NOT_YET
        ]
        now_ns = 0
        for start_ns, end_ns in sorted(busy + waited):
            assert start_ns == now_ns
            now_ns = end_ns
        assert now_ns >= log.end_ns


def test_waits_name_the_batch_they_are_for():
    log = run(requests_of([(0, 8, 5), (0, 8, 9)]), pp=3, max_num_batched_tokens=8)
    waits = log.waits.columns()
    ends = log.steps.column("end_ns")
    awaited = [(end_ns, step) for end_ns, step in zip(waits["end_ns"], waits["step"], strict=True)]
    assert all(step == NOT_YET or ends[step] == end_ns for end_ns, step in awaited)


# Analytic checks


@pytest.mark.parametrize("pp", [2, 3, 4, 8])
@pytest.mark.parametrize("num_batches", [1, 7, 40])
@pytest.mark.parametrize("is_async", [False, True])
def test_equal_batches_on_equal_stages_idle_for_fill_and_drain_alone(pp, num_batches, is_async):
    log = run(requests_of([(0, 16 * num_batches, 1)]), pp=pp, async_scheduling=is_async)
    for account in accounts_of(log):
        assert set(account.idle_ns) - {c for c, ns in account.idle_ns.items() if not ns} == {"fill_drain"}
        share = account.idle_ns["fill_drain"] / account.wall_ns
        assert share == pytest.approx((pp - 1) / (num_batches + pp - 1), rel=1e-3)


@pytest.mark.parametrize(("pp", "num_requests"), [(2, 1), (4, 1), (4, 2), (4, 3), (8, 5)])
@pytest.mark.parametrize("is_async", [False, True])
def test_steady_decode_of_fewer_requests_than_stages(pp, num_requests, is_async):
    """Each request in a batch of its own: every stage idles 1 - R/P, for too few requests."""
    requests = requests_of([(0, 1, 2000)] * num_requests)
    log = run(requests, pp=pp, max_num_batched_tokens=1, async_scheduling=is_async)
    for account in accounts_of(log):
        share = account.idle_ns["too_few_requests"] / account.wall_ns
        assert share == pytest.approx(1 - num_requests / pp, rel=0.01)
        assert sum(account.idle_ns.values()) / account.wall_ns == pytest.approx(
            1 - num_requests / pp, rel=0.01
        )


@pytest.mark.parametrize("pp", [2, 4])
@pytest.mark.parametrize("is_async", [False, True])
def test_requests_bunched_into_one_batch_depend_on_their_tokens(pp, is_async):
    """As many requests as stages, but admitted together: they decode together and wait together."""
    log = run(requests_of([(0, 2, 2000)] * pp), pp=pp, async_scheduling=is_async)
    for account in accounts_of(log):
        assert account.idle_ns["token_dependency"] / account.wall_ns == pytest.approx(1 - 1 / pp, rel=0.01)


@given(
    rows=st.lists(st.tuples(st.integers(0, 50_000), st.integers(1, 60), st.integers(1, 40)), min_size=1),
    pp=st.integers(2, 6),
    is_async=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_p_equal_stages_are_at_most_p_times_as_fast_as_one(rows, pp, is_async):
    """One stage that does the work of P takes P times as long for a batch; P stages save at most that."""
    requests = requests_of([(0, *row[1:]) for row in rows])
    options = {"max_num_seqs": 64, "async_scheduling": is_async}
    whole = run(requests, cost=TokenCost(1, slow={0: pp}), **options)
    split = run(requests, pp=pp, cost=TokenCost(pp), **options)
    assert whole.end_ns <= pp * split.end_ns


# Planted causes


def base_case(**options):
    """Sixteen requests that decode four to a batch, alike, for long."""
    return run(requests_of([(0, 4, 300)] * 16), pp=4, max_num_seqs=16, max_num_batched_tokens=16, **options)


def assert_blamed(cause, planted, base):
    """On every stage that idles more than before, at least 95 % of that is put down to the planted cause."""
    num_worse = 0
    for after, before in zip(accounts_of(planted), accounts_of(base), strict=True):
        added = {name: after.idle_ns[name] - before.idle_ns[name] for name in CAUSES}
        more_ns = sum(added.values())
        if more_ns > 0.01 * after.wall_ns:
            num_worse += 1
            assert added[cause] >= 0.95 * more_ns, added
            assert sum(abs(ns) for name, ns in added.items() if name != cause) <= 0.1 * more_ns, added
    assert num_worse >= len(accounts_of(base)) - 1


def assert_hidden(planted, base):
    """Less than a hundredth more idle time in all."""
    assert (
        sum(idle_of(planted).values()) - sum(idle_of(base).values()) <= 0.01 * base.end_ns * base.num_stages
    )


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("stage", range(4))
def test_a_stage_slowed_by_a_fifth(stage, is_async):
    base = base_case(async_scheduling=is_async)
    planted = base_case(async_scheduling=is_async, cost=UnitCost(4, slow={stage: 1.2}))
    assert_blamed("stage_imbalance", planted, base)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_slow_stage_is_blamed_also_where_requests_are_too_few(is_async):
    requests = requests_of([(0, 1, 2000)] * 2)
    options = {"pp": 4, "max_num_batched_tokens": 1, "async_scheduling": is_async}
    planted = run(requests, cost=UnitCost(4, slow={1: 1.2}), **options)
    assert_blamed("stage_imbalance", planted, run(requests, **options))


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("transfer_s", [0.5e-6, 3e-6])
def test_transfers_between_the_stages(transfer_s, is_async):
    base = base_case(async_scheduling=is_async)
    planted = base_case(async_scheduling=is_async, cost=UnitCost(4, transfer_s=transfer_s))
    assert_blamed("transfer", planted, base)


def stages_that_wait_for_the_last(cpu_s, **planted):
    """A last stage that takes half as long again, and a CPU that works before each batch."""
    slow = {3: 1.5, **planted.pop("slow", {})}
    return base_case(async_scheduling=False, cost=UnitCost(4, host_s=cpu_s, slow=slow, **planted))


@pytest.mark.parametrize("cpu_s", [0.5e-6, 1e-6, 1.5e-6, 1.9e-6])
def test_the_cpu_is_not_blamed_where_a_slow_stage_is_the_limit(cpu_s):
    """Synchronous: without the CPU's work the batches would be as late, so none of the idle time is its."""
    idle, without = idle_of(stages_that_wait_for_the_last(cpu_s)), idle_of(stages_that_wait_for_the_last(0.0))
    assert sum(idle.values()) == pytest.approx(sum(without.values()), rel=0.01)
    assert idle["stage_imbalance"] == pytest.approx(without["stage_imbalance"], rel=0.01)
    assert idle["host"] <= 0.01 * sum(idle.values())


@pytest.mark.parametrize("cpu_s", [0.5e-6, 1e-6, 1.5e-6])
def test_a_stage_that_becomes_slower_still_beside_the_work_of_the_cpu(cpu_s):
    planted = stages_that_wait_for_the_last(cpu_s, slow={3: 1.8})
    assert_blamed("stage_imbalance", planted, stages_that_wait_for_the_last(cpu_s))


@pytest.mark.parametrize("transfer_s", [0.5e-6, 3e-6])
@pytest.mark.parametrize("cpu_s", [0.5e-6, 1e-6, 3e-6])
def test_transfers_beside_the_work_of_the_cpu(cpu_s, transfer_s):
    """Both delay every batch: what each adds to the idle time is its own."""
    options = {"async_scheduling": False}
    base = base_case(cost=UnitCost(4, host_s=cpu_s), **options)
    planted = base_case(cost=UnitCost(4, host_s=cpu_s, transfer_s=transfer_s), **options)
    assert_blamed("transfer", planted, base)


@pytest.mark.parametrize(("pp", "num_requests"), [(4, 1), (4, 2), (8, 5)])
def test_too_few_requests_beside_the_work_of_the_cpu(pp, num_requests):
    """A round takes P steps and one preparation: of its idle time P - R steps are for want of requests."""
    cpu_s = 0.6
    log = run(
        requests_of([(0, 1, 2000)] * num_requests),
        pp=pp,
        max_num_batched_tokens=1,
        async_scheduling=False,
        cost=UnitCost(pp, host_s=cpu_s * 1e-6),
    )
    for account in accounts_of(log):
        shares = {cause: ns / account.wall_ns for cause, ns in account.idle_ns.items()}
        assert shares["too_few_requests"] == pytest.approx((pp - num_requests) / (pp + cpu_s), rel=0.01)
        assert shares["host"] == pytest.approx(cpu_s / (pp + cpu_s), rel=0.02)


@pytest.mark.parametrize("host_s", [1e-6, 6e-6])
@pytest.mark.parametrize("is_async", [False, True])
def test_work_of_the_cpu(host_s, is_async):
    base = base_case(async_scheduling=is_async)
    planted = base_case(async_scheduling=is_async, cost=UnitCost(4, host_s=host_s))
    if is_async and host_s < 4e-6:  # it passes while batches of four tokens run
        assert_hidden(planted, base)
    else:
        assert_blamed("host", planted, base)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("max_num_seqs", [1, 2, 3])
def test_fewer_seats_than_batches_in_flight(max_num_seqs, is_async):
    requests = requests_of([(0, 1, 50)] * 162)
    options = {"pp": 4, "max_num_batched_tokens": 1, "async_scheduling": is_async}
    base = run(requests, max_num_seqs=8, **options)
    assert_blamed("max_num_seqs", run(requests, max_num_seqs=max_num_seqs, **options), base)


@pytest.mark.parametrize("is_async", [False, True])
def test_blocks_for_two_requests_only(is_async):
    requests = requests_of([(0, 60, 20)] * 100)
    options = {"pp": 4, "max_num_batched_tokens": 60, "async_scheduling": is_async, "max_model_len": 80}
    base = run(requests, cost=FlatCost(4), **options)
    # Twenty blocks a request at its end; two fit, a third never does.
    planted = run(requests, cost=FlatCost(4), num_gpu_blocks=45, **options)
    assert_blamed("kv_limited", planted, base)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("shortage", ["max_num_seqs", "kv_limited"])
def test_the_last_of_a_queue_run_alone_for_the_shortage_that_made_them_late(shortage, is_async):
    """Four rounds of two requests in four stages: the last round has no queue behind it, nor would it be there."""
    limits = {
        "max_num_seqs": {"max_num_seqs": 2},
        "kv_limited": {"num_gpu_blocks": 61, "max_model_len": 120},  # thirty blocks a request at its end
    }
    options = {"pp": 4, "max_num_batched_tokens": 100, "async_scheduling": is_async, **limits[shortage]}
    idle = idle_of(run(requests_of([(0, 100, 20)] * 8), cost=FlatCost(4), **options))
    assert idle[shortage] >= 0.97 * (sum(idle.values()) - idle["fill_drain"])
    assert "too_few_requests" not in idle


@pytest.mark.parametrize("is_async", [False, True])
def test_a_request_is_late_for_no_longer_than_it_was_kept_waiting(is_async):
    """One waits for a seat for some thirty tokens, then runs alone for two hundred; and one that comes later."""
    options = {"pp": 4, "max_num_seqs": 1, "async_scheduling": is_async, "cost": FlatCost(4)}
    a_token_ns = 4 * 3_000  # four stages idle for three microseconds each
    idle = idle_of(run(requests_of([(0, 4, 30), (0, 4, 200)]), **options))
    assert idle["max_num_seqs"] == pytest.approx((30 + 30) * a_token_ns, rel=0.05)
    assert idle["too_few_requests"] == pytest.approx((200 - 30) * a_token_ns, rel=0.05)
    later = idle_of(run(requests_of([(0, 4, 30), (0, 4, 31), (600_000, 4, 50)]), **options))
    assert later["too_few_requests"] == pytest.approx(50 * a_token_ns, rel=0.1)


@pytest.mark.parametrize("is_async", [False, True])
def test_one_long_prompt_among_short_ones(is_async):
    rows = [(0, 4, 300)] * 16
    options = {"pp": 4, "max_num_seqs": 17, "max_num_batched_tokens": 16, "async_scheduling": is_async}
    base = run(requests_of(rows), cost=PromptCost(4), **options)
    planted = run(requests_of([*rows, (base.end_ns // 2, 12, 1)]), cost=PromptCost(4), **options)
    assert_blamed("chunk_imbalance", planted, base)


def test_requests_that_come_late_find_no_work():
    base = run(requests_of([(0, 4, 50), (0, 4, 50)]), pp=2, max_num_batched_tokens=4)
    planted = run(requests_of([(0, 4, 50), (0, 4, 50), (5_000_000, 4, 1)]), pp=2, max_num_batched_tokens=4)
    assert_blamed("no_work", planted, base)


# No cause is a remainder: without any one of them some idle time has none

WORLDS = {
    "transfer": lambda: base_case(cost=UnitCost(4, transfer_s=3e-6)),
    "stage_imbalance": lambda: base_case(cost=UnitCost(4, slow={1: 1.2})),
    "chunk_imbalance": lambda: run(
        requests_of([(0, 4, 9)] * 8 + [(20_000, 12, 1)]), pp=2, cost=PromptCost(2)
    ),
    "host": lambda: base_case(cost=UnitCost(4, host_s=6e-6)),
    "token_dependency": lambda: run(requests_of([(0, 2, 20)] * 4), pp=4),
    "too_few_requests": lambda: run(requests_of([(0, 2, 20)]), pp=4),
    "max_num_seqs": lambda: run(requests_of([(0, 2, 20)] * 4), pp=4, max_num_seqs=1),
    "kv_limited": lambda: run(requests_of([(0, 60, 20)] * 4), pp=4, num_gpu_blocks=45, max_model_len=80),
    "fill_drain": lambda: run(requests_of([(0, 64, 1)]), pp=4),
    "no_work": lambda: run(requests_of([(0, 4, 1), (100_000, 4, 1)]), pp=2),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_without_a_cause_some_idle_time_is_unexplained(cause, monkeypatch):
    index = CAUSES.index(cause)
    log = WORLDS[cause]()
    assert cause in idle_of(log)

    def take_without(difference_ns, amount_ns):
        return take([0 if i == index else ns for i, ns in enumerate(difference_ns)], amount_ns)

    def overlaps_without(spans, start_ns, end_ns):
        return overlaps([span for span in spans if span.cause != index], start_ns, end_ns)

    monkeypatch.setattr(bubbles_replay, "take", take_without)
    monkeypatch.setattr(bubbles_replay, "overlaps", overlaps_without)
    with pytest.raises(AssertionError):
        assert_partitioned(log, 1, log.num_stages)
