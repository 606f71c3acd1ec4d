"""What is asked at one point of the grid, and its answer: plain data, the same wherever it is worked out."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from simkv.errors import ScenarioError, SimkvError
from simkv.spec.checks import layout
from simkv.spec.scenario import Scenario
from simkv.spec.sweep import FindSpec
from simkv.sweeping.fields import is_int_field, value_of, with_value
from simkv.sweeping.find import Found, Range, find_limit
from simkv.sweeping.trial import Capacity, Trial, offered_load, run_trial

PLAN_FIGURES = ("num_gpu_blocks", "kv_tokens", "max_concurrency")
NEAR_ONE = 0.1  # |1 − ρ| below which a run of finite length says little about TTFT


@dataclass(frozen=True)
class Task:
    """A scenario, and what is asked of it: to run it, or to find a limit."""

    key: str
    scenario: Scenario
    base_dir: Path | None = None
    find: FindSpec | None = None
    slo: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What a point came to; a row of the table.

    For `status`, `reason`, `binds`, `summary` and `rho` see `Trial`; with a search they are those of the value
    found.

    plan        the memory plan in a few numbers
    meets_slo   None without limits
    found       the value found; None if there is none
    fails_at    the nearest value tried that does not meet the limits
    fails       the limits that it does not meet
    num_runs    values tried
    notes       what a reader should know before he relies on the numbers
    """

    status: str
    reason: str | None = None
    layout: str | None = None
    binds: str | None = None
    plan: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    rho: float | None = None
    meets_slo: bool | None = None
    found: float | None = None
    fails_at: float | None = None
    fails: str | None = None
    num_runs: int = 1
    notes: tuple[str, ...] = ()


def answer(task: Task) -> tuple[str, dict[str, Any]]:
    """Work a task out; return its key and its answer as plain data."""
    found = _run(task) if task.find is None else _search(task, task.find)
    return task.key, asdict(found)


def _run(task: Task) -> Answer:
    trial = run_trial(task.scenario, task.base_dir, task.slo)
    return _answer(
        task,
        trial,
        meets_slo=trial.meets if task.slo and trial.status == "done" else None,
        fails=_fails(trial),
        notes=_notes(trial),
    )


def _search(task: Task, find: FindSpec) -> Answer:
    capacity: Capacity = {}
    trials: dict[float, Trial] = {}

    def meets(value: float) -> bool:
        try:
            scenario = with_value(task.scenario, find.field, value)
        except ScenarioError as error:
            trials[value] = Trial("refused", "; ".join(error.faults))
        else:
            trials[value] = run_trial(scenario, task.base_dir, task.slo, capacity)
        return trials[value].meets

    values = _range(task, find, capacity)
    found = find_limit(meets, values, is_max=find.is_max, tolerance=find.tolerance)
    if found.value is None:
        return _nothing_found(task, find, trials)
    failed = trials.get(found.fails_at) if found.fails_at is not None else None
    notes = _notes(trials[found.value])
    if found.fails_at is None:
        notes += (f"{found.value:g} is the {_end(find)} tried and meets every limit",)
    return _answer(
        task,
        trials[found.value],
        meets_slo=True,
        found=found.value,
        fails_at=found.fails_at,
        fails=_fails(failed) if failed else _ceiling(found),
        num_runs=found.num_runs,
        notes=notes,
    )


def _range(task: Task, find: FindSpec, capacity: Capacity) -> Range:
    """Where to look: a request rate from half of what the server can do, all else from what it is."""
    is_int, own = is_int_field(find.field), value_of(task.scenario, find.field)
    ceiling, start, high, workload = None, find.start, find.high, task.scenario.workload
    if find.field == "workload.request_rate" and find.is_max:
        try:
            rated = with_value(task.scenario, find.field, own or 1.0)
            rho = offered_load(rated, task.base_dir, capacity)
        except SimkvError:  # what is wrong with the scenario comes out when it is tried
            rho = None
        if rho:
            ceiling = (own or 1.0) / rho
            start = start or ceiling / 2
    elif find.field == "workload.max_concurrency" and workload is not None:
        high = high or workload.resolved_num_prompts  # more are never on their way
    start = start or own or find.low or (None if find.is_max else high) or 1.0
    return Range(start, find.low, high, ceiling, is_int)


def _nothing_found(task: Task, find: FindSpec, trials: dict[float, Trial]) -> Answer:
    """No value will do: say why not, by the easiest one that was tried."""
    easiest = min(trials) if find.is_max else max(trials)
    done = [value for value, trial in trials.items() if trial.status == "done"]
    if done:
        easiest = min(done) if find.is_max else max(done)
    trial = trials[easiest]
    if trial.status != "done":
        return _answer(task, trial, num_runs=len(trials))
    reason = f"no value found: at {easiest:g} {_fails(trial)}"
    return _answer(
        task,
        Trial("done", reason, trial.binds, trial.plan),
        meets_slo=False,
        fails_at=easiest,
        fails=_fails(trial),
        num_runs=len(trials),
    )


def _answer(task: Task, trial: Trial, **more: Any) -> Answer:
    return Answer(
        trial.status,
        trial.reason,
        layout(task.scenario),
        trial.binds,
        _figures(task.scenario, trial.plan),
        trial.summary,
        trial.rho,
        **more,
    )


def _figures(scenario: Scenario, plan: dict[str, Any]) -> dict[str, Any]:
    """The plan in a few numbers; `users_that_fit` have max_model_len tokens each, in all replicas."""
    if not plan:
        return {}
    users = min(int(plan["max_concurrency"]), plan["max_num_seqs"]) * scenario.parallel.data_parallel_size
    return {name: plan[name] for name in PLAN_FIGURES} | {"users_that_fit": users}


def _fails(trial: Trial) -> str | None:
    return ", ".join(trial.misses) or trial.reason


def _ceiling(found: Found) -> str | None:
    return None if found.fails_at is None else "load 1.00 of capacity, the queue does not drain"


def _end(find: FindSpec) -> str:
    return "largest" if find.is_max else "smallest"


def _notes(trial: Trial) -> tuple[str, ...]:
    notes = list(trial.plan.get("warnings", ()))
    if trial.rho is not None and abs(1 - trial.rho) < NEAR_ONE:
        notes.append(f"load {trial.rho:.2f} of capacity: so near 1, TTFT depends on how long the run is")
    if rejected := trial.summary.get("rejected"):
        notes.append(
            f"{rejected} of {trial.summary['num_requests']} requests rejected: longer than max_model_len"
        )
    return tuple(notes)
