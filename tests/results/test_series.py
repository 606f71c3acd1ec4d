import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import MS, S, add_step, empty_log, lively_log, small_log

from simkv.results.log import RunLog
from simkv.results.series import STAGE_PARTS, arrays, busy_ns, stage_parts, state_series

STEPS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 50), st.integers(0, 8), st.integers(0, 8)), max_size=20
)


def log_of(replicas):
    """Steps as (gap, duration, running, waiting), in ms."""
    log = RunLog(num_gpu_blocks=101, num_stages=1, num_replicas=len(replicas))
    for replica, steps in enumerate(replicas):
        now = 0
        for gap, duration, running, waiting in steps:
            now += gap
            add_step(log, now * MS, (now + duration) * MS, replica=replica, running=running, waiting=waiting)
            now += duration
    return log


@given(st.lists(STEPS, min_size=1, max_size=3))
def test_the_area_under_running_is_steps_times_durations(replicas):
    log = log_of(replicas)
    series = state_series(arrays(log.steps), log.num_gpu_blocks)
    expected = sum(duration * running for steps in replicas for _, duration, running, _ in steps)
    end_ns = max((sum(step[0] + step[1] for step in steps) for steps in replicas), default=0) * MS
    assert series.mean(series.num_running, 0, end_ns) * end_ns == pytest.approx(expected * MS)
    if len(series.times_ns):
        assert (np.diff(series.times_ns) > 0).all()
        assert series.num_running[-1] == series.num_waiting[-1] == series.num_used_blocks[-1] == 0


@given(st.lists(STEPS, min_size=1, max_size=3), st.integers(1, 30))
def test_bins_average_to_the_mean(replicas, num_bins):
    log = log_of(replicas)
    series = state_series(arrays(log.steps), log.num_gpu_blocks)
    edges_ns = np.linspace(0, S, num_bins + 1)
    binned = series.binned_mean(series.num_waiting, edges_ns)
    assert binned.mean() == pytest.approx(series.mean(series.num_waiting, 0, S))


def test_a_state_holds_until_the_next_step_and_ends_when_nothing_is_in_flight():
    series = state_series(arrays(small_log().steps), 101)
    assert series.times_ns.tolist() == [0, 100 * MS, 200 * MS, 300 * MS, 500 * MS, 2000 * MS]
    assert series.num_running.tolist() == [1, 1, 1, 0, 1, 0]
    assert series.num_waiting.tolist() == [0, 0, 0, 0, 1, 0]
    assert series.num_used_blocks.tolist() == [10, 20, 20, 0, 100, 0]


def test_an_empty_log_has_no_series():
    series = state_series(arrays(empty_log().steps), 101)
    assert series.mean(series.num_running, 0, S) == 0.0
    assert series.binned_mean(series.num_running, np.array([0.0, 1.0, 2.0])).tolist() == [0.0, 0.0]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 99), st.integers(1, 50), st.integers(1, 3), st.integers(1, 2))
def test_the_parts_of_a_stage_sum_to_the_wall_and_to_the_log(seed, num_bins, num_stages, num_replicas):
    log = lively_log(30, num_stages, num_replicas, seed)
    stages, replica = arrays(log.stages), arrays(log.steps)["replica"]
    edges_ns = np.linspace(0, log.end_ns, num_bins + 1)
    parts = stage_parts(stages, replica, edges_ns, num_stages, num_replicas)
    width_s = log.end_ns / num_bins / S
    np.testing.assert_allclose(sum(parts[part] for part in STAGE_PARTS), width_s, atol=1e-9)
    for part in ("compute", "memory", "comm", "host"):
        logged_s = stages[f"{part}_ns"].sum() / S / num_replicas
        assert parts[part].sum() == pytest.approx(logged_s)


def test_busy_time_is_cut_to_the_window():
    stages = arrays(small_log().stages)
    assert busy_ns(stages, 2, 0, 2000 * MS) == [880 * MS, 880 * MS]
    assert busy_ns(stages, 2, 0, 1000 * MS) == [630 * MS, 130 * MS]
