"""The one table of measured kernels: what each column means, and what a row must have.

A row is one kernel at one shape on one device under one engine version; a column that an op does not have is
empty. `seconds` is the median of repeated measurements. Readers turn public formats into this table, the
collector writes it, fits read it.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simkv.errors import TraceError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

# op -> the shape columns that it needs, in the order in which a point is named (held-out split, reports)
SHAPE_COLUMNS: dict[str, tuple[str, ...]] = {
    "gemm": ("m", "n", "k"),
    "prefill_attention": ("batch", "chunk", "context", "heads", "kv_heads", "head_dim"),
    "decode_attention": ("batch", "context", "heads", "kv_heads", "head_dim"),
    # one call with chunks and decodes together, as in a chunked-prefill batch
    "mixed_attention": ("chunk", "context", "batch", "decode_context", "heads", "kv_heads", "head_dim"),
    # decodes of unequal contexts: `num_long` of `batch` are `skew` times longer than the rest
    "skewed_attention": ("batch", "context", "num_long", "skew", "heads", "kv_heads", "head_dim"),
    "elementwise": ("kernel", "tokens", "width"),
    "lm_head": ("tokens", "n", "k"),
    "sampler": ("tokens", "n"),
    "all_reduce": ("world_size", "num_bytes"),
    "all_gather": ("world_size", "num_bytes"),
    "reduce_scatter": ("world_size", "num_bytes"),
    "all_to_all": ("world_size", "num_bytes"),
    "send_recv": ("world_size", "num_bytes"),
}
# Variants of an op that are fitted apart: dtype, KV dtype, and the backend of a collective
VARIANT_COLUMNS = ("dtype", "kv_dtype", "backend")
PROVENANCE_COLUMNS = ("device", "engine", "engine_version", "source")
COLUMNS = (
    "op",
    *dict.fromkeys(column for columns in SHAPE_COLUMNS.values() for column in columns),
    *VARIANT_COLUMNS,
    "seconds",
    *PROVENANCE_COLUMNS,
)
BACKENDS = ("custom_graph", "custom_eager", "nccl")


@dataclass(frozen=True)
class Measurements:
    """A validated table; `frame` has all of `COLUMNS`."""

    frame: pd.DataFrame

    def of(self, op: str, **variant: str) -> pd.DataFrame:
        """Return the rows of one op and variant, with only the columns that they use."""
        frame = self.frame[self.frame["op"] == op]
        for column, value in variant.items():
            frame = frame[frame[column] == value]
        return frame[[*SHAPE_COLUMNS[op], *VARIANT_COLUMNS, "seconds", *PROVENANCE_COLUMNS]]


def held_out(frame: pd.DataFrame, op: str) -> pd.Series:
    """True for the points that no fit may see: CRC-32 of the shape, comma-joined, modulo 10, below 3."""
    return _drawn(frame, SHAPE_COLUMNS[op])


def held_out_weights(frame: pd.DataFrame) -> pd.Series:
    """True for the matrix products whose whole weight matrix no fit may see: the same rule over n and k."""
    return _drawn(frame, ("n", "k"))


def _drawn(frame: pd.DataFrame, columns: tuple[str, ...]) -> pd.Series:
    names = frame[columns[0]].map(_plain)
    for column in columns[1:]:
        names = names + "," + frame[column].map(_plain)
    return names.map(lambda name: zlib.crc32(name.encode()) % 10 < 3)


def _plain(value: object) -> str:
    """Shapes are integers but for a skew: 4096 and 4096.0 are one point."""
    if not isinstance(value, int | float | np.number):
        return str(value)
    return str(int(value)) if value == int(value) else f"{value:g}"


def validate(frame: pd.DataFrame, source: str) -> Measurements:
    """Check a table; raise TraceError with one line a fault (the first 20)."""
    faults = [
        f"{source}: unknown column {column!r}{did_you_mean(str(column), COLUMNS)}"
        for column in frame.columns
        if column not in COLUMNS
    ]
    faults += [
        f"{source}: column {column!r} is missing"
        for column in ("op", "seconds", "device")
        if column not in frame
    ]
    if faults:
        raise TraceError(faults)
    frame = frame.reindex(columns=list(COLUMNS))
    for op, rows in frame.groupby("op", dropna=False, sort=True):
        faults += _faults_of(str(op), rows, source)
    if faults:
        more = [f"{source}: and {len(faults) - 20} more faults"] if len(faults) > 20 else []
        raise TraceError(faults[:20] + more)
    return Measurements(frame)


def _faults_of(op: str, rows: pd.DataFrame, source: str) -> list[str]:
    """Return what is wrong with the rows of one op."""
    import pandas as pd

    if op not in SHAPE_COLUMNS:
        known = ", ".join(SHAPE_COLUMNS)
        return [f"{source}: op: wanted one of {known}, got {op!r}{did_you_mean(op, SHAPE_COLUMNS)}"]
    faults = []
    for column in SHAPE_COLUMNS[op]:
        if column == "kernel":
            bad = rows[column].isna()
        else:
            numbers = pd.to_numeric(rows[column], errors="coerce").astype(float)
            bad = ~(numbers.notna() & (numbers >= 0) & (numbers < np.inf))
        faults += [
            f"{source}: row {row}: {op} needs {column}, got {_shown(rows, row, column)}"
            for row in rows.index[bad]
        ]
    seconds = pd.to_numeric(rows["seconds"], errors="coerce")
    bad = ~((seconds > 0) & (seconds < np.inf))
    faults += [
        f"{source}: row {row}: seconds: wanted a positive number, got {_shown(rows, row, 'seconds')}"
        for row in rows.index[bad]
    ]
    return faults


def _shown(rows: pd.DataFrame, row: object, column: str) -> str:
    value = rows.loc[row, column]  # type: ignore[index]
    return repr(value.item() if isinstance(value, np.generic) else value)


def read_measurements(path: Path) -> Measurements:
    """Read a table in Parquet or CSV; raise TraceError if it is not one."""
    import pandas as pd

    try:
        frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception as error:  # what pandas and pyarrow raise on broken files has no common base
        raise TraceError(f"{path}: wanted measurements in Parquet or CSV: {error}") from None
    return validate(frame, str(path))
