"""Any file of measurements: what it is says its ending or its columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simkv.calibrate.measurements import Measurements, read_measurements
from simkv.calibrate.readers.nccl_tests import read_nccl_tests
from simkv.calibrate.readers.vidur import read_vidur
from simkv.calibrate.readers.vidur_compute import (
    ATTENTION_COLUMNS,
    MLP_COLUMNS,
    read_vidur_attention,
    read_vidur_mlp,
)
from simkv.errors import TraceError

if TYPE_CHECKING:
    import pandas as pd

_TABLES = (".parquet", ".csv")


def read_any(path: Path, device: str) -> Measurements:
    """Read one file: a table in the schema, a profile of Vidur (CSV), or what nccl-tests printed (other endings).

    `device` is what was measured, for formats that do not say so. Raises TraceError if it is none of these.
    """
    if path.suffix not in _TABLES:
        return read_nccl_tests(path, device=device)
    if path.suffix == ".csv":
        columns = _columns(path)
        if columns.issuperset(MLP_COLUMNS):
            return read_vidur_mlp(path, device)
        if columns.issuperset(ATTENTION_COLUMNS):
            return read_vidur_attention(path, device)
        if columns.issuperset(("collective", "num_workers")):
            return read_vidur(path, device)
    return read_measurements(path)


def read_all(paths: Sequence[Path], device: str) -> Measurements:
    """Read several files into one table; all faults of all files at once."""
    import pandas as pd

    tables: list[pd.DataFrame] = []
    faults: list[str] = []
    for path in paths:
        try:
            tables.append(read_any(path, device).frame)
        except TraceError as error:
            faults += error.faults
    if faults:
        raise TraceError(faults)
    if len(tables) == 1:
        return Measurements(tables[0])
    kept = [table.dropna(axis="columns", how="all") for table in tables]
    return Measurements(pd.concat(kept, ignore_index=True).reindex(columns=tables[0].columns))


def _columns(path: Path) -> set[str]:
    try:
        with path.open(encoding="utf-8") as file:
            return {name.strip().strip('"') for name in file.readline().split(",")}
    except (OSError, UnicodeError):
        return set()  # the reader of tables says what is wrong
