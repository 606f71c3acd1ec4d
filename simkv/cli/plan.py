"""``simkv plan``."""

from __future__ import annotations

import json

import typer

from simkv.cli.options import (
    AsJson,
    BenchCommand,
    Hardware,
    MaybeScenarioFile,
    Overrides,
    SaveTo,
    ServeCommand,
    read_scenario,
)


def plan(
    file: MaybeScenarioFile = None,
    overrides: Overrides = None,
    vllm: ServeCommand = None,
    bench: BenchCommand = None,
    hardware: Hardware = None,
    save: SaveTo = None,
    as_json: AsJson = False,
) -> None:
    """Answer from the memory ledger alone: does it fit, and how many requests?"""
    from simkv.planning import plan as make_plan

    scenario, base_dir = read_scenario(file, overrides, vllm, bench, hardware, save)
    answer = make_plan(scenario, base_dir)
    print(json.dumps(answer.as_dict(), indent=2) if as_json else answer)
    if not answer.fits:
        raise typer.Exit(2)
