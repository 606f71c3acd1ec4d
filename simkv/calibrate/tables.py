"""Reduced tables: the measured points that a profile's residuals need, small enough to be shipped.

A reduced table is a table of measurements like any other (`read_measurements` reads it) with one row a point of
the groups in `simkv.calibrate.families`: medians, head dimension 128, no matrix side under 128, integers of 32
bits and seconds as float32, Parquet with zstd.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from simkv.calibrate.measurements import (
    PROVENANCE_COLUMNS,
    SHAPE_COLUMNS,
    Measurements,
    read_measurements,
)
from simkv.errors import TraceError
from simkv.load.shipped import shipped_dir

if TYPE_CHECKING:
    import pandas as pd

    from simkv.calibrate.fit import Calibration


def reduce(calibration: Calibration, measurements: Measurements) -> pd.DataFrame:
    """Keep one row a point of every group of `calibration` that the table has."""
    import pandas as pd

    parts = []
    for name, group in calibration.groups.items():
        rows = calibration.rows(measurements, name)
        if rows.empty:
            continue
        source = measurements.of(group.op, **group.variant).iloc[0]
        provenance = {column: source[column] for column in PROVENANCE_COLUMNS}
        parts.append(rows.assign(op=group.op, **group.variant, **provenance))
    # a chunk without a prefix is a point of two groups
    return pd.concat(parts, ignore_index=True).drop_duplicates() if parts else pd.DataFrame()


def points_file(name: str) -> Path:
    """Return where the points of a calibration lie: the name of a shipped one, or a path."""
    return Path(name) if name.endswith(".parquet") else shipped_dir("kernels") / f"{name}.parquet"


def shipped_points(name: str) -> Measurements:
    """Read the points of a shipped calibration."""
    return read_measurements(points_file(name))


def write_measurements(measurements: Measurements, path: Path) -> None:
    """Write a table as compact Parquet; raise TraceError if it cannot be written."""
    frame = measurements.frame.dropna(axis="columns", how="all")
    shapes = sorted({column for columns in SHAPE_COLUMNS.values() for column in columns} & set(frame))
    integers = [column for column in shapes if column not in ("kernel", "skew")]
    widths = {name: "Int64" if name == "num_bytes" else "Int32" for name in integers}
    frame = frame.astype({**widths, "seconds": "float32"})
    try:
        frame.to_parquet(path, index=False, compression="zstd", compression_level=19)
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror or error}") from None
