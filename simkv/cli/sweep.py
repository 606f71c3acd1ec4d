"""``simkv sweep``."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simkv.cli.options import AsJson
from simkv.cli.progress import show_points

if TYPE_CHECKING:
    from simkv.sweeping.study import Study


def sweep(
    file: Annotated[str, typer.Argument(help="Scenario file, or the name of a shipped one.", metavar="FILE")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Values of a field: engine.block_size=16,32 or workload.request_rate=0.5:4:0.5.",
            metavar="FIELD=VALUES",
        ),
    ] = None,
    find: Annotated[
        str | None,
        typer.Option(
            "--find",
            help="At each point, find the largest (min: smallest) value within the limits: "
            "'max workload.request_rate', also with bounds: 'max workload.request_rate 0.1:10'.",
            metavar="'max FIELD'",
        ),
    ] = None,
    slo: Annotated[
        list[str] | None,
        typer.Option(
            "--slo", help="Limits: ttft_p99_ms=3000,tpot_mean_ms=50,goodput=0.95.", metavar="LIMITS"
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Points at a time; default: the number of CPUs.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Folder for the answers; default: results/NAME-sweep. Run again to continue.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the folder of another sweep.")] = False,
    sort: Annotated[
        str | None, typer.Option("--sort", help="Rank by a column, such as ttft_p99_ms.", metavar="COLUMN")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a scenario over a grid of values, and find how much each point serves within limits."""
    from simkv.sweeping.executor import executor_for
    from simkv.sweeping.folder import SweepFolder
    from simkv.sweeping.grid import parse_settings
    from simkv.sweeping.question import parse_limits
    from simkv.sweeping.study import prepare, run_study
    from simkv.sweeping.table import make_rows, make_table

    study = prepare(file, parse_settings(settings or ()), find, parse_limits(slo or ()))
    path = output or Path("results") / f"{study.name}-sweep"
    folder = SweepFolder(path, study.question, overwrite=force)
    is_complete = True
    try:
        with show_points() as progress:
            run_study(study, folder, executor_for(jobs), progress)
    except KeyboardInterrupt:
        is_complete = False
    answers = folder.answers()
    folder.write_table(make_table(study, answers))
    rows = make_rows(study, answers)
    is_complete = is_complete or len(rows) == len(study.points)
    _print(study, rows, sort, is_complete, as_json)
    print(f"saved in {path}", file=sys.stderr)
    if not is_complete:
        print(
            f"stopped early: {len(rows)} of {len(study.points)} points are done; "
            "the same command continues with the others",
            file=sys.stderr,
        )
        raise typer.Exit(130)
    if not any(row["status"] == "done" for row in rows):
        raise typer.Exit(2)


def _print(
    study: Study, rows: list[dict[str, Any]], sort: str | None, is_complete: bool, as_json: bool
) -> None:
    from simkv.sweeping.ranking import format_answer, ranked

    if not as_json:
        print(format_answer(study, rows, sort))
        return
    answer = {
        "name": study.name,
        "find": str(study.find) if study.find else None,
        "slo": study.slo,
        "is_complete": is_complete,
        "points": [
            {name: None if _is_infinite(value) else value for name, value in row.items()}
            for row in ranked(study, rows, sort)
        ],
    }
    print(json.dumps(answer, indent=2, ensure_ascii=False, allow_nan=False))


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
