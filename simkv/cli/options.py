"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

ScenarioFile = Annotated[
    str, typer.Argument(help="Scenario file, or the name of a shipped one.", metavar="FILE")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a field, such as engine.block_size=32.", metavar="FIELD=VALUE"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
