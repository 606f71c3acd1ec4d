"""``simkv compare``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from simkv.cli.options import AsJson


def compare(
    a: Annotated[Path, typer.Argument(help="A result folder.", metavar="A")],
    b: Annotated[Path, typer.Argument(help="The one to judge against it.", metavar="B")],
    as_json: AsJson = False,
) -> None:
    """Put two result folders side by side: what was asked differently, what came of it."""
    from simkv.results.results import Results

    comparison = Results.load(a).compare(Results.load(b), names=(str(a), str(b)))
    print(json.dumps(comparison.as_dict(), indent=2, ensure_ascii=False) if as_json else comparison)
