"""What the readers share: a CSV with the columns it must have, and rows in the schema."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simkv.errors import TraceError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

_MAX_FAULTS = 20


def read_csv(path: Path, columns: Sequence[str], text: Sequence[str] = ()) -> pd.DataFrame:
    """Read `columns` of a CSV; all but those in `text` must be finite, non-negative numbers.

    Raises TraceError with file and line for each fault (the first 20).
    """
    import numpy as np
    import pandas as pd

    try:
        frame = pd.read_csv(path)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, UnicodeError) as error:  # pandas' parser errors are ValueErrors
        raise TraceError(f"{path}: wanted a CSV with columns {', '.join(columns)}: {error}") from None
    faults = [
        f"{path}:1: column {column!r} is missing{did_you_mean(column, map(str, frame.columns))}"
        for column in columns
        if column not in frame
    ]
    if faults:
        raise TraceError(faults)
    frame = frame[list(columns)].copy()
    for column in columns:
        if column in text:
            continue
        numbers = pd.to_numeric(frame[column], errors="coerce")
        bad = ~(np.isfinite(numbers) & (numbers >= 0))
        faults += [
            f"{path}:{row + 2}: {column}: wanted a number from 0, got {frame.at[row, column]!r}"
            for row in frame.index[bad]
        ]
        frame[column] = numbers
    if faults:
        more = [f"{path}: and {len(faults) - _MAX_FAULTS} more faults"] if len(faults) > _MAX_FAULTS else []
        raise TraceError(faults[:_MAX_FAULTS] + more)
    return frame
