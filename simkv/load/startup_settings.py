"""A start-up log below what a user says: its options fill in those that nobody named."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from simkv.load.command_line import FieldPath
from simkv.load.document import dotted, read_document
from simkv.load.overrides import parse_overrides
from simkv.load.startup_log import StartupLog, Stated
from simkv.load.vllm_cli import Commands
from simkv.spec.scenario import Scenario
from simkv.units import GIB

GPU_MEMORY: FieldPath = ("hardware", "gpu", "memory_bytes")
_PLAIN = (1, False)  # sizes of 1 and switches that are off are not worth a word


@dataclass(frozen=True)
class FilledIn:
    """Command lines with a log's options below them, and which of these were taken and which were not."""

    commands: Commands
    taken: Mapping[FieldPath, Stated]
    kept: Mapping[FieldPath, Stated]

    def notes(self, log: StartupLog, scenario: Scenario) -> Iterator[str]:
        """Yield what was taken of the log, and what the user says against it."""
        taken = [_said(path, stated) for path, stated in self.taken.items() if stated.value not in _PLAIN]
        if taken:
            yield f"taken from {log.path}: {', '.join(taken)}"
        against = [
            _said(path, stated) for path, stated in self.kept.items() if _differs(scenario, path, stated)
        ]
        if against:
            yield f"not taken, as you say otherwise: {', '.join(against)}"


def fill_in(log: StartupLog, commands: Commands, file: Path | None, overrides: Collection[str]) -> FilledIn:
    """Put a log's options below those of a scenario file, of command lines and of ``--set``."""
    said = [*commands.settings, *parse_overrides(list(overrides), [])]
    if file is not None:
        said += _leaves(read_document(file).value)
    taken: dict[FieldPath, Stated] = {}
    kept: dict[FieldPath, Stated] = {}
    for path, stated in log.settings.items():
        is_said = any(other[: len(path)] == path for other in said)
        (kept if is_said else taken)[path] = stated
    settings = {path: stated.value for path, stated in taken.items()} | commands.settings
    said_by = {path: f"--check: {log.path}:{stated.line}" for path, stated in taken.items()}
    return FilledIn(replace(commands, settings=settings, said_by=said_by | commands.said_by), taken, kept)


def _leaves(value: Any, path: FieldPath = ()) -> Iterator[FieldPath]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(part, (*path, str(key)))
    else:
        yield path


def _said(path: FieldPath, stated: Stated) -> str:
    value = stated.value
    if path[-1] == "memory_bytes":
        value = f"{value['value'] / GIB:.2f} GiB"
    elif isinstance(value, dict):
        value = value.get("method", value)
    return f"{dotted(path)} {value}"


def _differs(scenario: Scenario, path: FieldPath, stated: Stated) -> bool:
    if path == ("model",):
        names = (scenario.model.name, str(stated.value))
        return len({name.rpartition("/")[2].lower() for name in names}) > 1
    section, name = path[0], path[-1]
    if section in ("engine", "parallel"):
        holder = scenario.resolved_engine if section == "engine" else scenario.parallel
        return bool(getattr(holder, name) != stated.value)
    return False
