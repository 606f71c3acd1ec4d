"""Command lines as people paste them: words, flags, values; every fault named, none of them the end."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from simkv.errors import did_you_mean
from simkv.load.faults import shown

FieldPath = tuple[str, ...]

NO_EFFECT = "no effect on the simulation"
NOT_SIMULATED = "not simulated"

_CONTINUED_LINE = re.compile(r"\\[ \t]*\r?\n")
_SHELL = re.compile(r"[|&;<>#]|[0-9]+[<>]")  # a word that begins so belongs to the shell, as all after it
_ENVIRONMENT = re.compile(r"(?:--env=|-e=?)?([A-Z_][A-Z0-9_]*)=(.*)", re.DOTALL)
_HUMAN_INT = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kKmMgGtT])")
_BOOLS = {"true": True, "false": False}


class WrongValueError(Exception):
    """A value that a flag does not take; says what was wanted."""


class Left(NamedTuple):
    """A value that becomes no field, and why; `resets`: what else has set the field does not count either."""

    why: str
    resets: bool = False


class Flag(NamedTuple):
    """What a flag takes and where its value goes.

    takes    ``switch`` (``--x``, ``--no-x``, ``--x=false``), ``one`` value, or ``many``
    path     the field it sets; None = it sets none
    parse    from the text to the value (of a list of texts where it takes many); None or `Left` sets nothing;
             raises WrongValueError
    wanted   how a message calls the value
    why      why it sets none
    """

    takes: str
    path: FieldPath | None = None
    parse: Callable[[Any], Any] = str
    wanted: str = "a value"
    why: str = ""


class Given(NamedTuple):
    """A flag of a command line, as it was called there, with its value."""

    name: str
    flag: Flag
    value: Any


class Ignored(NamedTuple):
    """Something of a command line that the simulation does not use, and why."""

    source: str
    name: str
    why: str


@dataclass
class Reading:
    """What one command line says, as far as it has been read.

    source     the option that it was given to, which faults begin with
    settings   values by the path of their field
    said_by    who said it: the option, and the flag
    """

    source: str
    settings: dict[FieldPath, Any] = field(default_factory=dict)
    said_by: dict[FieldPath, str] = field(default_factory=dict)
    ignored: list[Ignored] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def set(self, path: FieldPath, value: Any, name: str = "") -> None:
        """Note a field's value and the flag that said it."""
        self.settings[path] = value
        self.said_by[path] = f"{self.source}: {name}" if name else self.source

    def ignore(self, name: str, why: str) -> None:
        """Note that something is not used."""
        self.ignored.append(Ignored(self.source, name, why))

    def fault(self, text: str) -> None:
        """Note a fault."""
        self.faults.append(f"{self.source}: {text}")


def whole_number(text: str) -> int:
    """Return an integer as Python's own parser reads it."""
    try:
        return int(text)
    except ValueError:
        raise WrongValueError("a number") from None


def human_number(text: str) -> int:
    """Return an integer that may end in k, m, g, t (powers of 1,000) or K, M, G, T (of 1,024), as in vLLM.

    >>> human_number("32k"), human_number("32K"), human_number("25.6k"), human_number("8192")
    (32000, 32768, 25600, 8192)
    """
    match = _HUMAN_INT.fullmatch(text.strip())
    if match is None:
        return whole_number(text)
    number, suffix = match.groups()
    power = "kmgt".index(suffix.lower()) + 1
    if suffix.isupper() and "." in number:
        raise WrongValueError(f"a whole number before {suffix}, or {suffix.lower()}")
    try:
        return int(float(number) * 10.0 ** (3 * power)) if suffix.islower() else int(number) << (10 * power)
    except (OverflowError, ValueError):  # hundreds of digits
        raise WrongValueError("a number") from None


def decimal_number(text: str) -> float:
    """Return a number; what a field does not take (``nan``) is left to the field."""
    try:
        return float(text)
    except ValueError:
        raise WrongValueError("a number") from None


def split_words(text: str, reading: Reading) -> list[str]:
    """Return the words of a command line as a shell sees them; backslashes at line ends join lines."""
    joined = _CONTINUED_LINE.sub(" ", text).strip()
    try:
        return shlex.split(joined.removesuffix("\\"))
    except ValueError as error:
        reading.fault(f"wanted a command line, got one with {str(error).lower()}")
        return []


def beginning(words: Sequence[str]) -> str:
    """Return the first word, for a message; the others may hold what belongs into no log."""
    return shown(words[0] + (" …" if len(words) > 1 else "")) if words else "nothing"


def before_shell(words: Sequence[str]) -> list[str]:
    """Return the words up to a redirection, a pipe, another command or a comment."""
    end = next((index for index, word in enumerate(words) if _SHELL.match(word)), len(words))
    return list(words[:end])


def environment(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the ``NAME=value`` among the words before a program, also as ``docker run -e`` takes them."""
    for word in words:
        if match := _ENVIRONMENT.fullmatch(word):
            yield match[1], match[2]


def read_flags(
    words: Sequence[str], flags: Mapping[str, Flag], reading: Reading
) -> tuple[list[str], list[Given]]:
    """Return the words that belong to no flag, and the flags in order; faults go to `reading`."""
    alone: list[str] = []
    given: list[Given] = []
    left = list(reversed(words))
    while left:
        word = left.pop()
        if not _is_flag(word):
            alone.append(word)
            continue
        name, equals, text = word.partition("=")
        if name[:2] == "-O" and name[2:3].isalnum():  # -O3 is -O 3
            name, equals, text = "-O", "=", name[2:]
        found = _find(name, flags)
        if found is None:
            reading.fault(f"{name}: unknown flag{did_you_mean(spelt(name), flags)}")
            _take(left, "many")
            continue
        flag, is_negated = found
        texts = [text] if equals else _take(left, flag.takes)
        try:
            given.append(Given(name, flag, _value(flag, texts, is_negated)))
        except WrongValueError as error:
            got = shown(texts[0] if flag.takes == "one" else " ".join(texts)) if any(texts) else "nothing"
            reading.fault(f"{name}: wanted {error}, got {got}")
    return alone, given


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word[0] == "-" and not word[1].isdigit()


def spelt(name: str) -> str:
    """Return a flag's name with hyphens: vLLM takes underscores for them."""
    return name.replace("_", "-") if name.startswith("--") else name


def _find(name: str, flags: Mapping[str, Flag]) -> tuple[Flag, bool] | None:
    """The flag of this name, and whether it is a switch with ``--no-`` before it."""
    name = spelt(name)
    switched = "--" + name.removeprefix("--no-")
    if name not in flags and switched in flags and flags[switched].takes == "switch":
        return flags[switched], name != switched
    found = flags.get(name) or flags.get(name.partition(".")[0])  # a key of a JSON value
    return (found, False) if found else None


def _take(left: list[str], takes: str) -> list[str]:
    """Take a flag's values off the words that are left."""
    if takes == "switch":  # older versions took a value
        return [left.pop()] if left and left[-1].lower() in _BOOLS else []
    texts: list[str] = []
    while left and not _is_flag(left[-1]) and (takes == "many" or not texts):
        texts.append(left.pop())
    return texts


def _value(flag: Flag, texts: list[str], is_negated: bool) -> Any:
    if flag.takes == "switch":
        value = _BOOLS.get(texts[0].lower()) if texts else True
        if value is None:
            raise WrongValueError("true or false")
        return value != is_negated
    if flag.takes == "many":
        return flag.parse(texts)
    if not any(texts):
        raise WrongValueError(flag.wanted)
    return flag.parse(texts[0])
