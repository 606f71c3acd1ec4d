"""Bars of busy and idle time over the points of a sweep, and idle curves from a real one."""

import matplotlib
import matplotlib.pyplot as plt
import pytest
from sweeps import CHUNK, CONCURRENCY, DEPTHS, PP, table

import simkv
from simkv.errors import ResultsError
from simkv.plots import curve, heatmap, read_points, sweep_bubbles
from simkv.plots.draw import draw
from simkv.results.bubbles_history import CAUSES
from simkv.results.series import BUSY_PARTS


def accounts(point):
    """Half of the time busy, the rest idle for one cause or another."""
    cause = CAUSES[int(point.get(CONCURRENCY, 1)) % len(CAUSES)]
    busy = {f"{part}_time_share": 0.25 for part in BUSY_PARTS}
    idle = dict.fromkeys((f"idle_{name}_share" for name in CAUSES), 0.0) | {f"idle_{cause}_share": 0.5}
    return busy | idle | {"mean_stage_utilization": 0.5}


BARS = table({PP: [1, 2, 4, 8], CONCURRENCY: [1, 8, 32]}, accounts)


def labels_of(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


@pytest.mark.filterwarnings("error")
def test_a_bar_for_each_point_full_and_within_the_frame():
    ax = sweep_bubbles(BARS)
    assert labels_of(ax)[:4] == ["TP1, 1", "TP1, 8", "TP1, 32", "TP1×PP2, 1"]
    ends = {}
    for bar in ax.patches:
        ends[round(bar.get_y(), 3)] = max(ends.get(round(bar.get_y(), 3), 0), bar.get_x() + bar.get_width())
    assert list(ends.values()) == [pytest.approx(100)] * 12
    figure = ax.figure
    figure.canvas.draw()
    for text in figure.findobj(matplotlib.text.Text):
        if text.get_text().strip() and text.get_visible():
            box = text.get_window_extent()
            assert box.x0 >= -1
            assert box.y0 >= -1
            assert box.x1 <= figure.bbox.x1 + 1
            assert box.y1 <= figure.bbox.y1 + 1


def test_fields_left_out_are_averaged_and_said_so():
    ax = sweep_bubbles(BARS, by=PP)
    assert labels_of(ax) == ["1", "2", "4", "8"]
    assert "mean over max_concurrency, up to 3 points" in [text.get_text() for text in ax.texts]
    _, given = plt.subplots()
    assert sweep_bubbles(BARS, by=[PP], ax=given) is given


@pytest.mark.parametrize("plot", [sweep_bubbles, curve])
def test_a_field_named_twice_is_as_if_named_once(plot):
    once, twice = (plot(BARS, by=by) for by in ([CONCURRENCY], [CONCURRENCY, CONCURRENCY]))
    pictures = []
    for ax in (once, twice):
        ax.figure.canvas.draw()
        pictures.append(bytes(ax.figure.canvas.buffer_rgba()))
    assert pictures[0] == pictures[1]


def test_what_it_cannot_draw():
    with pytest.raises(
        ResultsError, match="bubbles: wanted a table with idle times by cause, got one without"
    ):
        sweep_bubbles(DEPTHS)
    with pytest.raises(ResultsError, match=r"by: wanted a column of the sweep, got 'engine\.nope'"):
        sweep_bubbles(BARS, by="engine.nope")
    with pytest.raises(ResultsError, match="by: wanted at most 32 bars, got 40 "):
        sweep_bubbles(table({PP: [1, 2, 4, 8], CHUNK: [256 * n for n in range(1, 11)]}, accounts))
    assert not plt.get_fignums()


def test_a_long_name_does_not_run_into_the_legend():
    ax = sweep_bubbles(table({CHUNK: [512, 2048], "engine.block_size": [16, 32]}, accounts))
    assert ax.get_title(loc="left") == "Busy and idle, by cause"
    assert ax.get_ylabel() == "max num batched tokens, block size"


def test_idle_time_over_depth_and_concurrency_of_a_real_sweep(tmp_path):
    """Idle time grows with depth and falls with the requests that run for each stage."""
    scenario = simkv.load_scenario(
        "one_gpu_32k",
        overrides=[
            "hardware=h100_sxm",
            "engine={max_model_len: 4096, max_num_batched_tokens: 1024}",
            "workload={arrival: inf, num_prompts: 12, max_concurrency: 1, prompt_len: 500, output_len: 30}",
        ],
    )
    grid = {PP: [1, 4], CONCURRENCY: [1, 4, 12]}
    simkv.sweep(scenario, grid, folder=tmp_path / "sweep", jobs=1)
    frame = read_points(tmp_path / "sweep")
    for kind, options in (
        ("curve", {"x": [PP], "y": ["mean_stage_idle"], "by": [CONCURRENCY]}),
        ("curve", {"x": ["running_per_stage"], "y": ["mean_stage_idle"]}),
        ("heatmap", {"x": [PP], "y": [CONCURRENCY], "value": ["mean_stage_idle"]}),
        ("bubbles", {"by": [PP, CONCURRENCY]}),
    ):
        (path,) = draw(tmp_path / "sweep", kind, tmp_path / f"{kind}.png", options)
        assert path.stat().st_size > 5000
    ax = curve(frame, x="running_per_stage", y="mean_stage_idle")
    deep = next(line for line in ax.lines if line.get_marker() == "s")
    xs, ys = deep.get_data()
    assert xs[0] == pytest.approx(0.25, rel=0.05)
    assert ys[0] == pytest.approx(75, abs=3)
    assert list(ys) == sorted(ys, reverse=True)
    assert heatmap(frame, x=PP, y=CONCURRENCY, value="mean_stage_idle").get_title(loc="left")
    assert len(labels_of(sweep_bubbles(frame))) == 6
