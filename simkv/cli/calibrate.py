"""``simkv calibrate``."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from simkv.cli.options import check_new_file, write_text
from simkv.errors import InputError

_OTHER = "--force to replace it or another --output"


def calibrate(
    system: Annotated[
        str, typer.Option("--system", help="The hardware profile that was measured, such as h100_sxm.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Calibration to write, a .yaml file.")],
    source: Annotated[
        str | None, typer.Option("--source", help="Public tables: aiconfigurator.", metavar="NAME")
    ] = None,
    measurements: Annotated[
        Path | None,
        typer.Option("--measurements", help="A table of simkv collect (Parquet or CSV).", metavar="FILE"),
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="The engine of the public tables.")] = "vllm",
    version: Annotated[str, typer.Option("--version", help="Its version.")] = "0.24.0",
    root: Annotated[
        Path | None, typer.Option("--root", help="Folder of an unpacked aiconfigurator_core.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
) -> None:
    """Fit kernels to measurements; write parameters, the points behind them, and held-out errors."""
    from simkv.calibrate.measurements import read_measurements
    from simkv.calibrate.profile import calibrate as fit
    from simkv.calibrate.readers.aiconfigurator import SOURCE
    from simkv.calibrate.readers.silicon import read_silicon, split_tables
    from simkv.calibrate.tables import write_measurements
    from simkv.load.calibration import calibration_text
    from simkv.load.hardware import find_hardware

    if output.suffix != ".yaml":
        raise InputError(f"--output: wanted a file that ends in .yaml, got {output}")
    points, errors = output.with_suffix(".parquet"), output.with_suffix(".errors.csv")
    for file in (output, points, errors) if not force else ():
        check_new_file(file, _OTHER)
    if (source is None) == (measurements is None):
        raise InputError("--source, --measurements: wanted one of the two")
    if source not in (None, "aiconfigurator"):
        raise InputError(f"--source: wanted aiconfigurator, got {source!r}")
    hardware = find_hardware(system, with_calibration=False)
    if measurements is None:
        tables, said = read_silicon(system, version, engine, root), f"{SOURCE} {system} {engine} {version}"
    else:
        tables, said = split_tables(read_measurements(measurements)), measurements.name
    found = fit(hardware, tables, said, date.today().isoformat())
    for note in found.notes:
        print(note, file=sys.stderr)
    comment = f"Written by simkv calibrate from {said}; used by a hardware profile as 'calibration:'."
    text = calibration_text(found.spec.replace(points=points.name), comment)
    write_measurements(found.points, points)
    write_text(output, text, _OTHER, overwrite=force)
    write_text(errors, found.errors.frame().to_csv(index=False), _OTHER, overwrite=force)
    print(found.errors.to_text())
    print(f"{output}: {len(found.spec.families)} families; points in {points}, errors in {errors}")
