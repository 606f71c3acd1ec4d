"""One scenario, run once and judged: does it start, what holds it back, does it keep its limits?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simkv.errors import InfeasibleError, InputError
from simkv.planning import plan
from simkv.results.verdict import binds
from simkv.run import simulate
from simkv.spec.scenario import Scenario
from simkv.spec.sweep import GOODPUT

Slo = Mapping[str, float]
Capacity = dict[str, float]  # by workload: see `offered_load`


@dataclass(frozen=True)
class Trial:
    """What a scenario came to.

    status   ``done``; ``infeasible``: it would not start; ``refused``: vLLM or simkv refuses the scenario
    reason   why not, if not done
    misses   the limits that it does not meet, each with its number: ``"ttft_p99_ms 71,300 > 60,000"``
    rho      the offered load, see `offered_load`; None where it was not asked for or has no meaning
    """

    status: str
    reason: str | None = None
    binds: str | None = None
    plan: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    misses: tuple[str, ...] = ()
    rho: float | None = None

    @property
    def meets(self) -> bool:
        """True if it ran within every limit."""
        return self.status == "done" and not self.misses


def run_trial(scenario: Scenario, base_dir: Path | None, slo: Slo, capacity: Capacity | None = None) -> Trial:
    """Run a scenario and compare it with the limits; Ctrl-C raises KeyboardInterrupt.

    The offered load is asked for only where there are limits and they are met: it takes another run.
    """
    planned = None
    try:
        planned = plan(scenario, base_dir)
        planned.require()
        summary = _served(scenario, base_dir)
        misses = tuple(shortfalls(summary, slo))
        rho = None
        if slo and not misses:
            rho = offered_load(scenario, base_dir, {} if capacity is None else capacity)
            if rho is not None and rho >= 1:
                misses = (f"load {rho:.2f} of capacity, the queue does not drain",)
    except InfeasibleError as error:
        return Trial("infeasible", str(error), plan=planned.as_dict() if planned else {})
    except InputError as error:
        return Trial("refused", "; ".join(error.faults), plan=planned.as_dict() if planned else {})
    answer = planned.as_dict()
    return Trial("done", None, binds(summary, answer), answer, summary, misses, rho)


def _served(scenario: Scenario, base_dir: Path | None) -> dict[str, Any]:
    summary = simulate(scenario, base_dir=base_dir).summary
    if not summary["is_complete"]:  # a run ends early only by Ctrl-C; half a point is none
        raise KeyboardInterrupt
    return summary


def offered_load(scenario: Scenario, base_dir: Path | None, capacity: Capacity) -> float | None:
    """Return ρ, the request rate as a share of the rate at which the same requests are served at most.

    The latter is measured: the requests are sent all at once and the server is never short of work. From 1 on
    requests come faster than they are served and TTFT grows for as long as the run lasts. As the last requests
    of a run are served in small batches, ρ is rather too high, the more so the fewer requests there are.

    capacity   remembers the rates found, by the scenario without its request rate

    None if there is no rate: everything is sent at once, or a trace says when.
    """
    workload = scenario.workload
    if workload is None or workload.request_rate is None or workload.resolved_arrival == "inf":
        return None
    try:
        at_once = scenario.replace(workload={"arrival": "inf", "request_rate": None, "burstiness": 1.0})
    except ValidationError:  # a workload that cannot be sent at once
        return None
    key = at_once.model_dump_json()
    if key not in capacity:
        summary = _served(at_once, base_dir)
        num_requests, duration_s = summary["num_requests"], summary["duration"]
        capacity[key] = num_requests / duration_s if duration_s else 0.0
    return workload.request_rate / capacity[key] if capacity[key] else None


def shortfalls(summary: Mapping[str, Any], slo: Slo) -> list[str]:
    """Return each limit that a run does not meet, with what it reached."""
    if slo and not summary["completed"]:
        return ["no request was served"]
    reached = {name: metric(summary, name) for name in slo}
    return [
        f"{name} {_short(reached[name])} {'<' if name == GOODPUT else '>'} {_short(limit)}"
        for name, limit in slo.items()
        if (reached[name] < limit if name == GOODPUT else reached[name] > limit)
    ]


def metric(summary: Mapping[str, Any], name: str) -> float:
    """Return ``ttft_p99_ms`` and the like, or ``goodput``: the share of all requests within their limits."""
    if name == GOODPUT:
        num_good = summary["request_goodput"] * summary["duration"]
        return float(round(num_good) / max(summary["num_requests"], 1))
    latency, statistic, unit = name.split("_")
    return float(summary[f"{statistic}_{latency}_{unit}"])


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
