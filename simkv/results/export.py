"""The result folder: written whole or not at all, the same bytes for the same run, read with plain errors.

::

    scenario.yaml                     the resolved scenario
    requests|steps|stages|itls|waits|bubbles.parquet
    summary.json                      the metrics
    ledger.json                       the memory ledger, if there is one
    format.json                       what makes the folder a result folder, and its version
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simkv.errors import ResultsError
from simkv.results.log import ITL_COLUMNS, STAGE_COLUMNS, STEP_COLUMNS, WAIT_COLUMNS

if TYPE_CHECKING:
    import pandas as pd

FORMAT_VERSION = 2
_REQUIRED_COLUMNS: dict[str, tuple[str, ...]] = {
    "requests": ("request_id", "outcome", "ttft_ms", "tpot_ms", "e2el_ms"),
    "steps": (*STEP_COLUMNS, "kv_cache_usage_perc"),
    "stages": STAGE_COLUMNS,
    "itls": ITL_COLUMNS,
    "waits": WAIT_COLUMNS,
    "bubbles": ("replica", "stage", "state", "cause", "duration_ns", "seconds", "share"),
}


@dataclass(frozen=True)
class StoredRun:
    """What a result folder holds."""

    scenario: dict[str, Any]
    summary: dict[str, Any]
    tables: dict[str, pd.DataFrame]
    ledger: dict[str, Any] | None


def write_folder(folder: Path, run: StoredRun, overwrite: bool = False) -> Path:
    """Write a result folder and return its path; raise ResultsError if it exists or cannot be written.

    All is written beside the folder first and renamed at the end. `overwrite` replaces an existing folder,
    but only one that is a result folder.
    """
    folder = folder.resolve()
    unfinished = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    check_target(folder, overwrite)
    try:
        unfinished.mkdir(parents=True)
        try:
            _write_files(unfinished, run)
            _move_into_place(unfinished, folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        raise _unwritable(folder, error.strerror or str(error)) from None
    return folder


def _unwritable(folder: Path, reason: str) -> ResultsError:
    return ResultsError(f"{folder}: wanted a folder that can be written, got: {reason}; use another -o")


def check_target(folder: Path, overwrite: bool = False) -> None:
    """Raise ResultsError if a result folder cannot be written there: worth asking before a long run too."""
    parent = next(path for path in folder.absolute().parents if os.path.exists(path))
    if not parent.is_dir():
        raise _unwritable(folder, os.strerror(errno.ENOTDIR))
    if not os.access(parent, os.W_OK | os.X_OK):
        raise _unwritable(folder, os.strerror(errno.EACCES))
    if not folder.exists():
        return
    if not overwrite:
        raise ResultsError(
            f"{folder}: wanted a folder that does not exist yet, got one that does; "
            "use --force to replace it or another -o"
        )
    if not (folder / "format.json").is_file():
        raise ResultsError(
            f"{folder}: wanted a simkv result folder to replace, got something else; "
            "remove it yourself or use another -o"
        )


def _write_files(folder: Path, run: StoredRun) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    import yaml

    from simkv import __version__

    scenario = yaml.safe_dump(run.scenario, sort_keys=False, allow_unicode=True)
    (folder / "scenario.yaml").write_text(scenario, encoding="utf-8")
    for name, table in run.tables.items():
        pq.write_table(pa.Table.from_pandas(table, preserve_index=False), folder / f"{name}.parquet")
    _write_json(folder / "summary.json", run.summary)
    if run.ledger is not None:
        _write_json(folder / "ledger.json", run.ledger)
    _write_json(folder / "format.json", {"simkv_results": FORMAT_VERSION, "simkv_version": __version__})


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(
        json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def _move_into_place(unfinished: Path, folder: Path) -> None:
    """Rename; a folder that is in the way is set aside first and comes back if the renaming fails."""
    if not folder.exists():
        unfinished.rename(folder)
        return
    replaced = unfinished.with_name(f"{unfinished.name}.old")
    folder.rename(replaced)
    try:
        unfinished.rename(folder)
    except OSError:
        replaced.rename(folder)
        raise
    shutil.rmtree(replaced, ignore_errors=True)


def read_folder(folder: Path) -> StoredRun:
    """Read a result folder; raise ResultsError, one line for the first fault, if it is not whole."""
    if not folder.is_dir():
        got = "a file" if folder.exists() else "nothing there"
        raise ResultsError(f"{folder}: wanted a simkv result folder, got {got}; give the -o of a `simkv run`")
    _check_format(folder / "format.json")
    ledger_path = folder / "ledger.json"
    run = StoredRun(
        scenario=_read(folder / "scenario.yaml", "a YAML mapping", _parse_yaml),
        summary=_read(folder / "summary.json", "a JSON object", json.loads),
        tables={
            name: _read_table(folder / f"{name}.parquet", _REQUIRED_COLUMNS[name])
            for name in _REQUIRED_COLUMNS
        },
        ledger=_read(ledger_path, "a JSON object", json.loads) if ledger_path.exists() else None,
    )
    _check_stages(folder / "stages.parquet", run)
    return run


def _check_stages(path: Path, run: StoredRun) -> None:
    """Raise ResultsError unless every batch is on every stage: what reads the table counts on that."""
    num_steps, num_stages = len(run.tables["steps"]), run.summary.get("num_stages")
    if not isinstance(num_stages, int) or num_stages < 1:
        got = "none" if num_stages is None else repr(num_stages)
        raise _fault(path.with_name("summary.json"), "num_stages of 1 or more", got)
    num_rows = len(run.tables["stages"])
    if num_rows != num_steps * num_stages:
        wanted = f"{num_steps * num_stages:,} rows, one a stage for each row of steps.parquet"
        raise _fault(path, wanted, f"{num_rows:,}")


def _check_format(path: Path) -> None:
    if not path.is_file():
        raise ResultsError(
            f"{path}: wanted a simkv result folder, got one without this file; give the -o of a `simkv run`"
        )
    mark = _read(path, "a JSON object", json.loads)
    if mark.get("simkv_results") != FORMAT_VERSION:
        raise ResultsError(
            f"{path}: wanted simkv_results {FORMAT_VERSION}, got {mark.get('simkv_results')!r}, written by "
            f"simkv {mark.get('simkv_version', 'unknown')}; use that version or run the scenario again"
        )


def _parse_yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _read(path: Path, wanted: str, parse: Callable[[str], Any]) -> dict[str, Any]:
    """Read a mapping from a text file."""
    try:
        content = parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _fault(path, wanted, "no such file") from None
    except OSError as error:
        raise _fault(path, wanted, f"{error.strerror or error}") from None
    except ValueError as error:  # also of json and of UTF-8
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise _fault(path, wanted, f"a file that cannot be parsed{where}") from None
    if not isinstance(content, dict):
        raise _fault(path, wanted, f"a {type(content).__name__}")
    return content


def _read_table(path: Path, required: tuple[str, ...]) -> pd.DataFrame:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        frame: pd.DataFrame = pq.read_table(path).to_pandas()
    except FileNotFoundError:
        raise _fault(path, "a Parquet table", "no such file") from None
    except (OSError, pa.ArrowException):
        raise _fault(path, "a Parquet table", "a truncated or damaged file") from None
    missing = [name for name in required if name not in frame.columns]
    if missing:
        raise _fault(path, f"a table with the column {missing[0]}", "one without it")
    return frame


def _fault(path: Path, wanted: str, got: str) -> ResultsError:
    return ResultsError(f"{path}: wanted {wanted}, got {got}; run the scenario again")
