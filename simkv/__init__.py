"""simkv: a discrete-event simulator of multi-GPU long-context LLM serving, with vLLM's semantics.

>>> import simkv
>>> scenario = simkv.load_scenario("quickstart", overrides=["workload.num_prompts=5"])
>>> print(simkv.plan(scenario).fits, simkv.simulate(scenario).summary["completed"])
True 5

Everything is imported where it is first used, so that the command line starts quickly. A function and a
module never have the same name here: `plan` lives in ``simkv.planning``, as importing a module ``simkv.plan``
would hide the function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simkv import plots as plots
    from simkv.errors import InfeasibleError, InputError, ResultsError, ScenarioError, SimkvError, TraceError
    from simkv.load.scenario import load_scenario, parse_scenario
    from simkv.planning import Plan, plan
    from simkv.results.results import Results
    from simkv.run import simulate
    from simkv.spec.scenario import Scenario
    from simkv.sweeping.study import sweep

__version__ = "0.1.0"

__all__ = [
    "InfeasibleError", "InputError", "Plan", "Results", "ResultsError", "Scenario", "ScenarioError", "SimkvError",
    "TraceError", "load_scenario", "parse_scenario", "plan", "plots", "simulate", "sweep",
]  # fmt: skip

_HOMES = {
    "InfeasibleError": "simkv.errors",
    "InputError": "simkv.errors",
    "Plan": "simkv.planning",
    "Results": "simkv.results.results",
    "ResultsError": "simkv.errors",
    "Scenario": "simkv.spec.scenario",
    "ScenarioError": "simkv.errors",
    "SimkvError": "simkv.errors",
    "TraceError": "simkv.errors",
    "load_scenario": "simkv.load.scenario",
    "parse_scenario": "simkv.load.scenario",
    "plan": "simkv.planning",
    "simulate": "simkv.run",
    "sweep": "simkv.sweeping.study",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "plots":
        return import_module("simkv.plots")
    if name not in _HOMES:
        raise AttributeError(f"module 'simkv' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
