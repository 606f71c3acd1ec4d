"""YAML with line numbers: nodes instead of values, so that every fault can name its line.

Scalars follow YAML 1.2's core schema (``no`` is text, ``1e9`` a number). Duplicate keys, tags, merge keys,
runaway aliases and anything that is not text are refused.
"""

from __future__ import annotations

import codecs
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import Reader as YamlReader

from simkv.errors import ScenarioError

KeyPath = tuple[str | int, ...]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_BYTES = 2**20  # a profile has 8 KB; a device or a pipe may never end
_MAX_VALUES = 100_000  # what aliases may unfold to; a scenario has a hundred
_MAX_DEPTH = 40
_MAX_INT_DIGITS = 40  # more become a float, as in most YAML readers; no count here needs them
_MAX_NUMBER_LENGTH = 400  # longer digits are text
_INT = re.compile(r"[-+]?[0-9]+(_[0-9]+)*")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_YAML_TAG = "tag:yaml.org,2002:"
_TAGS: dict[type, tuple[str, ...]] = {
    yaml.ScalarNode: ("str", "int", "float", "bool", "null", "timestamp", "merge", "value"),
    yaml.SequenceNode: ("seq",),
    yaml.MappingNode: ("map",),
}
_QUOTING_STYLES = ("'", '"', "|", ">")
_PLAIN_KEY = re.compile(r"[^\s.'\"]+")
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # that of UTF-32 begins as the first
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


def dotted(path: KeyPath) -> str:
    """Return a key path as a message shows it; keys that would be misread are quoted.

    >>> dotted(("engine", "block_size")), dotted(("engine.block_size", 0, ""))
    ('engine.block_size', "'engine.block_size'.0.''")
    """
    keys = map(str, path)
    return ".".join(key if _PLAIN_KEY.fullmatch(key) and key.isprintable() else repr(key) for key in keys)


def read_document(path: Path) -> Document:
    """Read a YAML file; raise ScenarioError if it is missing, not text, not YAML, or empty."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except FileNotFoundError:
        raise ScenarioError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise ScenarioError(f"{path}: wanted a file, got a folder") from None
    except UnicodeDecodeError as error:
        got = f"byte 0x{raw[error.start]:02x} at offset {error.start}"
        if raw.startswith(_WIDE_MARKS):
            got = "UTF-16 or UTF-32; save the file as UTF-8"
        raise ScenarioError(f"{path}: wanted text in UTF-8, got {got}") from None
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # a null byte in the path
        raise ScenarioError(f"{str(path)!r}: cannot be read: {error}") from None
    if len(raw) > _MAX_BYTES:
        raise ScenarioError(f"{path}: wanted a file of at most {_MAX_BYTES:,} bytes, got more")
    return parse_document(text, str(path))


def parse_document(text: str, source: str) -> Document:
    """Parse YAML text; raise ScenarioError with every structural fault (duplicate keys, tags, …)."""
    document = Document(source)
    node = _compose(text, source)
    if node is None:
        raise ScenarioError(f"{source}: the file is empty")
    document.value = _Reader(document).read(node, ())
    if document.faults:
        raise ScenarioError(document.faults)
    return document


def _compose(text: str, source: str) -> yaml.Node | None:
    if strange := YamlReader.NON_PRINTABLE.search(text):
        line = text.count("\n", 0, strange.start()) + 1
        raise ScenarioError(f"{source}:{line}: wanted text, got the control character {strange[0]!r}")
    try:
        return yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        if error.problem_mark is None:
            raise ScenarioError(f"{source}: not YAML: {error.problem}") from None
        line, column = error.problem_mark.line, error.problem_mark.column
        problem = str(error.problem)
        here = dict(enumerate(text.splitlines())).get(line, "")
        if "\t" in here[: len(here) - len(here.lstrip())]:
            problem = "a tab; indent with spaces"
        elif "cannot start any token" in problem:
            problem = f"a value cannot begin with {here[column : column + 1]!r}; put it in quotes"
        elif "another document" in problem:
            problem = "wanted one document, got another"
        raise ScenarioError(f"{source}:{line + 1}: not YAML: {problem}") from None
    except (yaml.YAMLError, RecursionError) as error:
        problem = "too deeply nested" if isinstance(error, RecursionError) else " ".join(str(error).split())
        raise ScenarioError(f"{source}: not YAML: {problem}") from None


def parse_scalar(text: str) -> Any:
    """Return the value of a plain scalar under YAML 1.2's core schema.

    >>> parse_scalar("1e9"), parse_scalar("0.5"), parse_scalar("no"), parse_scalar("8192")
    (1000000000.0, 0.5, 'no', 8192)
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) <= _MAX_INT_DIGITS and _INT.fullmatch(text):
        return int(text.replace("_", ""))
    if len(text) <= _MAX_NUMBER_LENGTH and _FLOAT.fullmatch(text):
        return float(text)
    return text


class _Reader:
    """Turns nodes into values and notes lines."""

    def __init__(self, document: Document):
        self.document = document
        self.num_values = 0

    def read(self, node: yaml.Node, path: KeyPath) -> Any:
        line = node.start_mark.line + 1
        self.num_values += 1
        if self.num_values > _MAX_VALUES:
            raise ScenarioError(
                f"{self.document.source}:{line}: wanted at most {_MAX_VALUES:,} values, aliases unfolded, got more"
            )
        if len(path) > _MAX_DEPTH:
            raise ScenarioError(
                f"{self.document.source}:{line}: wanted at most {_MAX_DEPTH} levels of nesting, got more "
                "(or an alias inside itself)"
            )
        self.document.lines.setdefault(path, line)
        self._check_tag(node, path)
        if isinstance(node, yaml.ScalarNode):
            return node.value if node.style in _QUOTING_STYLES else parse_scalar(node.value)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._read_mapping(node, path)

    def _read_mapping(self, node: yaml.Node, path: KeyPath) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._fault(line, path, "wanted a name as key, got a collection")
                continue
            key = key_node.value
            key_path = (*path, key)
            if key in mapping:
                first = self.document.lines[key_path]
                self._fault(line, key_path, f"duplicate key, first on line {first}; remove one")
                continue
            if key == "<<" and key_node.style not in _QUOTING_STYLES:
                self._fault(line, key_path, "merge keys are not allowed; write the fields out")
                continue
            self.document.lines[key_path] = line
            self._check_tag(key_node, key_path)
            mapping[key] = self.read(value_node, key_path)
        return mapping

    def _check_tag(self, node: yaml.Node, path: KeyPath) -> None:
        """Report a tag, but for those that YAML itself gives to untagged values."""
        name = node.tag.removeprefix(_YAML_TAG)
        if name not in _TAGS[type(node)]:
            tag = node.tag if name == node.tag else f"!!{name}"
            self._fault(self.document.lines[path], path, f"tags are not allowed, got {tag}")

    def _fault(self, line: int, path: KeyPath, text: str) -> None:
        place = f"{self.document.source}:{line}"
        self.document.faults.append(f"{place}: {dotted(path)}: {text}" if path else f"{place}: {text}")
