"""The pages of docs/kernels say what the code and the shipped calibrations say; links lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.calibrate.pages import DOCS, PAGES, equations, field_comments, written

KERNELS = [page for page in PAGES if page.parent.name == "kernels"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_equations_parameters_and_errors_are_those_of_the_code(page):
    """Write them anew with ``python -m tests.calibrate.pages``."""
    text = page.read_text(encoding="utf-8")
    assert written(text) == text


@pytest.mark.parametrize("page", KERNELS, ids=lambda page: page.stem)
def test_a_page_has_its_parts(page):
    text = page.read_text(encoding="utf-8")
    assert "```text simkv.cost." in text
    assert re.search(r"^Parameters of `", text, re.MULTILINE)
    assert re.search(r"^\| all \|.*→|^\| `[\w/]+` \|.*→", text, re.MULTILINE)
    assert {"Measured", "Limits."} <= set(re.findall(r"\*\*([\w.]+)\*\*", text))
    assert not [line for line in text.splitlines() if len(line) > 110 and not line.startswith(("|", "`"))]


@pytest.mark.parametrize("page", KERNELS, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve()
        assert file.exists(), link
        titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
        assert not anchor or anchor in {title.lower().replace(" ", "-") for title in titles}, link


def test_every_page_is_named():
    text = (DOCS / "calibrate.md").read_text(encoding="utf-8")
    assert all(f"](kernels/{page.name})" in text for page in KERNELS)


def test_what_is_generated():
    assert equations("simkv.cost.kernels.gemm").splitlines()[-1].startswith("time       t0 + min")
    fields = dict(field_comments("gemm", "GemmParameters"))
    assert fields["launch_s"] == "t0: an empty product, seconds"
    assert Path(DOCS / "kernels").is_dir()
