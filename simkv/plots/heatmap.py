"""A metric over two fields of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from simkv.errors import ResultsError
from simkv.plots.style import INK, axes_or_new, say_below, style
from simkv.plots.sweep_table import (
    averaged_over,
    axis_label,
    is_done,
    is_missing,
    is_number,
    left_out,
    nothing_ran,
    prepare,
    require_column,
    require_numbers,
    scenario_fields,
    shown,
    swept_fields,
)
from simkv.results.keys import meaning
from simkv.results.series import Floats

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_HATCHES = {"infeasible": "////", "refused": "...."}
_OTHER_HATCH = "xxxx"
_ROOM = (10, 14)  # columns and rows up to which a cell has room for a number
_LOG_ABOVE = 50  # largest over smallest value
_DARK = 0.5  # of the colours, from where white reads better than black
_LIGHTEST, _DARKEST = 0.08, 0.92  # of the colour map: neither as white as no cell nor as black as a frame
_FRAME = "#e69f00"  # shows on the darkest cell and on the lightest, also in grey
_VALUES = ("found", "output_throughput", "kv_tokens", "num_gpu_blocks")


def heatmap(
    frame: pd.DataFrame,
    x: str | None = None,
    y: str | None = None,
    value: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a metric of a sweep in cells over two fields; cells that have no result are hatched.

    x, y    two fields, with numbers or not; by default the first two that were swept
    value   a metric; by default what a search found, the output throughput, or the tokens that fit

    Points that fall into one cell are averaged. Raises ResultsError for a column that the table lacks.
    """
    table = prepare(frame)
    if not is_done(table).any():
        return nothing_ran(table, ax)
    x, y = _two_fields(table, x, y)
    value = _metric(table, value)
    columns, rows = _values(table, x), _values(table, y)
    if not is_number(table, y):
        rows.reverse()  # words are read from the top
    cells, num_points = _cells(table, (x, y), value, (columns, rows))
    with style():
        ax = axes_or_new(ax, height_in=4.0)
        label = meaning(value).axis_label
        ax.set(
            title=f"{label[0].upper()}{label[1:]}", xlabel=axis_label(x), ylabel=axis_label(y),
            xlim=(-0.5, len(columns) - 0.5), ylim=(-0.5, len(rows) - 0.5),
        )  # fmt: skip
        ax.grid(False)
        ax.xaxis.labelpad = ax.yaxis.labelpad = 6
        ax.set_xticks(range(len(columns)), [shown(x, item) for item in columns])
        ax.set_yticks(range(len(rows)), [shown(y, item) for item in rows])
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        _color(ax, cells, may_be_log=not meaning(value).is_share)
        _hatch(ax, table, (x, y), (columns, rows), cells)
        notes = (
            _frame_the_best(ax, cells, meaning(value).better),
            averaged_over(table, (x, y), num_points),
            left_out(table, value),
        )
        say_below(ax, "\n".join(filter(None, notes)))
    return ax


def _two_fields(table: pd.DataFrame, x: str | None, y: str | None) -> tuple[str, str]:
    for option, name in (("x", x), ("y", y)):
        if name is not None:
            require_column(table, option, name, [*scenario_fields(table), "layout"])
    free = [name for name in swept_fields(table) if name not in (x, y, "seed")]
    if x is None and free:
        x = free.pop(0)
    if y is None and free:
        y = free.pop(0)
    if x is None or y is None or x == y:
        got = ", ".join(swept_fields(table)) or "none"
        raise ResultsError(f"x, y: wanted two swept fields for a heatmap, got {got}; draw a curve instead")
    return x, y


def _metric(table: pd.DataFrame, value: str | None) -> str:
    if value is None:
        value = next((name for name in _VALUES if name in table), _VALUES[0])
    return require_numbers(table, "value", value)


def _values(table: pd.DataFrame, name: str) -> list[Any]:
    """The values of a field: numbers in order, words as they come."""
    values = list(table[name].drop_duplicates())
    return sorted(values) if is_number(table, name) and not table[name].isna().any() else values


def _cells(
    table: pd.DataFrame, fields: tuple[str, str], value: str, ends: tuple[list[Any], list[Any]]
) -> tuple[Floats, int]:
    """Return the mean values as [row, column], missing where there is none, and the most points of a cell."""
    cells = np.full((len(ends[1]), len(ends[0])), np.nan)
    done = table[is_done(table)].dropna(subset=value)
    num_points = 1
    for (column, row), group in done.groupby(list(fields), dropna=False):
        cells[_index(ends[1], row), _index(ends[0], column)] = (
            float(group[value].mean()) * meaning(value).scale
        )
        num_points = max(num_points, len(group))
    return cells, num_points


def _index(values: list[Any], value: Any) -> int:
    return [None if is_missing(item) else item for item in values].index(None if is_missing(value) else value)


def _color(ax: Axes, cells: Floats, may_be_log: bool) -> None:
    """Fill the cells, darker for more, with their numbers if they are few, and draw the scale."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, LogNorm, Normalize

    known = cells[~np.isnan(cells)]
    if not len(known):
        return
    low, high = float(known.min()), float(known.max())
    is_log = may_be_log and low > 0 and high > _LOG_ABOVE * low
    norm = LogNorm(low, high) if is_log else Normalize(low, high if high > low else low + 1)
    colors = ListedColormap(colormaps["Blues"](np.linspace(_LIGHTEST, _DARKEST, 256)))
    edges = [np.arange(size + 1) - 0.5 for size in cells.shape]
    mesh = ax.pcolormesh(
        edges[1],
        edges[0],
        np.ma.masked_invalid(cells),
        cmap=colors,
        norm=norm,
        edgecolor="white",
        linewidth=1.5,
    )
    if cells.shape[1] <= _ROOM[0] and cells.shape[0] <= _ROOM[1]:
        for row, column in np.argwhere(~np.isnan(cells)):
            amount = cells[row, column]
            ax.text(
                column, row, _number(amount, high), ha="center", va="center", fontsize=7.5,
                color="white" if norm(amount) > _DARK else INK,
            )  # fmt: skip
    bar = ax.figure.colorbar(mesh, ax=ax, pad=0.02, aspect=30, format=lambda amount, _: f"{amount:,.10g}")
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=7.5)
    bar.ax.minorticks_off()


def _number(amount: float, highest: float) -> str:
    decimals = 0 if highest >= 100 else 1 if highest >= 10 else 2
    return f"{amount:,.{decimals}f}"


def _hatch(
    ax: Axes,
    table: pd.DataFrame,
    fields: tuple[str, str],
    ends: tuple[list[Any], list[Any]],
    cells: Floats,
) -> None:
    """Hatch the cells whose points have no result, and say what the hatches mean."""
    from matplotlib.patches import Rectangle

    handles: dict[str, Rectangle] = {}
    for (column, row), group in table[~is_done(table)].groupby(list(fields), dropna=False):
        place = _index(ends[0], column), _index(ends[1], row)
        if not np.isnan(cells[place[1], place[0]]):
            continue  # another point of this cell has a result
        status = str(group["status"].iloc[0])
        patch = Rectangle(
            (place[0] - 0.5, place[1] - 0.5), 1, 1, facecolor="#f4f4f4", edgecolor="#a0a0a0", linewidth=0,
            hatch=_HATCHES.get(status, _OTHER_HATCH), label=status,
        )  # fmt: skip
        ax.add_patch(patch)
        handles[status] = patch
    if handles:
        ax.legend(
            handles=[handles[status] for status in sorted(handles)], loc="lower right", ncols=len(handles),
            bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2,
        )  # fmt: skip


def _frame_the_best(ax: Axes, cells: Floats, better: int) -> str:
    """Frame the best cell, if the metric has a good side and the cells differ; return the note that says so."""
    from matplotlib.patches import Rectangle

    known = cells[~np.isnan(cells)]
    if not better or len(known) < 2 or known.min() == known.max():
        return ""
    best = (known * better).max() * better
    for row, column in np.argwhere(cells == best):
        frame = Rectangle(
            (column - 0.46, row - 0.44), 0.92, 0.88, fill=False, edgecolor=_FRAME, linewidth=2.2
        )
        ax.add_patch(frame)
    return "framed: the best"
