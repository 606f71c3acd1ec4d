import subprocess
import sys
from itertools import pairwise

import matplotlib
import matplotlib.pyplot as plt
import pytest
from logs import SCENARIO, empty_log, lively_log, small_log
from matplotlib.figure import Figure

from simkv.plots import KINDS
from simkv.plots.style import FILLS, LINES
from simkv.results.results import Results

LOGS = {"empty": empty_log, "small": small_log, "lively": lively_log}
ON_AXES = [name for name in KINDS if name != "overview"]


def figure_of(drawn):
    return drawn if isinstance(drawn, Figure) else drawn.figure


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("error")
def test_every_kind_draws_every_log_within_its_frame(kind, log):
    figure = figure_of(KINDS[kind](Results(LOGS[log](), SCENARIO)))
    figure.canvas.draw()
    texts = [text for text in figure.findobj(matplotlib.text.Text) if text.get_text() and text.get_visible()]
    for text in texts:
        box = text.get_window_extent()
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
        # ticks outside the limits are not drawn but keep their text
        assert inside or text in [
            label for ax in figure.axes for label in (*ax.get_xticklabels(), *ax.get_yticklabels())
        ]


@pytest.mark.parametrize("kind", ON_AXES)
def test_given_axes_are_drawn_on_and_returned(kind):
    _, ax = plt.subplots()
    assert KINDS[kind](Results(small_log(), SCENARIO), ax) is ax
    assert ax.get_title(loc="left")


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_run_draws_the_same_picture(kind, tmp_path):
    results = Results(lively_log(300), SCENARIO)
    pictures = []
    for drawn in (results, Results.load(results.save(tmp_path / "run"))):
        canvas = figure_of(KINDS[kind](drawn)).canvas
        canvas.draw()
        pictures.append(bytes(canvas.buffer_rgba()))
    assert pictures[0] == pictures[1]


@pytest.mark.parametrize("kind", KINDS)
def test_global_settings_stay_as_they_were(kind):
    before = dict(matplotlib.rcParams)
    KINDS[kind](Results(small_log(), SCENARIO))
    assert dict(matplotlib.rcParams) == before


def test_a_long_run_is_thinned_before_it_is_drawn():
    results = Results(lively_log(30_000, num_stages=1, num_replicas=1), SCENARIO)
    assert len(results.steps) == 30_000
    figure = KINDS["overview"](results)
    lines = [line for ax in figure.axes for line in ax.lines]
    assert max(len(line.get_xdata()) for line in lines) <= 1001


def test_lines_and_fills_differ_without_colour():
    def grey(color):
        red, green, blue = matplotlib.colors.to_rgb(color)
        return 0.299 * red + 0.587 * green + 0.114 * blue

    latencies = [LINES[name].linestyle for name in ("ttft", "tpot", "itl", "e2el")]
    assert len(set(latencies)) == len(latencies)
    greys = [grey(fill.color) for fill in FILLS.values()]
    assert all(later - earlier > 0.05 for earlier, later in pairwise(greys))


def test_importing_the_plots_does_not_import_matplotlib():
    code = "import simkv.plots, sys; sys.exit('matplotlib' in sys.modules or 'pandas' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
