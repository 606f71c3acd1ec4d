"""A sweep from end to end: what is asked, the points left to do, the table of all answers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from simkv import __version__
from simkv.errors import ScenarioError
from simkv.load.faults import faults_of
from simkv.spec.scenario import Scenario
from simkv.spec.sweep import GOODPUT, FindSpec, SweepSpec
from simkv.sweeping.answer import Task, answer
from simkv.sweeping.executor import Executor, executor_for
from simkv.sweeping.fields import is_int_field
from simkv.sweeping.folder import SweepFolder
from simkv.sweeping.grid import Grid, grid_of
from simkv.sweeping.points import Point, Source, make_points, source_of
from simkv.sweeping.question import parse_find, with_limits

if TYPE_CHECKING:
    import pandas as pd

Answers = dict[str, dict[str, Any]]
Progress = Callable[[int, int], None]  # points done, all points


@dataclass(frozen=True)
class Study:
    """A sweep that is ready to run; `swept` are the fields with more than one value."""

    name: str
    grid: Grid
    points: tuple[Point, ...]
    base_dir: Path | None
    find: FindSpec | None
    slo: dict[str, float]

    @property
    def swept(self) -> list[str]:
        """The fields that differ between points."""
        return [field for field, values in self.grid.items() if len(values) > 1]

    @property
    def question(self) -> dict[str, Any]:
        """What the sweep asks, as plain data: two sweeps with the same question have the same answers."""
        keys = "".join(point.key or "-" for point in self.points)
        return {
            "simkv_version": __version__,
            **_asked(self.find, self.slo),
            "grid": {field: [_text(value) for value in values] for field, values in self.grid.items()},
            "points": hashlib.sha256(keys.encode()).hexdigest()[:24],
        }


def prepare(
    scenario: Scenario | str | Path,
    grid: Mapping[str, Any] | None = None,
    find: str | Mapping[str, Any] | None = None,
    slo: Mapping[str, float] | None = None,
) -> Study:
    """Return the sweep of a scenario (or a file, or a shipped name), its own ``sweep:`` section included.

    What is given here adds to the section's grid and limits, field by field, and replaces its search. Raises
    ScenarioError with one line for each fault.
    """
    source = source_of(scenario)
    spec = _section(source)
    own = _own_grid(spec, source)
    whole = own | grid_of(grid or {}, "--set: ")
    if find is not None:
        spec = spec.replace(find=parse_find(find))
    if slo:
        spec = with_limits(spec, slo)
    points = make_points(source, whole, _asked(spec.find, spec.slo))
    study = Study(_name(points), whole, tuple(points), source.base_dir, spec.find, spec.slo)
    _check(study)
    return study


def run_study(
    study: Study,
    folder: SweepFolder | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Answers:
    """Work out every point that is not done yet and return all answers by key.

    With a folder an answer is on the disk as soon as it is there. Ctrl-C raises KeyboardInterrupt; what was
    done until then is in the folder.
    """
    answers = folder.answers() if folder else {}
    tasks = {
        point.key: Task(point.key, point.scenario, study.base_dir, study.find, study.slo)
        for point in study.points
        if point.key and point.scenario
    }
    left = [task for key, task in tasks.items() if key not in answers]
    report = progress or (lambda num_done, num_points: None)
    report(len(tasks) - len(left), len(tasks))
    if left:
        for key, found in (executor or executor_for())(answer, left):
            answers[key] = found
            if folder:
                folder.add(key, found)
            report(sum(key in answers for key in tasks), len(tasks))
    return answers


def sweep(
    scenario: Scenario | str | Path,
    grid: Mapping[str, Any] | None = None,
    *,
    find: str | Mapping[str, Any] | None = None,
    slo: Mapping[str, float] | None = None,
    jobs: int | None = None,
    folder: str | Path | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Run a scenario with every combination of some fields' values; return one row a combination.

    grid      values by field, such as ``{"parallel.tensor_parallel_size": [1, 2, 4]}``
    find      ``"max workload.request_rate"``: at each point the largest (``min``: smallest) value of a number
              within the limits; or ``{"max": field, "low": …, "high": …}``
    slo       limits, such as ``{"ttft_p99_ms": 3000, "goodput": 0.95}``
    jobs      points worked on at a time; one a CPU unless given
    folder    where answers are kept as they come; the same call continues there after an interruption
    executor  instead of processes on this machine, see `simkv.sweeping.executor`
    progress  called with (points done, points)

    Raises ScenarioError for a faulty question and ResultsError for the folder of another sweep; a point that
    cannot work is a row that says why.
    """
    from simkv.sweeping.table import make_table

    study = prepare(scenario, grid, find, slo)
    kept = SweepFolder(Path(folder), study.question) if folder is not None else None
    answers: Answers = {}
    try:
        answers = run_study(study, kept, executor or executor_for(jobs), progress)
    finally:
        table = make_table(study, kept.answers() if kept else answers)
        if kept:
            kept.write_table(table)
    return table


def _section(source: Source) -> SweepSpec:
    try:
        return SweepSpec.model_validate({} if source.section is None else source.section)
    except ValidationError as error:
        where = source.document.where if source.document else lambda _: "sweep"
        raise ScenarioError(faults_of(error, SweepSpec, ("sweep",), where)) from None


def _own_grid(spec: SweepSpec, source: Source) -> Grid:
    place = source.document.where(("sweep", "grid")) if source.document else "scenario"
    return grid_of(spec.grid, f"{place}: sweep.grid.")


def _asked(find: FindSpec | None, slo: Mapping[str, float]) -> dict[str, Any]:
    return {"find": find.model_dump(exclude_none=True) if find else None, "slo": dict(slo)}


def _name(points: Sequence[Point]) -> str:
    return next(point.scenario.name for point in points if point.scenario)


def _text(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _check(study: Study) -> None:
    """Faults of the question as a whole, which no point can mend."""
    faults: list[str] = []
    find, workloads = study.find, [p.scenario.workload for p in study.points if p.scenario]
    if find is not None:
        try:
            is_int_field(find.field)
        except ScenarioError as error:
            faults += [f"find: {fault}" for fault in error.faults]
        if not study.slo:
            faults.append("find: wanted limits to find it within, such as --slo ttft_p99_ms=3000, got none")
        if len(study.grid.get(find.field, ())) > 1:
            faults.append(f"find: {find.field} is swept as well; give it one value, or search for another")
        if find.field == "workload.request_rate" and any(w and w.arrival == "inf" for w in workloads):
            faults.append("find: workload.request_rate has no effect with arrival: inf; remove arrival")
    if GOODPUT in study.slo:
        slos = [point.scenario.slo for point in study.points if point.scenario]
        if any(not slo.model_dump(exclude_none=True) for slo in slos):
            faults.append(
                "slo: goodput: wanted limits in the scenario's slo (ttft_ms, tpot_ms, e2el_ms), got none"
            )
    if faults:
        raise ScenarioError(faults)
