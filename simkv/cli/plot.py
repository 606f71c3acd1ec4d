"""``simkv plot``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


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
