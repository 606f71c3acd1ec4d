"""``simkv validate kernels``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from simkv.cli.options import AsJson

System = Annotated[str, typer.Option("--system", help="A hardware profile, such as h100_sxm.")]
Engine = Annotated[
    str | None,
    typer.Option("--engine", help="The engine whose kernels were measured; default: as shipped, vllm."),
]
Version = Annotated[
    str | None, typer.Option("--version", help="Its version; default: that of the shipped calibration.")
]
Root = Annotated[
    Path | None,
    typer.Option("--root", help="Folder of an unpacked aiconfigurator_core; default: as installed."),
]
Transfer = Annotated[
    str | None,
    typer.Option(
        "--calibration",
        help="Fit nothing: how far is this calibration (a shipped one or a .yaml file) from that version?",
        metavar="NAME",
    ),
]


def validate_kernels(
    system: System,
    engine: Engine = None,
    version: Version = None,
    calibration: Transfer = None,
    root: Root = None,
    points: Annotated[bool, typer.Option("--points", help="List every point that was compared.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare calibrated kernels with measured points that were held out of the fit."""
    from simkv.validate.kernels import compare_kernels, transfer_kernels

    if calibration is None:
        errors = compare_kernels(system, engine, version, root)
    else:
        errors = transfer_kernels(calibration, system, engine, version, root)
    print(json.dumps(errors.as_dict(points), indent=2) if as_json else errors.to_text(points))
