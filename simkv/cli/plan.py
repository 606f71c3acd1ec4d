"""``simkv plan``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simkv.cli.options import (
    AsJson,
    BenchCommand,
    Hardware,
    MaybeScenarioFile,
    Overrides,
    SaveTo,
    ServeCommand,
    read_question,
    read_scenario,
    save_scenario,
)
from simkv.errors import InputError

if TYPE_CHECKING:
    from simkv.planning import Plan


def plan(
    file: MaybeScenarioFile = None,
    overrides: Overrides = None,
    vllm: ServeCommand = None,
    bench: BenchCommand = None,
    hardware: Hardware = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            help="A table over values of a field: engine.gpu_memory_utilization=0.80:0.96:0.02.",
            metavar="FIELD=VALUES",
        ),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option("--check", help="Compare with a vLLM start-up log, which fills in what you leave out."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the ledger (.png, .svg, .pdf).", metavar="FILE")
    ] = None,
    balance: Annotated[
        bool, typer.Option("--balance", help="Which layers on which pipeline stage would be better.")
    ] = False,
    save: SaveTo = None,
    as_json: AsJson = False,
) -> None:
    """Answer from the memory ledger alone: does it fit, and how many requests?"""
    if vary and (check or plot or balance):
        raise typer.BadParameter(
            "stands alone; wanted no --check, --plot or --balance beside it", param_hint="--vary"
        )
    if vary:
        _vary(file, overrides or [], (vllm, bench, hardware), vary, save, as_json)
        return
    from simkv.planning import plan as make_plan

    if check is not None:
        answer, lines, checked = _check(file, overrides or [], (vllm, bench, hardware), check, save)
    else:
        scenario, base_dir = read_scenario(file, overrides, vllm, bench, hardware, save)
        answer, lines, checked = make_plan(scenario, base_dir), [], {}
    if balance:
        from simkv.planning.balance import balance as weigh
        from simkv.planning.balance_table import format_balance

        weighed = weigh(answer.scenario)
        lines, checked = [*lines, "", *format_balance(weighed)], checked | {"balance": weighed.as_dict()}
    if as_json:
        print(json.dumps(answer.as_dict() | checked, indent=2))
    else:
        print(answer)
        print(*lines, sep="\n", end="\n" if lines else "")
    if plot is not None:
        from simkv.plots.draw import draw_ledger

        draw_ledger(answer.as_dict(), plot)
    if not answer.fits:
        raise typer.Exit(2)


def _check(
    file: str | None,
    overrides: list[str],
    commands: tuple[str | None, str | None, str | None],
    check: Path,
    save: Path | None,
) -> tuple[Plan, list[str], dict[str, Any]]:
    """The plan of what a log ran, and the comparison as text and as data."""
    from simkv.load.scenario import load_scenario
    from simkv.load.startup_log import read_startup_log
    from simkv.load.startup_settings import GPU_MEMORY, fill_in
    from simkv.planning import plan as make_plan
    from simkv.planning.check import compare_startup, format_check, hardware_warnings

    log = read_startup_log(check)
    names_model = ("model",) in log.settings or any(text.startswith("model=") for text in overrides)
    if file is None and commands[0] is None and not names_model:
        raise InputError(f"{check}: names no model; wanted a scenario, --vllm or --set model=NAME beside it")
    path, said = read_question(file, *commands, needs_model=False)
    filled = fill_in(log, said, path, overrides)
    scenario = profiled = load_scenario(path, overrides, filled.commands)
    if GPU_MEMORY in filled.taken:  # the log's memory is taken; the profile's is what it may contradict
        profiled = load_scenario(path, overrides, filled.commands.without([GPU_MEMORY]))
    base_dir = Path() if path is None else path.parent
    save_scenario(scenario, save, base_dir)
    answer = make_plan(scenario, base_dir)
    terms = compare_startup(answer, log)
    warnings = [*log.warnings, *hardware_warnings(log, profiled.hardware)]
    lines = ["", *format_check(terms, log), *(f"Warning: {warning}." for warning in warnings)]
    lines += filled.notes(log, scenario)
    data = {
        "log": str(check),
        "terms": [term.as_dict() for term in terms],
        "taken": {".".join(path): stated.value for path, stated in filled.taken.items()},
        "warnings": warnings,
        "error": log.error or None,
    }
    return answer, lines, {"check": data}


def _vary(
    file: str | None,
    overrides: list[str],
    commands: tuple[str | None, str | None, str | None],
    vary: list[str],
    save: Path | None,
    as_json: bool,
) -> None:
    from simkv.errors import ScenarioError
    from simkv.load.scenario import load_scenario
    from simkv.planning import plan as make_plan
    from simkv.planning.vary import format_rows, vary_row
    from simkv.sweeping.grid import combinations, parse_settings

    try:
        grid = parse_settings(vary)
    except ScenarioError as error:
        raise ScenarioError([fault.replace("--set", "--vary", 1) for fault in error.faults]) from None
    path, said = read_question(file, *commands)
    base_dir = Path() if path is None else path.parent
    save_scenario(load_scenario(path, overrides, said), save, base_dir)
    rows = []
    for values in combinations(grid):
        settings = [f"{field}={json.dumps(value)}" for field, value in values.items()]
        try:
            rows.append(
                vary_row(values, make_plan(load_scenario(path, [*overrides, *settings], said), base_dir))
            )
        except ScenarioError as error:
            rows.append(
                vary_row(values, None, "; ".join(f.replace("--set", "--vary", 1) for f in error.faults))
            )
    if all(row["outcome"] == "invalid" for row in rows):
        raise ScenarioError(list(dict.fromkeys(row["reason"] for row in rows)))
    print(json.dumps({"rows": rows}, indent=2) if as_json else "\n".join(format_rows(list(grid), rows)))
    if not any(row["outcome"] == "started" for row in rows):
        raise typer.Exit(2)
