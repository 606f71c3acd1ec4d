"""The recurrence equals SimPy resources, one per stage."""

from itertools import pairwise

import simpy
from hypothesis import given
from hypothesis import strategies as st

from simkv.engine.pipeline import Pipeline

times = st.integers(0, 50)


@st.composite
def batches(draw):
    num_stages = draw(st.integers(1, 5))
    rows = draw(
        st.lists(
            st.tuples(
                times,  # after the batch before
                st.lists(times, min_size=num_stages, max_size=num_stages),
                st.lists(times, min_size=num_stages - 1, max_size=num_stages - 1),
            ),
            max_size=12,
        )
    )
    ready, out = 0, []
    for delay, durations, transfers in rows:
        ready += delay
        out.append((ready, durations, transfers))
    return num_stages, out


def simulate_with_resources(num_stages, rows):
    env = simpy.Environment()
    stages = [simpy.Resource(env) for _ in range(num_stages)]
    runs = [[None] * num_stages for _ in rows]

    def batch(index, ready, durations, transfers):
        yield env.timeout(ready)
        for stage in range(num_stages):
            # Batches arrive at each stage in order, whatever their transfers took.
            with stages[stage].request() as seat:
                yield seat
                start = env.now
                yield env.timeout(durations[stage])
                runs[index][stage] = (start, env.now)
            if stage < num_stages - 1:
                yield env.timeout(transfers[stage])

    for index, row in enumerate(rows):
        env.process(batch(index, *row))
    env.run()
    return runs


@given(batches())
def test_recurrence_equals_resources_with_equal_transfers(case):
    num_stages, rows = case
    # With one transfer time per hop no batch overtakes another, so a resource's queue is in order.
    hops = rows[0][2] if rows else []
    rows = [(ready, durations, hops) for ready, durations, _ in rows]
    pipeline = Pipeline(num_stages)
    got = [[tuple(run) for run in pipeline.issue(*row)] for row in rows]
    assert got == simulate_with_resources(num_stages, rows)


@given(batches())
def test_a_stage_serves_one_batch_at_a_time_and_in_order(case):
    num_stages, rows = case
    pipeline = Pipeline(num_stages)
    runs = [pipeline.issue(*row) for row in rows]
    for stage in range(num_stages):
        for earlier, later in pairwise(runs):
            assert later[stage].start_ns >= earlier[stage].end_ns
    for (ready, durations, transfers), row in zip(rows, runs, strict=True):
        assert row[0].start_ns >= ready
        for stage in range(num_stages):
            assert row[stage].end_ns - row[stage].start_ns == durations[stage]
            if stage:
                assert row[stage].start_ns >= row[stage - 1].end_ns + transfers[stage - 1]
