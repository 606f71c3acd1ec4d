"""A sweep as the plots see it: the table of its points, which fields were swept, and what they are called."""

from __future__ import annotations

import json
import math
import os.path
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simkv.errors import ResultsError, did_you_mean
from simkv.plots.style import axes_or_new, say_below, say_empty, style
from simkv.results.keys import meaning

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

POINTS_FILE = "points.parquet"
_PARTS = ("model", "hardware", "parallel", "engine", "workload", "slo", "seed")
_LATENCIES = ("ttft", "tpot", "itl", "e2el")
_UNITS = {
    "request_rate": "req/s", "max_num_batched_tokens": "tokens", "max_model_len": "tokens",
    "long_prefill_token_threshold": "tokens", "prompt_len": "tokens", "output_len": "tokens",
    "random_input_len": "tokens", "random_output_len": "tokens", "block_size": "tokens",
}  # fmt: skip


def is_sweep(folder: Path) -> bool:
    """True for a folder that holds a sweep."""
    return os.path.isfile(folder / POINTS_FILE)  # unlike Path.is_file, False for a name too long


def read_points(folder: str | Path) -> pd.DataFrame:
    """Return the table of a sweep folder, one row a point; raise ResultsError if it cannot be read."""
    import pandas as pd

    path = Path(folder) / POINTS_FILE
    try:
        frame = pd.read_parquet(path)
    except FileNotFoundError:
        raise ResultsError(
            f"{path}: wanted a table of points, got no such file; give the folder of a sweep"
        ) from None
    except (OSError, ValueError):  # pyarrow's errors are these, too
        raise ResultsError(
            f"{path}: wanted a table of points, got a truncated or damaged file; sweep again"
        ) from None
    if "status" not in frame.columns:
        raise ResultsError(f"{path}: wanted a table with the column status, got one without it; sweep again")
    return frame


def prepare(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a copy to draw: latencies of nothing missing, cells that can be compared, derived metrics."""
    table = frame.copy()
    for name in map(str, table.columns):
        if str(table[name].dtype) in ("Int64", "Float64"):
            table[name] = table[name].astype(float)
        elif str(table[name].dtype) in ("boolean", "object"):
            table[name] = [None if is_missing(cell) else _plain(cell) for cell in table[name].astype(object)]
    if "status" not in table:
        table["status"] = "done"
    if "mean_stage_utilization" not in table and "stage_utilization" in table:
        table["mean_stage_utilization"] = [_mean(cell) for cell in table["stage_utilization"]]
    if "mean_stage_utilization" in table:
        table["mean_stage_idle"] = 1 - table["mean_stage_utilization"].astype(float)
    if "mean_num_requests_running" in table and "num_stages" in table:
        # Of one replica: how large a batch is if each stage has one in flight.
        num_stages = table["num_stages"].astype(float) * table["num_replicas"].astype(float)
        table["running_per_stage"] = table["mean_num_requests_running"].astype(float) / num_stages
    for name in _LATENCIES:
        if f"mean_{name}_ms" in table:
            is_of_nothing = table[f"mean_{name}_ms"] == 0
            for column in [column for column in map(str, table) if column.endswith(f"_{name}_ms")]:
                table[column] = table[column].astype(float).mask(is_of_nothing)
    return table


def _mean(cell: Any) -> float:
    """The mean of a list kept as JSON; missing for a point that did not run."""
    values = json.loads(cell) if isinstance(cell, str) else []
    return sum(values) / len(values) if values else float("nan")


def _plain(cell: Any) -> Any:
    """A cell that can be compared: a list or a mapping as JSON."""
    if hasattr(cell, "tolist"):
        cell = cell.tolist()
    return json.dumps(cell) if isinstance(cell, dict | list | tuple) else cell


def scenario_fields(table: pd.DataFrame) -> list[str]:
    """Return the columns that are fields of a scenario: ``engine.block_size``, ``model``, ``seed``, …"""
    return [name for name in map(str, table.columns) if "." in name or name in _PARTS]


def swept_fields(table: pd.DataFrame) -> list[str]:
    """Return the fields of which the points have more than one value."""
    return [name for name in scenario_fields(table) if table[name].nunique(dropna=False) > 1]


def is_number(table: pd.DataFrame, name: str) -> bool:
    """True for a column that can be an axis: nothing but numbers, and more than one."""
    values = {value for value in table[name].tolist() if not is_missing(value)}
    return len(values) > 1 and all(type(value) in (int, float) for value in values)


def is_missing(value: Any) -> bool:
    """True for None, NaN and pandas' NA."""
    return (
        value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value))
    )


def require_column(table: pd.DataFrame, option: str, name: str, among: Iterable[str] | None = None) -> str:
    """Return the name of a column that a plot can use; raise ResultsError with the closest one if not."""
    known = [str(column) for column in table.columns] if among is None else list(among)
    if name in known:
        return name
    shown = did_you_mean(name, known) or did_you_mean(name, [word.rpartition(".")[2] for word in known])
    if ends := [word for word in known if word.endswith(f".{name}")]:
        shown = f"; did you mean {ends[0]!r}?"
    fields = ", ".join(swept_fields(table)) or "none"
    raise ResultsError(
        f"{option}: wanted a column of the sweep, got {name!r}{shown or f'; swept fields: {fields}'}"
    )


def require_numbers(table: pd.DataFrame, option: str, name: str) -> str:
    """Return the name of a column of numbers; raise ResultsError for any other."""
    require_column(table, option, name)
    done = table.loc[is_done(table), name].dropna()
    if any(isinstance(value, str | bool) for value in done):
        raise ResultsError(f"{option}: wanted numbers, got {name}, which has {done.iloc[0]!r}")
    return name


def is_done(table: pd.DataFrame) -> pd.Series[bool]:
    """Return which points ran, or would."""
    return table["status"] == "done"


def split_layout(table: pd.DataFrame, fields: Sequence[str]) -> list[str]:
    """Return fields to tell points apart by, the ``parallel`` ones as their one word, if the table has it."""
    parallel = [name for name in fields if _is_parallel(name)]
    if not parallel or "layout" not in table:
        return list(fields)
    done = table[is_done(table)]
    if len(done[parallel].drop_duplicates()) != done["layout"].nunique():
        return list(fields)
    return ["layout", *(name for name in fields if name not in parallel)]


def _is_parallel(name: str) -> bool:
    return name.partition(".")[0] == "parallel"


def axis_label(name: str) -> str:
    """Return a field's own name, or a metric's words, with the unit.

    >>> axis_label("engine.max_num_batched_tokens"), axis_label("p99_ttft_ms")
    ('max_num_batched_tokens (tokens)', 'P99 TTFT (ms)')
    """
    if "." not in name:
        return name if name in _PARTS or name == "layout" else meaning(name).axis_label
    unit = next((unit for key, unit in _UNITS.items() if key in name.split(".")), "")
    return f"{short_name(name)} ({unit})" if unit else short_name(name)


def short_name(name: str) -> str:
    """Return a field without its section, a metric's words without the unit."""
    if "." in name:
        return name.partition(".")[2]
    return name if name in _PARTS or name == "layout" else meaning(name).label


def shown(name: str, value: Any) -> str:
    """Return a value of a field as ticks and legends show it; whole KiB of tokens as K.

    >>> shown("engine.max_model_len", 131072), shown("workload.request_rate", 0.5), shown("model", None)
    ('128K', '0.5', 'none')
    """
    if is_missing(value):
        return "none"
    if isinstance(value, str) or type(value).__name__.startswith("bool"):
        return str(value)
    number = float(value)
    if axis_label(name).endswith("(tokens)") and number >= 1024 and number % 1024 == 0:
        return f"{number / 1024:,g}K"
    return f"{number:,.0f}" if number >= 1e5 else f"{number:g}"


def left_out(table: pd.DataFrame, *columns: str) -> str:
    """Return which points cannot be drawn and why, as a note; empty if all can."""
    done = is_done(table)
    counts = table.loc[~done, "status"].value_counts(sort=False)
    parts = [f"{number} {status}" for status, number in counts.items()]
    if unknown := int(table.loc[done, list(columns)].isna().any(axis=1).sum()):
        parts.append(f"{unknown} without a value")
    number = int((~done).sum()) + unknown
    return f"left out: {', '.join(parts)} of {len(table)} points" if number else ""


def averaged_over(table: pd.DataFrame, told_apart: Sequence[str], num_points: int, more: str = "") -> str:
    """Return a note of which fields were averaged over, empty if at most one point stands for another."""
    if num_points <= 1:
        return ""
    known = set(told_apart)
    if "layout" in known:
        known |= {name for name in scenario_fields(table) if _is_parallel(name)}
    over = ", ".join(short_name(name) for name in swept_fields(table) if name not in known)
    return f"mean over {over or 'equal points'}, up to {num_points} points{more}"


def nothing_ran(table: pd.DataFrame, ax: Axes | None) -> Axes:
    """Draw axes that say that no point has a result, and why."""
    with style():
        ax = axes_or_new(ax)
        say_empty(ax, "no point has a result")
        say_below(ax, left_out(table))
    return ax
