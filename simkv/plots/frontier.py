"""Which points of a sweep are worth choosing: those that no other point beats on both axes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simkv.errors import ResultsError
from simkv.plots.labels import Label, place_labels
from simkv.plots.style import INK, NOTE, PALE, axes_or_new, say_below, say_empty, scale_axis, style
from simkv.plots.sweep_table import (
    averaged_over,
    axis_label,
    is_done,
    left_out,
    nothing_ran,
    prepare,
    require_numbers,
    short_name,
    shown,
    split_layout,
    swept_fields,
)
from simkv.results.keys import meaning
from simkv.results.series import Floats

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_FRONT = "#0072b2"
_NUM_ON_A_STEP = 30
_FEW = 12  # points up to which also the beaten ones have labels


def frontier(
    frame: pd.DataFrame, x: str = "mean_tpot_ms", y: str = "output_throughput", ax: Axes | None = None
) -> Axes:
    """Draw the points of a sweep on two metrics, and the line through those that none beats on both.

    x, y   metrics with a better side: latencies, throughputs, capacity, …

    Frontier points are labelled with the values of the fields that were swept; seeds are averaged. Labels
    are laid out for the size that the figure has now. Raises ResultsError for a column that the table lacks
    or that has no better side.
    """
    table = prepare(frame)
    if not is_done(table).any():
        return nothing_ran(table, ax)
    directions = _direction(table, "x", x), _direction(table, "y", y)
    fields = [name for name in swept_fields(table) if name != "seed"]
    values, num_averaged = _points(table, x, y, fields)
    with style():
        ax = axes_or_new(ax, height_in=4.2)
        ax.set(
            title=f"Frontier: {short_name(y)} against {short_name(x)}",
            xlabel=_with_hint(x, directions[0]), ylabel=_with_hint(y, directions[1]),
        )  # fmt: skip
        if not len(values):
            say_empty(ax, "no point has both metrics")
            say_below(ax, left_out(table, x, y))
            return ax
        names = split_layout(table, [name for name in fields if values[name].nunique(dropna=False) > 1])
        is_best = pareto(values[["x", "y"]].to_numpy() * directions)
        best = values[is_best].sort_values(["x", "y"])
        _draw(ax, values[~is_best], best, directions[0])
        legend = f"labels: {', '.join(map(short_name, names))}" if names else ""
        notes = (legend, averaged_over(table, fields, num_averaged), left_out(table, x, y))
        note = say_below(ax, "\n".join(filter(None, notes)))
        # last, when the layout is settled, but for what makes a line of the note longer
        num_unlabelled = _label(ax, values[~is_best], best, directions[0], names)
        if note is not None and num_unlabelled:
            note.set_text(note.get_text().replace(legend, f"{legend}; {num_unlabelled} without room for one"))
    return ax


def pareto(gains: Floats) -> npt.NDArray[np.bool_]:
    """Return which rows no other row beats: none has as much of everything and more of something.

    >>> pareto(np.array([[1.0, 3.0], [2.0, 2.0], [1.0, 2.0], [2.0, 2.0]])).tolist()
    [True, True, False, True]
    """
    beats = (gains[:, None] >= gains).all(axis=2) & (gains[:, None] > gains).any(axis=2)  # [other, row]
    return ~np.atleast_1d(beats.any(axis=0))


def _direction(table: pd.DataFrame, option: str, name: str) -> int:
    require_numbers(table, option, name)
    better = 0 if "." in name else meaning(name).better
    if not better:
        raise ResultsError(
            f"{option}: wanted a metric with a better side, such as mean_tpot_ms or output_throughput, got {name}"
        )
    return better


def _with_hint(name: str, direction: int) -> str:
    return f"{axis_label(name)}, {'more' if direction > 0 else 'less'} is better"


def _points(table: pd.DataFrame, x: str, y: str, fields: list[str]) -> tuple[pd.DataFrame, int]:
    """Return the points with columns x and y, seeds averaged, and how many were averaged at most."""
    done = table[is_done(table)].dropna(subset=[x, y])
    kept = [*fields, *(["layout"] if "layout" in done else [])]
    scaled = done[kept].assign(
        **{
            axis: done[name].astype(float) * (1.0 if "." in name else meaning(name).scale)
            for axis, name in (("x", x), ("y", y))
        }
    )
    if not fields:
        return scaled, 1
    groups = scaled.groupby(kept, dropna=False, sort=False)
    return groups.mean().reset_index(), int(groups.size().max()) if len(scaled) else 1


def _draw(ax: Axes, beaten: pd.DataFrame, best: pd.DataFrame, x_direction: int) -> None:
    if len(beaten):
        ax.scatter(
            beaten["x"], beaten["y"], s=18, facecolor="white", edgecolor=PALE, linewidth=0.9, zorder=2,
            label=f"beaten ({len(beaten)})",
        )  # fmt: skip
    # between two points of the frontier only the worse of both is certain to be had
    ax.plot(
        best["x"], best["y"], color=_FRONT, marker="o", markersize=5, linewidth=1.4, zorder=3,
        drawstyle="steps-post" if x_direction < 0 else "steps-pre", label=f"frontier ({len(best)})",
    )  # fmt: skip
    ax.margins(0.08)  # room for labels
    scale_axis(ax, "x", [*beaten["x"], *best["x"]], from_zero=False)
    scale_axis(ax, "y", [*beaten["y"], *best["y"]], from_zero=False)
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)


def _label(ax: Axes, beaten: pd.DataFrame, best: pd.DataFrame, x_direction: int, names: list[str]) -> int:
    """Label the frontier, and the other points if they are few; return how many of the frontier found no room."""
    if not names:
        return 0

    def labels_of(points: pd.DataFrame, color: str) -> list[Label]:
        return [
            Label(
                float(row["x"]), float(row["y"]), ", ".join(shown(name, row[name]) for name in names), color
            )
            for _, row in points.iterrows()
        ]

    obstacles = [point for points in (beaten, best) for point in zip(points["x"], points["y"], strict=True)]
    obstacles += _on_the_line(best, x_direction)
    placed = place_labels(ax, labels_of(best, INK), obstacles, far=True)
    if len(beaten) + len(best) <= _FEW:
        taken = [box for box in placed if box is not None]
        place_labels(ax, labels_of(beaten, NOTE), obstacles, taken=taken)
    return placed.count(None)


def _on_the_line(best: pd.DataFrame, x_direction: int) -> Iterator[tuple[float, float]]:
    """Yield points along the steps of the frontier, so that labels keep off it."""
    corners = list(zip(best["x"], best["y"], strict=True))
    shares = np.linspace(0.0, 1.0, _NUM_ON_A_STEP)
    for (x0, y0), (x1, y1) in pairwise(corners):
        at_x, at_y = (x1, y0) if x_direction < 0 else (x0, y1)
        for start, end in (((x0, y0), (at_x, at_y)), ((at_x, at_y), (x1, y1))):
            yield from (
                (start[0] + s * (end[0] - start[0]), start[1] + s * (end[1] - start[1])) for s in shares
            )
