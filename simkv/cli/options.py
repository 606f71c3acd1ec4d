"""Arguments and options that several commands share, and what they mean together."""

from __future__ import annotations

import errno
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from simkv.errors import InputError

if TYPE_CHECKING:
    from simkv.load.vllm_cli import Commands
    from simkv.spec.scenario import Scenario

ScenarioFile = Annotated[
    str, typer.Argument(help="Scenario file, or the name of a shipped one.", metavar="FILE")
]
MaybeScenarioFile = Annotated[
    str | None,
    typer.Argument(
        help="Scenario file, or the name of a shipped one; --vllm may stand for it.", metavar="FILE"
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a field, such as engine.block_size=32.", metavar="FIELD=VALUE"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
ServeCommand = Annotated[
    str | None,
    typer.Option("--vllm", help="The server's command line: 'vllm serve MODEL …'.", metavar="COMMAND"),
]
BenchCommand = Annotated[
    str | None,
    typer.Option("--bench", help="The clients': 'vllm bench serve …'.", metavar="COMMAND"),
]
Hardware = Annotated[
    str | None, typer.Option("--hardware", help="The GPUs, such as h100_sxm_x8.", metavar="NAME")
]
SaveTo = Annotated[
    Path | None, typer.Option("--save", help="Write the scenario to a new file.", metavar="FILE")
]


class Asked(NamedTuple):
    """The scenario that a command line means, and the folder in which it looks up traces."""

    scenario: Scenario
    base_dir: Path


def read_scenario(
    file: str | None,
    overrides: list[str] | None,
    serve: str | None = None,
    bench: str | None = None,
    hardware: str | None = None,
    save: Path | None = None,
) -> Asked:
    """Load what was asked, say what of it was ignored, and save it if that was asked too."""
    from simkv.load.scenario import load_scenario

    path, commands = read_question(file, serve, bench, hardware)
    scenario = load_scenario(path, overrides or (), commands)
    base_dir = Path() if path is None else path.parent
    save_scenario(scenario, save, base_dir)
    return Asked(scenario, base_dir)


def read_question(
    file: str | None, serve: str | None, bench: str | None, hardware: str | None, needs_model: bool = True
) -> tuple[Path | None, Commands]:
    """Return the scenario's file and what command lines say; say what of them was ignored."""
    from simkv.load.scenario import find_scenario
    from simkv.load.vllm_cli import read_commands

    if file is None and serve is None and needs_model:
        raise typer.BadParameter("missing; wanted a scenario or --vllm", param_hint="FILE")
    commands = read_commands(serve, bench, hardware)
    path = None if file is None else find_scenario(file)
    for note in commands.notes():
        print(f"ignored: {note}", file=sys.stderr)
    return path, commands


def save_scenario(scenario: Scenario, save: Path | None, base_dir: Path) -> None:
    """Write a scenario to a new file, if one was named."""
    if save is not None:
        from simkv.load.saved import scenario_text

        write_text(save, scenario_text(scenario, save, base_dir), "another --save")


def check_new_file(file: Path, remedy: str) -> None:
    """Raise InputError if there is something already."""
    if os.path.lexists(file):
        raise InputError(f"{file}: wanted a file that does not exist yet, got one that does; use {remedy}")


def check_output_files(files: Mapping[str, Path | None], force: bool, folder: Path | None = None) -> None:
    """Raise InputError for files that cannot be written, or are one and the same: worth asking before a run.

    files    by option; ``--force`` replaces all but ``--save``
    folder   the result folder, which will be there when they are written
    """
    own_folder = None if folder is None else os.path.realpath(folder)
    named = {own_folder: "-o"}
    for option, file in files.items():
        if file is None:
            continue
        whole = os.path.realpath(file)
        if whole in named:
            raise InputError(f"{option}: wanted a file of its own, got that of {named[whole]}, {file}")
        named[whole] = option
        if option == "--save":
            check_new_file(file, "another --save")
        elif not force:
            check_new_file(file, f"--force to replace it or another {option}")
        if os.path.isdir(file):
            raise InputError(f"{file}: cannot be written: {os.strerror(errno.EISDIR)}")
        parent = file.absolute().parent
        if not os.path.isdir(parent) and (option == "--save" or os.path.realpath(parent) != own_folder):
            missing = errno.ENOTDIR if os.path.exists(parent) else errno.ENOENT
            raise InputError(f"{file}: cannot be written: {os.strerror(missing)}")


def write_text(file: Path, text: str, remedy: str, overwrite: bool = False) -> None:
    """Write a file whole or not at all; raise InputError if it exists and may not be replaced."""
    if not overwrite:
        check_new_file(file, remedy)
    unfinished = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        try:
            unfinished.write_text(text, encoding="utf-8")
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{file}: cannot be written: {error.strerror or error}") from None
