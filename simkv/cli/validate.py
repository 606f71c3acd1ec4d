"""``simkv validate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from simkv.cli.options import AsJson

validate_app = typer.Typer(no_args_is_help=True, help="Compare simkv with real data.")


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


@validate_app.command("memory")
def validate_memory(
    file: Annotated[Path, typer.Argument(help="Table of real start-ups (CSV).", metavar="FILE.csv")],
    as_json: AsJson = False,
) -> None:
    """Predict real start-ups from their configurations alone; print errors by row and by group."""
    from simkv.validate.memory import compare_startups, format_startups

    results, groups = compare_startups(file)
    if as_json:
        answer = {
            "rows": [result.as_dict() for result in results],
            "groups": [group.as_dict() for group in groups],
        }
        print(json.dumps(answer, indent=2))
    else:
        print("\n".join(format_startups(results, groups)))
