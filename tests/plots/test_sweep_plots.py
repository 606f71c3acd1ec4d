import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import (
    CHUNK,
    CHUNKS,
    CONTEXT,
    CONTEXTS,
    DEPTHS,
    DTYPE,
    FOUND,
    GRID,
    LOAD,
    MANY,
    NOTHING,
    PP,
    RATE,
    SEEDS,
    SWEEPS,
    TP,
    UNSERVED,
    WORDS,
    table,
)  # fmt: skip

from simkv.errors import ResultsError
from simkv.plots import SWEEP_KINDS, curve, frontier, heatmap
from simkv.plots.frontier import pareto

XY_KINDS = [kind for kind in SWEEP_KINDS if kind != "bubbles"]  # that one: test_sweep_bubbles.py
DRAWABLE = [
    (kind, name)
    for kind in XY_KINDS
    for name in SWEEPS
    if not (kind == "curve" and name == "words")  # no field with numbers
    and not (kind == "heatmap" and name in ("seeds", "unserved"))  # one field
    and not (kind == "frontier" and name == "contexts")  # no latencies
]


def texts_of(ax):
    """All that can be read on the figure."""
    return [
        text
        for text in ax.figure.findobj(matplotlib.text.Text)
        if text.get_text().strip() and text.get_visible()
    ]


def note_of(ax):
    return next((text.get_text() for text in ax.texts if text.get_position() == (0, -36)), "")


def labels_of(ax):
    legend = ax.get_legend()
    return [text.get_text() for text in legend.get_texts()] if legend else []


def lines_of(ax):
    """The curves: lines with markers, without error bars."""
    return [line for line in ax.lines if line.get_marker() in "os^DvPX"]


# laws


@pytest.mark.parametrize(("kind", "name"), DRAWABLE)
@pytest.mark.filterwarnings("error")
def test_every_kind_draws_every_sweep_within_its_frame_and_leaves_the_table_alone(kind, name):
    frame = SWEEPS[name].copy()
    ax = SWEEP_KINDS[kind](frame)
    figure = ax.figure
    figure.canvas.draw()
    pd.testing.assert_frame_equal(frame, SWEEPS[name])
    for text in texts_of(ax):
        box = text.get_window_extent()
        ticks = [label for a in figure.axes for label in (*a.get_xticklabels(), *a.get_yticklabels())]
        inside = (
            box.x0 >= -1 and box.y0 >= -1 and box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1
        )
        assert inside or text in ticks, text.get_text()


@pytest.mark.parametrize(("kind", "name"), DRAWABLE)
def test_words_do_not_cover_each_other(kind, name):
    ax = SWEEP_KINDS[kind](SWEEPS[name])
    ax.figure.canvas.draw()
    boxes = []
    for axes in ax.figure.axes:
        low, high = axes.get_window_extent().padded(1).min, axes.get_window_extent().padded(1).max
        for axis, side in ((axes.xaxis, 0), (axes.yaxis, 1)):
            for label in axis.get_ticklabels():
                box = label.get_window_extent()
                middle = (box.min[side] + box.max[side]) / 2
                if label.get_text() and low[side] <= middle <= high[side]:
                    boxes.append((label.get_text(), box))
            if axis.label.get_text():
                boxes.append((axis.label.get_text(), axis.label.get_window_extent()))
    boxes += [(t.get_text(), matplotlib.text.Text.get_window_extent(t)) for t in ax.texts]
    for i, (text, box) in enumerate(boxes):
        for other, other_box in boxes[:i]:
            assert not box.padded(-0.5).overlaps(other_box.padded(-0.5)), (text, other)


@pytest.mark.parametrize("kind", XY_KINDS)
def test_given_axes_are_drawn_on_and_returned_and_global_settings_stay(kind):
    _, ax = plt.subplots()
    before = dict(matplotlib.rcParams)
    assert SWEEP_KINDS[kind](GRID, ax=ax) is ax
    assert ax.get_title(loc="left")
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("kind", SWEEP_KINDS)
def test_a_sweep_without_a_result_says_so(kind):
    ax = SWEEP_KINDS[kind](NOTHING)
    assert [text.get_text() for text in ax.texts] == [
        "no point has a result",
        "left out: 2 infeasible of 2 points",
    ]


@pytest.mark.parametrize("kind", XY_KINDS)
def test_an_unknown_column_leaves_no_figure_open(kind):
    with pytest.raises(ResultsError, match=r"^x: wanted a column of the sweep, got 'thruput'"):
        SWEEP_KINDS[kind](GRID, x="thruput")
    assert not plt.get_fignums()


GAINS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20)


@given(GAINS)
def test_the_frontier_is_what_no_other_point_beats(gains):
    is_best = pareto(np.array(gains, dtype=float))
    for index, (a, b) in enumerate(gains):
        beaten = any(c >= a and d >= b and (c, d) != (a, b) for c, d in gains)
        assert is_best[index] == (not beaten)
    assert is_best.any()


# curve


@pytest.mark.parametrize(
    ("frame", "x", "y", "labels"),
    [
        (LOAD, "output throughput (tok/s)", "P99 TTFT (ms)", ["TP1", "TP2", "TP4"]),
        (
            CHUNKS,
            "max_num_batched_tokens (tokens)",
            "P99 TTFT and mean TPOT (ms)",
            ["P99 TTFT", "mean TPOT", "\nlayout", "TP1", "TP4"],
        ),
        (CONTEXTS, "max_model_len (tokens)", "requests of max_model_len that fit", ["auto", "fp8"]),
        (
            DEPTHS.drop(columns="workload.max_concurrency").drop_duplicates(PP),
            "pipeline_parallel_size",
            "time the stages idle (%)",
            [],
        ),
        (FOUND, "max_num_batched_tokens (tokens)", "value found within the limits", ["auto", "fp8"]),
    ],
)
def test_what_was_swept_decides_what_a_curve_shows(frame, x, y, labels):
    ax = curve(frame)
    assert (ax.get_xlabel(), ax.get_ylabel(), labels_of(ax)) == (x, y, labels)


def test_the_points_of_a_load_curve_are_in_the_order_of_the_load():
    ax = curve(LOAD[::-1])
    rows = LOAD[LOAD[TP] == 4]
    line = lines_of(ax)[labels_of(ax).index("TP4")]
    assert list(line.get_xdata()) == list(rows["output_throughput"])
    assert list(line.get_ydata()) == list(rows["p99_ttft_ms"])
    assert note_of(ax) == "along a line: request_rate 0.5 to 8 req/s"


def test_shares_are_shown_in_per_cent():
    ax = curve(DEPTHS, x=PP, y="mean_stage_idle")
    assert ax.get_ylabel() == "time the stages idle (%)"
    rows = DEPTHS[DEPTHS["workload.max_concurrency"] == 1]
    assert list(lines_of(ax)[0].get_ydata()) == pytest.approx(
        list(100 * (1 - rows["mean_stage_utilization"]))
    )


def test_the_idle_share_is_also_read_from_the_utilization_of_each_stage():
    frame = DEPTHS.drop(columns="mean_stage_utilization").assign(stage_utilization="[0.5, 0.25]")
    ax = curve(frame, x=PP, y="mean_stage_idle")
    assert set(lines_of(ax)[0].get_ydata()) == {62.5}


def test_ticks_are_at_the_values_that_were_swept():
    ax = curve(CHUNKS)
    assert ax.get_xscale() == "log"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["512", "1K", "2K", "8K", "32K"]


def test_fields_that_go_with_x_value_for_value_do_not_tell_lines_apart():
    pairs = GRID[(GRID[TP] * GRID[PP] == 8)]
    ax = curve(pairs, x=PP, y="output_throughput")
    assert len(lines_of(ax)) == 1
    assert len(lines_of(ax)[0].get_xdata()) == 4


def test_seeds_are_averaged_and_the_note_says_so():
    ax = curve(SEEDS)
    means = SEEDS.groupby(RATE)["p99_ttft_ms"].mean()
    assert list(lines_of(ax)[0].get_ydata()) == pytest.approx(list(means))
    assert note_of(ax).splitlines() == [
        "along a line: request_rate 1 to 4 req/s",
        "mean over seed, up to 3 points; bars: lowest to highest",
    ]


def test_fields_that_by_leaves_out_are_averaged():
    ax = curve(MANY, y="output_throughput", by=TP)
    assert labels_of(ax) == ["1", "2", "4", "8"]
    assert "mean over pipeline_parallel_size, max_num_batched_tokens" in note_of(ax)


def test_points_that_cannot_be_drawn_are_counted():
    frame = table(
        {RATE: [1.0, 2.0, 4.0], TP: [1, 4]}, lambda p: {"p99_ttft_ms": None} if p[RATE] == 4 else {},
        lambda p: "done" if p[TP] == 4 else "infeasible",
    )  # fmt: skip
    assert note_of(curve(frame)).endswith("left out: 3 infeasible, 1 without a value of 6 points")


def test_the_latency_of_no_request_is_not_zero():
    ax = curve(UNSERVED, x=RATE, y="mean_ttft_ms")
    assert len(lines_of(ax)[0].get_xdata()) == 2
    assert note_of(ax) == "left out: 1 without a value of 3 points"
    assert len(frontier(UNSERVED).lines[0].get_xdata()) == 2


def test_lines_differ_without_colour():
    lines = lines_of(curve(DEPTHS, x=PP, y="mean_stage_idle"))
    assert len({(line.get_marker(), line.get_linestyle()) for line in lines}) == len(lines)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"x": CHUNK}, f"x: wanted a column of the sweep, got '{CHUNK}'; swept fields: {TP}, {RATE}"),
        (
            {"x": "request_rate"},
            f"x: wanted a column of the sweep, got 'request_rate'; did you mean '{RATE}'?",
        ),
        (
            {"y": "p99_tftt_ms"},
            "y: wanted a column of the sweep, got 'p99_tftt_ms'; did you mean 'p99_ttft_ms'?",
        ),
        ({"y": "layout"}, "y: wanted numbers, got layout, which has 'TP1'"),
        (
            {"y": ("p99_ttft_ms", "output_throughput")},
            "y: wanted metrics of one unit, got P99 TTFT (ms), output throughput (tok/s)",
        ),
        (
            {"by": "engine.nope"},
            f"by: wanted a column of the sweep, got 'engine.nope'; swept fields: {TP}, {RATE}",
        ),
    ],
)
def test_what_a_curve_cannot_draw(arguments, error):
    with pytest.raises(ResultsError) as caught:
        curve(LOAD, **arguments)
    assert str(caught.value) == error


def test_a_curve_needs_numbers_and_not_too_many_lines():
    with pytest.raises(
        ResultsError, match=f"x: wanted a swept field with numbers, got model, {DTYPE}; name one"
    ):
        curve(WORDS)
    with pytest.raises(ResultsError, match="by: wanted at most 12 lines, got 14 "):
        curve(MANY, by=["layout", CHUNK])
    assert "mean over max_num_batched_tokens" in note_of(curve(MANY))


# heatmap


def test_cells_hold_their_numbers_and_those_without_a_result_are_hatched():
    ax = heatmap(GRID)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("tensor_parallel_size", "pipeline_parallel_size")
    done = GRID[GRID["status"] == "done"]
    numbers = [text.get_text() for text in ax.texts][: len(done)]
    assert sorted(numbers) == sorted(f"{value:,.1f}" for value in done["output_throughput"])
    hatched = [patch for patch in ax.patches if patch.get_hatch()]
    assert len(hatched) == len(GRID) - len(done)
    assert labels_of(ax) == ["infeasible", "refused"]
    assert note_of(ax).splitlines() == ["framed: the best", "left out: 3 infeasible, 6 refused of 16 points"]


def test_the_best_cell_is_framed_by_what_is_better():
    def framed(value):
        frame = next(patch for patch in heatmap(LOAD, x=RATE, y=TP, value=value).patches)
        return round(frame.get_x() + 0.46), round(frame.get_y() + 0.44)

    assert framed("output_throughput") == (4, 2)
    assert framed("p99_ttft_ms") == (0, 2)


def test_a_large_heatmap_has_no_numbers():
    frame = table({CONTEXT: [1024 * i for i in range(1, 21)], TP: [1, 2]})
    assert not [text for text in heatmap(frame).texts if text.get_text()[0].isdigit()]


def test_words_are_in_the_order_of_the_sweep_from_the_top():
    ax = heatmap(LOAD, x=RATE, y="layout")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["TP4", "TP2", "TP1"]


def test_cells_of_several_points_are_averaged():
    ax = heatmap(MANY, x=TP, y=PP, value="mean_tpot_ms")
    assert "mean over max_num_batched_tokens, request_rate, up to 6 points" in note_of(ax)


@pytest.mark.parametrize(
    ("frame", "arguments", "error"),
    [
        (SEEDS, {}, f"x, y: wanted two swept fields for a heatmap, got {RATE}, seed; draw a curve instead"),
        (LOAD, {"x": "p99_ttft_ms"}, "x: wanted a column of the sweep, got 'p99_ttft_ms'"),
        (LOAD, {"value": "status"}, "value: wanted numbers, got status, which has 'done'"),
    ],
)
def test_what_a_heatmap_cannot_draw(frame, arguments, error):
    with pytest.raises(ResultsError) as caught:
        heatmap(frame, **arguments)
    assert str(caught.value).startswith(error)


# frontier


def test_the_frontier_is_labelled_and_the_beaten_are_counted():
    frame = pd.DataFrame(
        {
            TP: [1, 2, 4, 8, 16],
            "layout": ["TP1", "TP2", "TP4", "TP8", "TP16"],
            "status": ["infeasible", "done", "done", "done", "done"],
            "mean_tpot_ms": [None, 10.0, 20.0, 30.0, 25.0],
            "output_throughput": [None, 100.0, 300.0, 200.0, 400.0],
        }
    )
    ax = frontier(frame)
    line = ax.lines[0]
    assert list(line.get_xdata()) == [10.0, 20.0, 25.0]
    assert line.get_drawstyle() == "steps-post"
    assert labels_of(ax) == ["beaten (1)", "frontier (3)"]
    assert {text.get_text() for text in ax.texts} == {
        "TP2", "TP4", "TP8", "TP16", "labels: layout\nleft out: 1 infeasible of 5 points",
    }  # fmt: skip
    assert ax.get_xlabel() == "mean TPOT (ms), less is better"


def test_both_axes_may_be_better_either_way():
    ax = frontier(MANY, x="output_throughput", y="p99_ttft_ms")
    xs, ys = ax.lines[0].get_data()
    assert list(xs) == sorted(xs)
    assert list(ys) == sorted(ys)
    assert ax.lines[0].get_drawstyle() == "steps-pre"


def test_labels_without_room_are_left_out_and_counted():
    frame = table({RATE: [round(1 + i / 1000, 3) for i in range(80)], DTYPE: ["a" * 30]})
    ax = frontier(frame)
    assert "without room for one" in note_of(ax)
    assert len(ax.texts) < 80


@pytest.mark.parametrize("name", ["mean_kv_cache_usage_perc", TP])
def test_an_axis_without_a_better_side(name):
    with pytest.raises(ResultsError, match=f"x: wanted a metric with a better side, .* got {name}"):
        frontier(GRID, x=name)
