"""``simkv validate kernels``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from simkv.cli.options import AsJson

System = Annotated[str, typer.Option("--system", help="A system of the tables, such as h100_sxm.")]
Engine = Annotated[str, typer.Option("--engine", help="The engine whose kernels were measured.")]
Version = Annotated[str, typer.Option("--version", help="Its version.")]
Root = Annotated[
    Path | None,
    typer.Option("--root", help="Folder of an unpacked aiconfigurator_core; default: as installed."),
]


def validate_kernels(
    system: System,
    engine: Engine = "vllm",
    version: Version = "0.24.0",
    root: Root = None,
    points: Annotated[bool, typer.Option("--points", help="List every held-out point.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare calibrated kernels with measured points that were held out of the fit."""
    from simkv.validate.kernels import compare_kernels

    errors = compare_kernels(system, engine, version, root)
    print(json.dumps(errors.as_dict(points), indent=2) if as_json else errors.to_text(points))
