"""`simkv plot`: what is drawn into which file, and what a wrong option says."""

from pathlib import Path

import pandas as pd
import pytest
from logs import SCENARIO, small_log
from sweeps import CHUNK, GRID, LOAD, NOTHING, PP, SEEDS, TP, WORDS

from simkv.errors import ResultsError
from simkv.plots.draw import draw
from simkv.plots.sweep_table import read_points
from simkv.results.results import Results


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a sweep, ``sweep``, and a run, ``run``."""
    monkeypatch.chdir(tmp_path)
    save(GRID, "sweep")
    Results(small_log(), SCENARIO).save("run")
    return tmp_path


def save(frame, name):
    Path(name).mkdir(exist_ok=True)
    frame.to_parquet(Path(name) / "points.parquet", index=False)


@pytest.mark.usefixtures("folder")
def test_a_sweep_is_drawn_in_every_kind_that_it_has_the_fields_for(simkv):
    assert simkv("plot", "sweep") == (
        0, "sweep/plots/frontier.png\nsweep/plots/curve.png\nsweep/plots/heatmap.png\n", "",
    )  # fmt: skip
    save(SEEDS, "seeds")
    assert simkv("plot", "seeds")[:2] == (0, "seeds/plots/frontier.png\nseeds/plots/curve.png\n")
    save(WORDS, "words")
    assert simkv("plot", "words")[:2] == (0, "words/plots/frontier.png\nwords/plots/heatmap.png\n")
    save(NOTHING, "nothing")
    assert simkv("plot", "nothing")[0] == 0


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (("--kind", "curve", "--x", PP, "--y", "mean_tpot_ms", "--y", "p99_ttft_ms", "--by", TP), "curve"),
        (("--kind", "heatmap", "--x", TP, "--y", PP, "--value", "kv_tokens"), "heatmap"),
        (("--x", "p99_ttft_ms"), "frontier"),
        (("--by", "layout"), "curve"),
        (("--value", "kv_tokens"), "heatmap"),
    ],
)
def test_the_options_choose_what_is_drawn(simkv, options, kind):
    assert simkv("plot", "sweep", *options) == (0, f"sweep/plots/{kind}.png\n", "")
    assert simkv("plot", "sweep", *options, "-o", "mine.svg") == (0, "mine.svg\n", "")
    assert Path("mine.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert not list(Path().glob(".*part*"))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ("sweep", "--kind", "timeline"),
            "--kind: wanted one of frontier, curve, heatmap, bubbles for a sweep, got 'timeline', "
            "which is for a result folder",
        ),
        (
            ("sweep", "--kind", "frontir"),
            "--kind: wanted one of frontier, curve, heatmap, bubbles for a sweep, got 'frontir'; "
            "did you mean 'frontier'?",
        ),
        (
            ("run", "--kind", "curve"),
            "--kind: wanted one of latency, timeline, breakdown, overview, ledger, bubbles, gantt "
            "for a result folder, got 'curve', which is for a sweep",
        ),
        (
            ("run", "--kind", "latency", "--num-steps", "3"),
            "--num-steps: wanted --kind gantt, got latency",
        ),
        (("run", "-o", "x.png", "--replica", "4"), "replica: wanted 0, got 4"),
        (("run", "--kind", "gantt", "--first-step", "4"), "first_step: wanted 0 to 3, got 4"),
        (("run", "--kind", "gantt", "--first-step", "-1"), "first_step: wanted 0 to 3, got -1"),
        (("run", "--kind", "gantt", "--num-steps", "0"), "num_steps: wanted 1 or more, got 0"),
        (
            ("sweep", "--first-step", "0"),
            "--first-step: wanted a result folder, got the folder of a sweep",
        ),
        (("run", "--x", TP), "--x: wanted the folder of a sweep, got a result folder"),
        (
            ("sweep", "--kind", "frontier", "--by", "layout"),
            "--by: wanted an option of frontier (--x, --y), got one of another kind",
        ),
        (
            ("sweep", "--kind", "frontier", "--y", "kv_tokens", "--y", "completed"),
            "--y: wanted one column for frontier, got kv_tokens, completed",
        ),
        (
            ("sweep", "--x", "mean_toptms"),
            "x: wanted a column of the sweep, got 'mean_toptms'; did you mean 'mean_tpot_ms'?",
        ),
        (
            ("sweep", "--kind", "curve", "--x", "pipeline_paralel_size"),
            "x: wanted a column of the sweep, got 'pipeline_paralel_size'; "
            "did you mean 'parallel.pipeline_parallel_size'?",
        ),
        (("sweep", "-o", "run/summary.json/x.png"), "run/summary.json/x.png: cannot be written: "),
        (("sweep", "-o", "x.docx"), "x.docx: cannot be written: "),
        (("nowhere",), "nowhere: wanted a simkv result folder, got nothing there"),
    ],
)
def test_what_cannot_be_drawn_is_one_error(simkv, arguments, error):
    code, out, err = simkv("plot", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {error}")
    assert err.count("\n") == 1


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("kind", [("--kind", "gantt"), ()])
def test_which_batches_a_gantt_shows(simkv, kind):
    options = ("--first-step", "1", "--num-steps", "2", "--replica", "0")
    assert simkv("plot", "run", *kind, *options) == (0, "run/plots/gantt.png\n", "")
    some = Path("run/plots/gantt.png").read_bytes()
    assert simkv("plot", "run", "--kind", "gantt")[0] == 0
    assert Path("run/plots/gantt.png").read_bytes() != some


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("kind", [("--kind", "gantt"), ("--kind", "bubbles"), ()])
def test_a_run_whose_stages_are_short_is_one_error(simkv, kind):
    path = Path("run/stages.parquet")
    pd.read_parquet(path).iloc[:-3].to_parquet(path, index=False)
    assert simkv("plot", "run", *kind) == (
        2,
        "",
        "error: run/stages.parquet: wanted 8 rows, one a stage for each row of steps.parquet, got 5; "
        "run the scenario again\n",
    )


def test_a_sweep_that_no_kind_can_draw_says_why_the_first_cannot(folder):
    save(LOAD.iloc[:1].drop(columns="mean_tpot_ms"), "one")
    with pytest.raises(ResultsError, match="x: wanted a column of the sweep, got 'mean_tpot_ms'"):
        draw(Path("one"), None, None)
    assert sorted(path.name for path in Path("one").iterdir()) == ["points.parquet"]


def test_the_table_of_a_sweep_is_read_back(folder):
    assert list(read_points("sweep")[TP]) == list(GRID[TP])
    assert CHUNK not in read_points(Path("sweep"))


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, "got no such file; give the folder of a sweep"),
        (b"PAR1 not really", "got a truncated or damaged file; sweep again"),
    ],
)
def test_a_table_that_cannot_be_read(tmp_path, content, error):
    if content is not None:
        (tmp_path / "points.parquet").write_bytes(content)
    with pytest.raises(ResultsError) as caught:
        read_points(tmp_path)
    assert str(caught.value) == f"{tmp_path / 'points.parquet'}: wanted a table of points, {error}"


def test_a_table_of_something_else(tmp_path):
    save(LOAD[[TP]], tmp_path)
    with pytest.raises(ResultsError, match="wanted a table with the column status, got one without it"):
        read_points(tmp_path)
