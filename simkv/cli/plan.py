"""``simkv plan``."""

from __future__ import annotations

import json

import typer

from simkv.cli.options import AsJson, Overrides, ScenarioFile


def plan(file: ScenarioFile, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Answer from the memory ledger alone: does it fit, and how many requests?"""
    from simkv.load.scenario import load_scenario
    from simkv.planning import plan as make_plan

    answer = make_plan(load_scenario(file, overrides or ()))
    print(json.dumps(answer.as_dict(), indent=2) if as_json else answer)
    if not answer.fits:
        raise typer.Exit(2)
