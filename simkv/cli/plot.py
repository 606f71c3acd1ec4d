"""``simkv plot``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def plot(
    folder: Annotated[Path, typer.Argument(help="A result folder, or that of a sweep.", metavar="FOLDER")],
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            help="latency, timeline, breakdown, overview, ledger, bubbles or gantt; "
            "of a sweep frontier, curve, heatmap or bubbles.",
        ),
    ] = None,
    x: Annotated[
        list[str] | None, typer.Option("--x", help="Sweep: field or metric along the horizontal axis.")
    ] = None,
    y: Annotated[
        list[str] | None, typer.Option("--y", help="Sweep: metric, of a heatmap field, along the other.")
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", help="Sweep: field that tells lines, or bars of bubbles, apart."),
    ] = None,
    value: Annotated[list[str] | None, typer.Option("--value", help="Sweep, heatmap: metric.")] = None,
    first_step: Annotated[
        int | None, typer.Option("--first-step", help="Gantt: the first batch drawn.", metavar="N")
    ] = None,
    num_steps: Annotated[
        int | None, typer.Option("--num-steps", help="Gantt: how many batches at most.", metavar="N")
    ] = None,
    replica: Annotated[
        int | None, typer.Option("--replica", help="Gantt: whose batches.", metavar="N")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Picture file (.png, .svg, .pdf).")
    ] = None,
) -> None:
    """Draw a result folder or a sweep without simulating again."""
    from simkv.plots.draw import draw

    options = {"x": x or [], "y": y or [], "by": by or [], "value": value or []}
    batches = {"first_step": first_step, "num_steps": num_steps, "replica": replica}
    for path in draw(folder, kind, output, options, batches):
        print(path)
