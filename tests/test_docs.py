"""The documentation is run and read: its Python, its links, and its tables of fields and columns."""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from pydantic_core import PydanticUndefined

import simkv
from simkv.load.hardware import find_hardware
from simkv.scheduler import SchedulerConfig
from simkv.spec import engine, hardware, lengths, model, parallel, scenario, workload
from simkv.spec.base import Spec

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
SPECS = [
    spec
    for module in (scenario, parallel, engine, workload, lengths, model, hardware)
    for spec in vars(module).values()
    if isinstance(spec, type) and issubclass(spec, Spec) and spec.__module__ == module.__name__
    if spec is not engine.ResolvedEngine  # what EngineSpec becomes; nobody writes it
]


def read(path):
    return path.read_text(encoding="utf-8")


def python_blocks(path):
    return re.findall(r"^```python\n(.*?)^```", read(path), flags=re.MULTILINE | re.DOTALL)


def prose(path):
    """The text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", read(path), flags=re.MULTILINE | re.DOTALL)


def headings(path):
    """The anchors that the headings of a page make, as GitHub writes them."""
    titles = re.findall(r"^#+ (.*)$", prose(path), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def tables(path):
    """Every table of a page: the words before it, and its rows of cells."""
    pattern = r"([^\n]*)\n+((?:^\|.*\|\n)+)"
    for words, rows in re.findall(pattern, prose(path), flags=re.MULTILINE):
        cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows.splitlines()]
        yield words, cells[2:]


def shown_default(field):
    """A field's default as the page shows it."""
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        return "required"
    if default is None or default in ((), {}):
        return "–"
    if isinstance(default, bool):
        return str(default).lower()
    return "all defaults" if isinstance(default, Spec) else str(default)


@pytest.mark.parametrize("path", [p for p in PAGES if python_blocks(p)], ids=lambda path: path.stem)
def test_python_blocks_run(path, tmp_path):
    """The blocks of a page follow each other in one fresh session, in an empty folder."""
    blocks = python_blocks(path)
    assert all(block.startswith(">>> ") for block in blocks), "wanted doctests"
    # Without its fences a page is a doctest file of its own.
    page = tmp_path / path.name
    page.write_text("\n\n".join(blocks), encoding="utf-8")
    command = [sys.executable, "-m", "doctest", page.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_links_lead_somewhere(path):
    for link in re.findall(r"\]\(([^)]+)\)", prose(path)):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        assert file.exists(), link
        assert not anchor or anchor in headings(file), link


def test_the_index_knows_every_page():
    for path in PAGES:
        assert path.stem == "index" or f"]({path.name})" in read(DOCS / "index.md")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_lines_are_short(path):
    long = [line for line in read(path).splitlines() if len(line) > 110 and not line.startswith("|")]
    assert not long


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.__name__)
def test_scenarios_page_has_every_field_and_its_default(spec):
    wanted = {f"`{name}`": shown_default(field) for name, field in spec.model_fields.items()}
    found = [
        {row[0]: row[2] for row in rows} for _, rows in tables(DOCS / "scenarios.md") if len(rows[0]) == 4
    ]
    assert spec.__name__ in read(DOCS / "scenarios.md")
    assert wanted in found, f"no table of scenarios.md is that of {spec.__name__}: {wanted}"


@pytest.mark.parametrize("section", ["kernels", "host"])
def test_model_page_says_what_each_number_does_and_where_it_comes_from(section):
    wanted = {}
    for name, value in getattr(find_hardware("h100_sxm"), section):
        quantities = list(value.values()) if isinstance(value, dict) else [value]
        if name == "before":
            quantities = [quantity for gap in quantities for _, quantity in gap]
        wanted[f"`{name}`"] = {quantity.mark if quantity else "–" for quantity in quantities}
    rows = next(rows for _, rows in tables(DOCS / "model.md") if rows[0][0] in wanted)
    assert {row[0]: {row[2]} for row in rows} == wanted


@pytest.fixture(scope="module")
def results():
    return simkv.simulate(simkv.load_scenario("quickstart", overrides=["workload.num_prompts=3"]))


@pytest.mark.parametrize("name", ["requests", "steps", "stages", "itls"])
def test_results_page_has_every_column(results, name):
    rows = next(rows for words, rows in tables(DOCS / "results.md") if words.startswith(f"**{name}**"))
    found = [column for row in rows for column in re.findall(r"`(\w+)`", row[0])]
    assert sorted(found) == sorted(getattr(results, name).columns)


def test_results_page_has_every_summary_key(results):
    named = re.findall(r"`([\w…]+)`", read(DOCS / "results.md").partition("## Summary")[2])
    stems = ("ttft", "tpot", "itl", "e2el")
    known = {name.replace("…", stem) for name in named for stem in stems}
    assert set(results.summary) <= known


def test_recordings_page_has_every_option_the_replay_needs():
    wanted = {field.name for field in fields(SchedulerConfig)}
    wanted |= {"block_size", "num_gpu_blocks", "enable_prefix_caching", "watermark"}
    assert wanted <= set(re.findall(r"`(\w+)`", read(DOCS / "recordings.md")))
