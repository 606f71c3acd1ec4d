"""The command line: parses, prints, sets the exit code, decides nothing.

Results go to stdout, progress and errors to stderr. Exit code 0: done; 1: a comparison found a difference;
2: the user can mend it; 130: stopped by Ctrl-C, with a partial result.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simkv.errors import InputError, SimkvError

if TYPE_CHECKING:
    from simkv.engine.simulation import Progress
    from simkv.results.results import Results

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Simulate multi-GPU long-context LLM serving with vLLM's semantics.",
)
validate_app = typer.Typer(no_args_is_help=True, help="Compare simkv with real data.")
app.add_typer(validate_app, name="validate")

ScenarioFile = Annotated[
    str, typer.Argument(help="Scenario file, or the name of a shipped one.", metavar="FILE")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a field, such as engine.block_size=32.", metavar="FIELD=VALUE"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


class Shipped(StrEnum):
    """What ``simkv list`` can list."""

    MODELS = "models"
    HARDWARE = "hardware"
    SCENARIOS = "scenarios"


def main() -> None:
    """Run the command line; errors that the user can mend become one line each and exit code 2."""
    faults: tuple[str, ...] = ()
    try:
        app()
    except InputError as error:
        faults = error.faults
    except SimkvError as error:
        faults = (str(error),)
    except OSError as error:  # a full disk, a name that is too long
        faults = (f"{error.filename or 'simkv'}: {error.strerror or error}",)
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    sys.exit(2)


@app.command()
def run(
    file: ScenarioFile,
    overrides: Overrides = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Result folder; default: results/NAME, or the next free."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing result folder.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Audit block and request conservation at every step.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Simulate a scenario: latency, throughput, and where the time goes."""
    from simkv.load.scenario import find_scenario, load_scenario
    from simkv.results.export import check_target
    from simkv.run import simulate

    path = find_scenario(file)
    scenario = load_scenario(path, overrides or ())
    folder = output or _next_free(Path("results") / scenario.name)
    check_target(folder, overwrite=force)
    with _progress() as progress:
        results = simulate(scenario, base_dir=path.parent, check=check, progress=progress)
    results.save(folder, overwrite=force)
    print(json.dumps(results.summary, indent=2) if as_json else _report(results))
    print(f"saved in {folder}; draw it with: simkv plot {folder}", file=sys.stderr)
    if not results.summary["is_complete"]:
        print("stopped early: the result holds what was served until then", file=sys.stderr)
        raise typer.Exit(130)


@app.command()
def plan(file: ScenarioFile, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Answer from the memory ledger alone: does it fit, and how many requests?"""
    from simkv.load.scenario import load_scenario
    from simkv.planning import plan as make_plan

    answer = make_plan(load_scenario(file, overrides or ()))
    print(json.dumps(answer.as_dict(), indent=2) if as_json else answer)
    if not answer.fits:
        raise typer.Exit(2)


@app.command()
def plot(
    result: Annotated[Path, typer.Argument(help="A result folder.", metavar="RESULT")],
    kind: Annotated[
        str | None, typer.Option("--kind", help="latency, timeline, breakdown or overview.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Picture file (.png, .svg, .pdf).")
    ] = None,
) -> None:
    """Draw a result folder without simulating again."""
    from simkv.plots.draw import draw
    from simkv.results.results import Results

    for path in draw(Results.load(result), result, kind, output):
        print(path)


@app.command("list")
def list_shipped(what: Annotated[Shipped, typer.Argument(help="models, hardware or scenarios")]) -> None:
    """Say what ships with simkv."""
    from simkv.load.catalog import describe_hardware, describe_models, describe_scenarios

    describe = {
        Shipped.MODELS: describe_models,
        Shipped.HARDWARE: describe_hardware,
        Shipped.SCENARIOS: describe_scenarios,
    }[what]
    for line in describe():
        print(line)


@validate_app.command("scheduler")
def validate_scheduler(
    files: Annotated[list[Path], typer.Argument(help="Recordings of a real scheduler.", metavar="FILE...")],
    as_json: AsJson = False,
) -> None:
    """Replay recordings of a real vLLM scheduler and compare every field of every step."""
    from simkv.validate.recordings import compare_recording

    comparisons = [(path, compare_recording(path)) for path in files]
    passed = all(comparison.is_equal for _, comparison in comparisons)
    if as_json:
        rows = [
            {
                "file": str(path),
                "equal": comparison.is_equal,
                "steps": comparison.num_steps,
                "first_difference": None if comparison.is_equal else str(comparison.first_difference),
            }
            for path, comparison in comparisons
        ]
        print(json.dumps({"files": rows, "passed": passed}, indent=2))
    else:
        for path, comparison in comparisons:
            verdict = "equal" if comparison.is_equal else f"differs at {comparison.first_difference}"
            print(f"{path}: {comparison.num_steps} steps, {verdict}")
    if not passed:
        raise typer.Exit(1)


def _report(results: Results) -> str:
    from simkv.results.table import format_bench_table, format_breakdown, format_stages

    summary = results.summary
    parts = [
        format_bench_table(summary),
        format_ledger(results),
        format_breakdown(summary),
        format_stages(summary),
    ]
    return "\n\n".join(part.strip("\n") for part in parts)


def format_ledger(results: Results) -> str:
    """Return the memory ledger of a result as text."""
    from simkv.planning import format_ledger as lines_of

    return "\n".join(lines_of(results.ledger)) if results.ledger else ""


def _next_free(folder: Path) -> Path:
    """A new run never overwrites an old one: quickstart, quickstart-2, quickstart-3, …"""
    candidate, number = folder, 2
    while candidate.exists():
        candidate = folder.with_name(f"{folder.name}-{number}")
        number += 1
    return candidate


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show requests done on stderr: a bar on a terminal, a line every tenth elsewhere."""
    if not sys.stderr.isatty():
        yield _LineProgress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[clock]}"),
    )
    with Bar(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, clock="")

        def show(num_done: int, num_requests: int, now_ns: int) -> None:
            bar.update(task, completed=num_done, total=num_requests, clock=f"{now_ns / 1e9:,.0f} s simulated")

        yield show


class _LineProgress:
    def __init__(self) -> None:
        self._next_tenth = 1

    def __call__(self, num_done: int, num_requests: int, now_ns: int) -> None:
        if num_done * 10 >= self._next_tenth * num_requests:
            self._next_tenth = num_done * 10 // num_requests + 1
            print(f"{num_done} of {num_requests} requests, {now_ns / 1e9:,.1f} s simulated", file=sys.stderr)
