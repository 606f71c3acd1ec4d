"""From a grid to scenarios: each point is the scenario with one combination of values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from simkv import __version__
from simkv.errors import ScenarioError
from simkv.load.document import Document, read_document
from simkv.load.scenario import find_scenario, load_scenario, parse_scenario
from simkv.planning import require_simulated
from simkv.run import resolved_mapping
from simkv.spec.scenario import Scenario
from simkv.sweeping.grid import Grid, combinations

_MAX_FAULTS = 20


@dataclass(frozen=True)
class Source:
    """Where the scenarios of a sweep come from.

    build      makes a scenario, given overrides as after ``--set``
    section    what the file says under ``sweep:``, if anything
    document   the file, for the line of a fault
    base_dir   where a relative trace path is looked up first
    """

    build: Callable[[Sequence[str]], Scenario]
    section: Any = None
    document: Document | None = None
    base_dir: Path | None = None


def source_of(scenario: Scenario | str | Path) -> Source:
    """Return the source meant: a scenario, a path, or a shipped name."""
    if isinstance(scenario, Scenario):
        text = json.dumps(scenario.model_dump(mode="json", exclude_unset=True))
        section = None if scenario.sweep is None else scenario.sweep.model_dump(exclude_unset=True)
        return Source(partial(parse_scenario, text, source=scenario.name), section)
    path = find_scenario(scenario)
    document = read_document(path)
    section = document.value.get("sweep") if isinstance(document.value, dict) else None
    return Source(partial(load_scenario, path), section, document, path.parent)


@dataclass(frozen=True)
class Point:
    """One combination of values, and its scenario or why there is none.

    key   what its answer is filed under: equal for points that ask the same; None without a scenario
    """

    settings: dict[str, Any]
    scenario: Scenario | None
    refusal: str | None
    key: str | None


def make_points(source: Source, grid: Grid, asked: Any) -> list[Point]:
    """Return the points of a grid in order, the last field varying fastest.

    asked   what is asked of every point (limits, a search), as plain data: part of the key

    Raises ScenarioError if no point of the grid has a scenario, with the faults of all.
    """
    points: list[Point] = []
    faults: dict[str, None] = {}
    for settings in combinations(grid):
        try:
            scenario = source.build([_override(*setting) for setting in settings.items()])
            require_simulated(scenario)
        except ScenarioError as error:
            faults |= dict.fromkeys(error.faults)
            points.append(Point(settings, None, "; ".join(_without_place(error.faults)), None))
            continue
        scenario = scenario.replace(sweep=None)
        if scenario.workload is None:
            raise ScenarioError("workload: missing; 'simkv sweep' needs one")
        points.append(Point(settings, scenario, None, _key(scenario, source.base_dir, asked)))
    if all(point.scenario is None for point in points):
        raise ScenarioError(list(faults)[:_MAX_FAULTS])
    return points


def _override(field: str, value: Any) -> str:
    """As after ``--set``: JSON is YAML, too."""
    return f"{field}={json.dumps(value, ensure_ascii=False, default=_plain)}"


def _plain(value: Any) -> Any:
    """A number of numpy's as one of Python's; anything else as its text."""
    return value.item() if hasattr(value, "item") else str(value)


def _without_place(faults: Sequence[str]) -> list[str]:
    """In a table that shows the values, ``--set`` says nothing."""
    return [fault.removeprefix("--set: ") for fault in faults]


def _key(scenario: Scenario, base_dir: Path | None, asked: Any) -> str:
    workload = scenario.workload
    parts = [__version__, resolved_mapping(scenario), asked]
    if workload is not None and workload.dataset_path is not None:
        parts.append(_fingerprint(base_dir, workload.dataset_path))
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _fingerprint(base_dir: Path | None, dataset_path: str) -> str | None:
    """The contents of a trace: another file under the same name is another question."""
    for folder in (base_dir or Path(), Path()):
        path = folder / Path(dataset_path).expanduser()
        if path.is_file():
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
    return None
