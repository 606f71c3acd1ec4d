"""The generated parts of docs/kernels: equations, parameters and errors, from where they are kept.

``python -m tests.calibrate.pages`` writes them anew. In a page these stand for themselves:

- a fence ```` ```text simkv.cost.kernels.gemm ````: the equations of that module's docstring
- ``Parameters of `gemm/bfloat16` (`gemm.GemmParameters`)``, then a table: a row a field, with the comment beside it
- a table whose head is a group or ``held out`` and names of calibrations: medians and ninetieth percentiles
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from functools import cache
from pathlib import Path

import pandas as pd

from simkv.load.calibration import find_calibration
from simkv.load.shipped import shipped_dir

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [*sorted((DOCS / "kernels").glob("*.md")), DOCS / "calibrate.md"]
_FENCE = re.compile(r"^```text (simkv[\w.]+)\n.*?^```$", re.MULTILINE | re.DOTALL)
_PARAMETERS = re.compile(
    r"^(Parameters of `([\w/]+)` \(`(\w+)\.(\w+)`\)(?:.+\n)+\n)\| parameter(.*)\n\|[-|]+\n(?:\|.*\n)*",
    re.MULTILINE,
)
_ERRORS = re.compile(r"^\| (held out|`[\w/]+`) \|((?: `\w+` \|)+)\n\|[-|]+\n((?:\|.*\n)*)", re.MULTILINE)


def written(text: str) -> str:
    """A page with its generated parts as they should be."""
    text = _FENCE.sub(lambda match: f"```text {match[1]}\n{equations(match[1])}```", text)
    text = _PARAMETERS.sub(lambda match: match[1] + _parameter_table(*match.group(2, 3, 4, 5)), text)
    return _ERRORS.sub(lambda match: _error_table(*match.groups()), text)


def equations(module: str) -> str:
    """The indented blocks of a module's docstring."""
    text = inspect.getdoc(importlib.import_module(module)) or ""
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", text + "\n", re.MULTILINE)
    return "\n\n".join(inspect.cleandoc(block) for block in blocks) + "\n"


@cache
def _calibration(name: str):
    return find_calibration(name, shipped_dir("kernels"))


@cache
def _errors(name: str):
    table = pd.read_csv(shipped_dir("kernels") / f"{name}.errors.csv")
    return {(row.group, row.range, row.metric): row for row in table.itertuples()}


def _table(rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(row)} |\n" for row in rows]
    return lines[0] + "|---" * len(rows[0]) + "|\n" + "".join(lines[1:])


def _parameter_table(family: str, module: str, name: str, head: str) -> str:
    systems = re.findall(r"`(\w+)`", head)
    rows = [["parameter", "meaning", *(f"`{system}`" for system in systems)]]
    for field, meaning in field_comments(module, name):
        values = [_shown(_calibration(system).families[family].parameters, field) for system in systems]
        rows.append([f"`{field}`", meaning or "of the form above", *values])
    return _table(rows)


def field_comments(module: str, name: str) -> list[tuple[str, str]]:
    """Fields of a form's dataclass with the comments beside them."""
    source = inspect.getsource(importlib.import_module(f"simkv.cost.kernels.{module}"))
    found = next(
        node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name
    )
    lines = source.splitlines()
    fields = [node for node in found.body if isinstance(node, ast.AnnAssign)]
    return [
        (node.target.id, lines[node.lineno - 1].partition("#")[2].strip())  # type: ignore[union-attr]
        for node in fields
    ]


def _shown(parameters: dict, field: str) -> str:
    value = parameters.get(field)
    if isinstance(value, dict):
        if any(isinstance(key, str) for key in value):
            return "a form of its own"
        return ", ".join(f"{key}: {_number(each)}" for key, each in value.items())
    return "–" if value is None else str(value).lower() if isinstance(value, bool) else _number(value)


def _number(value: float) -> str:
    return f"{value:.4g}"


def _error_table(group: str, head: str, body: str) -> str:
    systems = re.findall(r"`(\w+)`", head)
    rows = [[group, *(f"`{system}`" for system in systems)]]
    if group == "held out":
        labels = re.findall(r"^\| `([\w/]+)`", body, re.MULTILINE)
        rows += [[f"`{name}`", *(_cell(system, name, "all") for system in systems)] for name in labels]
    else:
        name = group.strip("`")
        ranges = {
            row.range: None for system in systems for row in _errors(system).values() if row.group == name
        }
        rows += [[span, *(_cell(system, name, span) for system in systems)] for span in ranges]
    return _table(rows)


def _cell(system: str, group: str, span: str) -> str:
    found = [_errors(system).get((group, span, metric)) for metric in ("physical", "residual")]
    if None in found:
        return "–"
    return " → ".join(f"{100 * row.median:.1f} / {100 * row.p90:.1f}" for row in found)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
