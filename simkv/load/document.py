"""YAML with line numbers: nodes instead of values, so that every fault can name its line.

Scalars follow YAML 1.2's core schema (``no`` is text, ``1e9`` a number). Duplicate keys, tags, runaway
aliases and anything that is not text are refused.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from simkv.errors import ScenarioError

KeyPath = tuple[str | int, ...]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_VALUES = 100_000  # what aliases may unfold to; a scenario has a hundred
_MAX_DEPTH = 40
_INT = re.compile(r"[-+]?[0-9]+(_[0-9]+)*")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SCALAR_TAGS = ("str", "int", "float", "bool", "null", "timestamp", "merge", "value")
_QUOTING_STYLES = ("'", '"', "|", ">")
_CONSTANTS: dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    ".inf": math.inf, ".Inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan, ".NaN": math.nan,
}  # fmt: skip


@dataclass
class Document:
    """A YAML file: its value, and the line of each key path in it."""

    source: str
    value: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def where(self, path: KeyPath) -> str:
        """Return ``source:line`` of a key path, or of the closest enclosing one."""
        for length in range(len(path), -1, -1):
            line = self.lines.get(path[:length])
            if line is not None:
                return f"{self.source}:{line}"
        return self.source


def read_document(path: Path) -> Document:
    """Read a YAML file; raise ScenarioError if it is missing, not text, not YAML, or empty."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ScenarioError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise ScenarioError(f"{path}: wanted a file, got a folder") from None
    except UnicodeDecodeError as error:
        raise ScenarioError(
            f"{path}: wanted text in UTF-8, got byte 0x{error.object[error.start]:02x} at offset {error.start}"
        ) from None
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_document(text, str(path))


def parse_document(text: str, source: str) -> Document:
    """Parse YAML text; raise ScenarioError with every structural fault (duplicate keys, tags, …)."""
    document = Document(source)
    try:
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        hint = "; indent with spaces, not tabs" if "\\t" in str(error.problem) else ""
        raise ScenarioError(f"{source}{line}: not YAML: {error.problem}{hint}") from None
    except yaml.YAMLError as error:
        raise ScenarioError(f"{source}: not YAML: {' '.join(str(error).split())}") from None
    if node is None:
        raise ScenarioError(f"{source}: the file is empty")
    try:
        document.value = _Reader(document).read(node, ())
    except (_TooManyValuesError, RecursionError):
        raise ScenarioError(f"{source}: its aliases unfold to more than {_MAX_VALUES} values") from None
    if document.faults:
        raise ScenarioError(document.faults)
    return document


def parse_scalar(text: str) -> Any:
    """Return the value of a plain scalar under YAML 1.2's core schema.

    >>> parse_scalar("1e9"), parse_scalar("0.5"), parse_scalar("no"), parse_scalar("8192")
    (1000000000.0, 0.5, 'no', 8192)
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) <= 40:  # longer digits are no number that anything here can use
        if _INT.fullmatch(text):
            return int(text.replace("_", ""))
        if _FLOAT.fullmatch(text):
            return float(text)
    return text


class _TooManyValuesError(Exception):
    """Aliases of aliases."""


class _Reader:
    """Turns nodes into values and notes lines."""

    def __init__(self, document: Document):
        self.document = document
        self.num_values = 0

    def read(self, node: yaml.Node, path: KeyPath) -> Any:
        self.num_values += 1
        if self.num_values > _MAX_VALUES or len(path) > _MAX_DEPTH:
            raise _TooManyValuesError
        line = node.start_mark.line + 1
        self.document.lines.setdefault(path, line)
        if isinstance(node, yaml.ScalarNode):
            if node.tag.removeprefix("tag:yaml.org,2002:") not in _SCALAR_TAGS:
                self._fault(path, f"tags are not allowed, got {node.tag}")
            return node.value if node.style in _QUOTING_STYLES else parse_scalar(node.value)
        if isinstance(node, yaml.SequenceNode):
            if node.tag != "tag:yaml.org,2002:seq":
                self._fault(path, f"tags are not allowed, got {node.tag}")
            return [self.read(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._read_mapping(node, path)

    def _read_mapping(self, node: yaml.Node, path: KeyPath) -> dict[str, Any]:
        if node.tag != "tag:yaml.org,2002:map":
            self._fault(path, f"tags are not allowed, got {node.tag}")
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.document.faults.append(
                    f"{self.document.source}:{line}: wanted a name as key, got a collection"
                )
                continue
            key = key_node.value
            key_path = (*path, key)
            if key in mapping:
                dotted = ".".join(map(str, key_path))
                first = self.document.lines[key_path]
                self.document.faults.append(
                    f"{self.document.source}:{line}: {dotted}: duplicate key, first on line {first}; remove one"
                )
                continue
            self.document.lines[key_path] = line
            mapping[key] = self.read(value_node, key_path)
        return mapping

    def _fault(self, path: KeyPath, text: str) -> None:
        dotted = ".".join(map(str, path))
        self.document.faults.append(f"{self.document.where(path)}: {dotted + ': ' if dotted else ''}{text}")
