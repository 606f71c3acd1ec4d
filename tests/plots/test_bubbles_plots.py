import matplotlib
import matplotlib.pyplot as plt
import pandas as pd
import pytest
from logs import MS, SCENARIO, add_step, empty_log, finished, lively_log, small_log

from simkv.errors import ResultsError
from simkv.plots.bubbles import CAUSE_FILLS, bubbles, bubbles_by, idle_causes
from simkv.plots.gantt import gantt
from simkv.results.bubbles_history import CAUSES
from simkv.results.results import Results
from tests.engine.worlds import UnitCost, requests_of, simulation_of


def real_log():
    requests = requests_of([(0, 40, 12), (9_000, 60, 20), (300_000, 20, 5)])
    cost = UnitCost(3, host_s=0.4e-6, transfer_s=0.3e-6, slow={1: 1.2})
    return simulation_of(requests, num_gpu_blocks=40, pp=3, dp=2, cost=cost, async_scheduling=True).run()


LOGS = {"empty": empty_log, "small": small_log, "lively": lambda: lively_log(300), "real": real_log}
PLOTS = {"bubbles": bubbles, "gantt": gantt}


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("plot", PLOTS)
@pytest.mark.filterwarnings("error")
def test_every_log_is_drawn_within_its_frame(plot, log):
    figure = PLOTS[plot](Results(LOGS[log](), SCENARIO)).figure
    figure.canvas.draw()
    ticks = [label for ax in figure.axes for label in (*ax.get_xticklabels(), *ax.get_yticklabels())]
    for text in figure.findobj(matplotlib.text.Text):
        if text.get_text() and text.get_visible() and text not in ticks:
            box = text.get_window_extent()
            assert box.x0 >= 0
            assert box.y0 >= 0
            assert box.x1 <= figure.bbox.x1 + 0.5
            assert box.y1 <= figure.bbox.y1 + 0.5


@pytest.mark.parametrize("plot", PLOTS)
def test_given_axes_are_drawn_on_and_a_loaded_run_looks_the_same(plot, tmp_path):
    results = Results(real_log(), SCENARIO)
    pictures = []
    before = dict(matplotlib.rcParams)
    for drawn in (results, Results.load(results.save(tmp_path / "run"))):
        figure, ax = plt.subplots()
        assert PLOTS[plot](drawn, ax) is ax
        figure.canvas.draw()
        pictures.append(bytes(figure.canvas.buffer_rgba()))
    assert pictures[0] == pictures[1]
    assert dict(matplotlib.rcParams) == before


def test_bars_are_full():
    results = Results(real_log(), SCENARIO)
    ends = {}
    for bar in bubbles(results).patches:
        ends[round(bar.get_y(), 3)] = max(ends.get(round(bar.get_y(), 3), 0), bar.get_x() + bar.get_width())
    assert len(ends) == 3
    assert all(end == pytest.approx(100, abs=0.5) for end in ends.values())


def test_a_gantt_draws_the_batches_asked_for_and_those_beside_them():
    results = Results(real_log(), SCENARIO)
    ax = gantt(results, first_step=4, num_steps=6)
    steps = results.steps[results.steps["replica"] == 0].reset_index(drop=True)
    assert ax.get_xlabel() == f"time from {steps['start_ns'][4] / 1e9:,.6g} s on (µs)"
    width_us = (steps["end_ns"][9] - steps["start_ns"][4]) / 1e3
    assert ax.get_xlim() == pytest.approx((0, width_us))
    is_shown = (steps["end_ns"] > steps["start_ns"][4]) & (steps["start_ns"] < steps["end_ns"][9])
    batches = [bar for bar in ax.patches if bar.get_height() == pytest.approx(0.8)]
    assert len(batches) <= 3 * is_shown.sum()
    assert len(batches) >= 3 * 6


def test_a_gantt_says_which_batches_it_shows():
    results = Results(real_log(), SCENARIO)

    def note(**options):
        return gantt(results, **options).texts[-1].get_text()

    numbers = results.steps["replica"].value_counts()
    assert note(first_step=1, num_steps=2) == f"batches 1 to 2 of {numbers[0]} of replica 0"
    assert note(first_step=1, num_steps=1, replica=1) == f"batch 1 of {numbers[1]} of replica 1"
    log = empty_log()
    add_step(log, 0, 100 * MS)
    log.requests.append(finished(0, 0, 100 * MS, 100 * MS, 1))
    log.end_ns = 100 * MS
    assert gantt(Results(log, SCENARIO)).texts[-1].get_text() == "batch 0 of 1"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"first_step": -1}, "first_step: wanted 0 to {last}, got -1"),
        ({"first_step": 10**6}, "first_step: wanted 0 to {last}, got 1000000"),
        ({"num_steps": 0}, "num_steps: wanted 1 or more, got 0"),
        ({"replica": 2}, "replica: wanted 0 to 1, got 2"),
        ({"replica": -1}, "replica: wanted 0 to 1, got -1"),
    ],
)
def test_a_gantt_of_batches_that_are_not_there(options, error):
    results = Results(real_log(), SCENARIO)
    with pytest.raises(ResultsError) as caught:
        gantt(results, **options)
    assert str(caught.value) == error.format(last=(results.steps["replica"] == 0).sum() - 1)
    assert not plt.get_fignums()


def test_a_bar_a_point_of_a_sweep():
    summaries = [
        Results(make(), SCENARIO).summary | {"pp": pp} for pp, make in ((2, small_log), (3, real_log))
    ]
    ax = bubbles_by(pd.DataFrame(summaries), "pp")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["2", "3"]
    right = max(bar.get_x() + bar.get_width() for bar in ax.patches)
    assert right == pytest.approx(100, abs=0.5)
    assert bubbles_by(pd.DataFrame(summaries[:0]), "pp").texts[0].get_text() == "no point ran"


def test_every_cause_has_a_look_of_its_own():
    assert set(CAUSE_FILLS) == set(CAUSES)
    assert len({fill.hatch for fill in CAUSE_FILLS.values()}) == len(CAUSES)
    assert len({fill.color for fill in CAUSE_FILLS.values()}) == len(CAUSES)


def test_idle_causes_are_those_that_can_be_seen():
    shares = idle_causes(Results(real_log(), SCENARIO))
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    assert min(shares.values()) >= 3e-3
