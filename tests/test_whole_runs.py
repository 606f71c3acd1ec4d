"""Whole runs of real servers: the tables of the docs are what `simkv run` says, within bounds of the runs."""

from pathlib import Path

import pytest

from tests.whole_runs import HEADERS, ROWS, errors, line_of, simulate

PAGE = (Path(__file__).parent.parent / "docs" / "whole_runs.md").read_text(encoding="utf-8")


def params():
    for kind, rows in ROWS.items():
        for row in rows:
            is_long = row.get("osl", 0) * row.get("max_concurrency", 0) > 2**16  # 10 s
            name = "-".join(str(value) for value in list(row.values())[:-2])
            yield pytest.param(kind, row, id=name, marks=[pytest.mark.slow] if is_long else [])


@pytest.mark.parametrize(("kind", "row"), list(params()))
def test_a_whole_run(kind, row):
    summary = simulate(kind, row)
    ttft, tpot = errors(row, summary)
    assert HEADERS[kind] in PAGE
    assert line_of(kind, row, summary) in PAGE
    assert abs(ttft) < 0.2
    assert abs(tpot) < 0.1
