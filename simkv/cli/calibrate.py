"""``simkv calibrate``."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simkv.cli.options import check_new_file, write_text
from simkv.errors import InputError

if TYPE_CHECKING:
    from simkv.calibrate.measurements import Measurements
    from simkv.calibrate.report import ErrorTable

_OTHER = "--force to replace it or another --output"


def calibrate(
    system: Annotated[
        str, typer.Option("--system", help="The hardware profile that was measured, such as h100_sxm.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Calibration to write, a .yaml file.")],
    source: Annotated[
        str | None, typer.Option("--source", help="Public tables: aiconfigurator, or layers.", metavar="NAME")
    ] = None,
    measurements: Annotated[
        list[Path] | None,
        typer.Option(
            "--measurements",
            help="A table of simkv collect (Parquet or CSV), a profile of Vidur, output of nccl-tests; repeatable.",
            metavar="FILE",
        ),
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="The engine of the public tables.")] = "vllm",
    version: Annotated[
        str | None, typer.Option("--version", help="Its version; default: 0.24.0, of layers 0.19.")
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option("--root", help="Folder of an unpacked aiconfigurator_core, or of per-layer profiles."),
    ] = None,
    plots: Annotated[
        bool, typer.Option("--plots/--no-plots", help="Draw measured against predicted, a PNG a group.")
    ] = True,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
) -> None:
    """Fit kernels to measurements; write parameters, the points behind them, and held-out errors."""
    from simkv.calibrate.layer_profile import calibrate_any
    from simkv.calibrate.tables import write_measurements
    from simkv.load.calibration import calibration_text
    from simkv.load.hardware import find_hardware

    if output.suffix != ".yaml":
        raise InputError(f"--output: wanted a file that ends in .yaml, got {output}")
    points, errors = output.with_suffix(".parquet"), output.with_suffix(".errors.csv")
    if points.absolute() in [file.absolute() for file in measurements or ()]:
        raise InputError(f"--output: {points} beside it would replace the measurements; name another")
    for file in (output, points, errors) if not force else ():
        check_new_file(file, _OTHER)
    if (source is None) == (not measurements):
        raise InputError("--source, --measurements: wanted one of the two")
    hardware = find_hardware(system, with_calibration=False)
    table, said = _read(source, measurements, system, engine, version, root)
    found = calibrate_any(hardware, table, said, date.today().isoformat())
    for note in found.notes:
        print(note, file=sys.stderr)
    comment = f"Written by simkv calibrate from {said}; used by a hardware profile as 'calibration:'."
    text = calibration_text(found.spec.replace(points=points.name), comment)
    write_measurements(found.points, points)
    write_text(output, text, _OTHER, overwrite=force)
    write_text(errors, found.errors.frame().to_csv(index=False), _OTHER, overwrite=force)
    print(found.errors.to_text())
    drawn = _draw(found.errors, output, found.spec.title) if plots else []
    pictures = f", {len(drawn)} plots beside it" if drawn else ""
    print(f"{output}: {len(found.spec.families)} families; points in {points}, errors in {errors}{pictures}")


def _read(
    source: str | None,
    measurements: list[Path] | None,
    system: str,
    engine: str,
    version: str | None,
    root: Path | None,
) -> tuple[Measurements, str]:
    """Return the table that was asked for, and what it is."""
    from simkv.calibrate.readers.aiconfigurator import find_root, source_of
    from simkv.calibrate.readers.layers import SOURCE, read_profiles
    from simkv.calibrate.readers.recognise import read_all
    from simkv.calibrate.readers.silicon import read_silicon

    if measurements:
        return read_all(measurements, system), ", ".join(file.name for file in measurements)
    if source not in ("aiconfigurator", "layers"):
        raise InputError(f"--source: wanted aiconfigurator or layers, got {source!r}")
    if source == "layers":
        version = version or "0.19"
        if root is None:
            raise InputError("--root: wanted the folder of the per-layer profiles")
        return read_profiles(root, system, engine, version), f"{SOURCE}, {system} {engine} {version}"
    version = version or "0.24.0"
    said = f"{source_of(root or find_root(), system)} {system} {engine} {version}"
    return read_silicon(system, version, engine, root).joined(), said


def _draw(errors: ErrorTable, output: Path, title: str) -> list[Path]:
    from simkv.plots.calibration import save_kernel_errors

    groups = [(name, errors.size_of(name), frame) for name, frame in errors.points.items()]
    return save_kernel_errors(groups, output, title)
