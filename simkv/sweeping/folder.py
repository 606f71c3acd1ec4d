"""The folder of a sweep: what is done is on the disk at once, so that a sweep can be stopped at any moment.

::

    sweep.json                      what is asked: the mark by which a sweep knows its folder again
    points/KEY.json                 the answer of a point, written as soon as it is there
    points.parquet, points.csv      all answers in a table, in the order of the grid

Every file is written under a temporary name and renamed, so that it is whole or not there.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simkv.errors import ResultsError

if TYPE_CHECKING:
    import pandas as pd

FORMAT_VERSION = 1
_TEMPORARY = ".unfinished-"


class SweepFolder:
    """Answers by key, in a folder that belongs to one sweep.

    question   what the sweep asks, as plain data; a folder of another question is refused with ResultsError
    overwrite  replace the folder of another sweep (never one that is not a sweep's)
    """

    def __init__(self, path: Path, question: dict[str, Any], overwrite: bool = False):
        self.path = path
        self._points = path / "points"
        mark = {"simkv_sweep": FORMAT_VERSION, **question}
        try:
            if path.exists():
                self._check(mark, overwrite)
            self._points.mkdir(parents=True, exist_ok=True)
            for left_over in (*path.glob(f"{_TEMPORARY}*"), *self._points.glob(f"{_TEMPORARY}*")):
                left_over.unlink()
            _write(path / "sweep.json", lambda file: file.write_text(_json(mark), encoding="utf-8"))
        except OSError as error:
            reason = error.strerror or str(error)
            raise ResultsError(
                f"{path}: wanted a folder that can be written, got: {reason}; use another -o"
            ) from None

    def _check(self, mark: dict[str, Any], overwrite: bool) -> None:
        if not self.path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        found = _read(self.path / "sweep.json")
        if found == mark:
            return
        if found is None or "simkv_sweep" not in found:
            if any(
                child.name != "points" and not child.name.startswith(_TEMPORARY)
                for child in self.path.iterdir()
            ):
                raise ResultsError(
                    f"{self.path}: wanted a new folder or that of a sweep, got something else; use another -o"
                )
        elif not overwrite:
            raise ResultsError(
                f"{self.path}: wanted the folder of this sweep, got that of another: {_difference(found, mark)}; "
                "use another -o, or --force to replace it"
            )
        shutil.rmtree(self._points, ignore_errors=True)
        for table in ("points.csv", "points.parquet", "sweep.json"):
            (self.path / table).unlink(missing_ok=True)

    def answers(self) -> dict[str, dict[str, Any]]:
        """Return the answers that are there, by key."""
        found = {path.stem: _read(path) for path in self._points.glob("*.json")}
        return {key: answer for key, answer in found.items() if answer is not None}

    def add(self, key: str, answer: dict[str, Any]) -> None:
        """Write the answer of a point."""
        text = _json(answer)
        _write(self._points / f"{key}.json", lambda file: file.write_text(text, encoding="utf-8"))

    def write_table(self, table: pd.DataFrame) -> None:
        """Write the table, for reading by people and by programs."""
        _write(
            self.path / "points.csv",
            lambda file: table.to_csv(file, index=False, lineterminator="\n"),
        )
        _write(self.path / "points.parquet", lambda file: table.to_parquet(file, index=False))


def _json(content: Any) -> str:
    return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _write(path: Path, write: Callable[[Path], Any]) -> None:
    unfinished = path.with_name(f"{_TEMPORARY}{secrets.token_hex(4)}-{path.name}")
    try:
        write(unfinished)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None if there is none, or none that can be read: it is then worked out again."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    for name, value in wanted.items():
        if found.get(name) != value:
            if name == "points":
                return "the scenario is another"
            return f"its {name} is {_short(found.get(name))}, not {_short(value)}"
    return "it asks for more"


def _short(value: Any) -> str:
    """A grid or limits as the command line says them, anything else as JSON; cut to half a line."""
    if isinstance(value, dict):
        words = (f"{key}={','.join(map(_word, _list(item)))}" for key, item in value.items())
        text = " ".join(words) or "none"
    else:
        text = "none" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "…"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
