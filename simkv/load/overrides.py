"""Values that options say over those of a file, and who said what."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simkv.errors import ScenarioError
from simkv.load.document import Document, KeyPath, dotted, parse_document
from simkv.load.faults import shown
from simkv.spec.base import Spec

Where = Callable[[KeyPath], str]


def where_from(document: Document, said_by: Mapping[tuple[str, ...], str]) -> Where:
    """Return a function that says where a value is from: the option that said it, else file and line."""
    options: dict[KeyPath, str] = dict(said_by.items())

    def where(path: KeyPath) -> str:
        for length in range(len(path), 0, -1):
            if path[:length] in options:
                return options[path[:length]]
        made_by = [said for key, said in options.items() if key[: len(path)] == path]
        if made_by and path not in document.lines:  # a section that only options filled
            return made_by[-1].partition(":")[0]
        return document.where(path)

    return where


def parse_overrides(overrides: Sequence[str], faults: list[str]) -> dict[tuple[str, ...], Any]:
    """Return the values of ``--set`` by path, in the order given; of two for one path the later holds."""
    settings: dict[tuple[str, ...], Any] = {}
    for override in overrides:
        field, equals, text = override.partition("=")
        path = tuple(key.strip() for key in field.split("."))
        if not equals or not all(path):
            faults.append(f"--set: wanted field=value, such as engine.block_size=32, got {shown(override)}")
            continue
        value = None
        if text.strip() and not text.lstrip().startswith("#"):
            try:
                value = parse_document(text, "--set").value
            except ScenarioError as error:
                faults += [re.sub("^--set(:[0-9]+)?", f"--set: {dotted(path)}", f) for f in error.faults]
                continue
        settings.pop(path, None)
        settings[path] = value
    return settings


def set_at(raw: dict[str, Any], path: tuple[str, ...], value: Any, faulty: object) -> str | None:
    """Put a value at a path; parts that are specs or missing become mappings on the way. Return the fault.

    `faulty` stands for a part whose fault has been reported: what belongs into it is dropped.
    """
    here: Any = raw
    for depth, key in enumerate(path[:-1], start=1):
        child = here.get(key)
        if isinstance(child, Spec):
            child = child.fields()
        if child is faulty:
            return None
        if child is None:
            child = {}
        if not isinstance(child, dict):
            return f"{dotted(path)}: {dotted(path[:depth])} is {shown(child)}, which has no fields"
        here[key] = child = dict(child)  # a copy: an alias may hold the same mapping elsewhere
        here = child
    here[path[-1]] = value
    return None
