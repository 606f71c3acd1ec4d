"""All answers as one tidy table: a row a point, in the order of the grid; numbers are numbers, text is text."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simkv.sweeping.points import Point
from simkv.sweeping.study import Answers, Study

if TYPE_CHECKING:
    import pandas as pd

# The plan's figure of this name counts requests that fit; the client's option is in the swept fields.
_LEFT_OUT = ("max_concurrency",)
_SEARCH_COLUMNS = ("found", "fails_at", "fails", "num_runs")


def make_rows(study: Study, answers: Answers) -> list[dict[str, Any]]:
    """Return a row for each point that is done, in the order of the grid."""
    rows = []
    for point in study.points:
        if point.scenario is None:
            rows.append(_settings(study, point) | {"status": "refused", "reason": point.refusal})
        elif point.key in answers:
            rows.append(_settings(study, point) | _answer(study, answers[point.key]))
    return rows


def _settings(study: Study, point: Point) -> dict[str, Any]:
    return {field: point.settings[field] for field in study.swept}


def _answer(study: Study, answer: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {name: answer[name] for name in ("layout", "status", "reason", "binds")}
    row["notes"] = "; ".join(answer["notes"]) or None
    if study.find:
        row |= {name: answer[name] for name in _SEARCH_COLUMNS}
    if study.slo:
        row |= {"meets_slo": answer["meets_slo"], "rho": answer["rho"]}
        if not study.find:
            row["fails"] = answer["fails"]
    summary = {
        name: math.inf if name == "request_rate" and value == "inf" else value
        for name, value in answer["summary"].items()
        if not isinstance(value, list | dict) and name not in _LEFT_OUT
    }
    if utilization := answer["summary"].get("stage_utilization"):
        summary["max_stage_utilization"] = max(utilization)
    row |= answer["plan"]
    return row | summary


def make_table(study: Study, answers: Answers) -> pd.DataFrame:
    """Return the rows as a data frame; mappings and lists among the swept values are JSON text."""
    import pandas as pd

    rows = make_rows(study, answers)
    first = [*study.swept, "layout", "status", "reason", "binds", "notes"]
    # A point that did not start has fewer columns: the whole are those of the fullest row.
    names = dict.fromkeys(first + [name for row in sorted(rows, key=len, reverse=True) for name in row])
    return pd.DataFrame({name: _column([row.get(name) for row in rows]) for name in names})


def _column(values: Sequence[Any]) -> Any:
    """Return the values as one typed column."""
    import pandas as pd

    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pd.array(values, dtype="boolean")
    if kinds == {int}:
        return pd.array(values, dtype="Int64")
    if kinds and kinds <= {int, float}:
        return pd.Series([math.nan if value is None else float(value) for value in values], dtype="float64")
    texts = [value if value is None or isinstance(value, str) else plain_text(value) for value in values]
    return pd.Series(texts, dtype="str")


def plain_text(value: Any) -> str:
    """A value as the table shows it.

    >>> plain_text({"tensor_parallel_size": 4}), plain_text(True), plain_text("fp8")
    ('{"tensor_parallel_size": 4}', 'true', 'fp8')
    """
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
