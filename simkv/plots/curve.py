"""A metric of a sweep over a load, a chunk size, a context length, a depth, or any other field with numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simkv.errors import ResultsError
from simkv.plots.choice import MAX_LINES, Choice, choose
from simkv.plots.style import (
    INK,
    axes_or_new,
    mark,
    say_below,
    say_empty,
    scale_axis,
    style,
    tick_values,
)
from simkv.plots.sweep_table import (
    averaged_over,
    axis_label,
    is_done,
    left_out,
    nothing_ran,
    prepare,
    short_name,
    shown,
    swept_fields,
)
from simkv.results.keys import meaning

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_MAX_TICKS = 10


def curve(
    frame: pd.DataFrame,
    x: str | None = None,
    y: str | Sequence[str] | None = None,
    by: str | Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw metrics of a sweep over a field or another metric, a line for each value of the other fields.

    x    a swept field with numbers, or a metric; by default the output throughput where a load was swept,
         else a chunk size, a context length, a depth, or what else has numbers
    y    one metric or several of one unit; by default what is asked of that `x`
    by   the fields that tell lines apart; by default all others that were swept (`parallel` ones as layout)

    Points that differ in none of these (seeds, say) are averaged, with bars from the lowest to the highest.
    Raises ResultsError for a column that the table lacks or that has no numbers.
    """
    table = prepare(frame)
    if not is_done(table).any():
        return nothing_ran(table, ax)
    choice = choose(table, x, _names(y), _names(by))
    lines = [line for line in _lines(table, choice) if len(line.points)]
    with style():
        ax = axes_or_new(ax)
        ax.set(title=_title(choice), xlabel=axis_label(choice.x), ylabel=_y_label(choice.y))
        if lines:
            for line in lines:
                _draw(ax, line, choice)
            _scale(ax, table, choice, lines)
            _legend(ax, lines, choice)
        else:
            say_empty(ax, "no point has these metrics")
        say_below(ax, "\n".join(filter(None, _notes(table, choice, lines))))
    return ax


def _names(value: str | Sequence[str] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(dict.fromkeys(value or ()))


@dataclass(frozen=True)
class _Line:
    """One line: its place among the values of `by` and among the metrics, and its points.

    points   columns x, y, and the lowest and highest of each where several points were averaged
    """

    label: str
    group: int
    metric: int
    points: pd.DataFrame


def _lines(table: pd.DataFrame, choice: Choice) -> Iterator[_Line]:
    done = table[is_done(table)]
    groups: list[tuple[str, pd.DataFrame]] = [("", done)]
    if choice.by:
        keys = list(choice.by)
        groups = [
            (", ".join(shown(name, value) for name, value in zip(keys, values, strict=True)), group)
            for values, group in done.groupby(keys, dropna=False, sort=False)
        ]
    if len(groups) > MAX_LINES:
        raise ResultsError(
            f"by: wanted at most {MAX_LINES} lines, got {len(groups)} ({' × '.join(choice.by)}); name fewer"
        )
    for number, (label, group) in enumerate(groups):
        for metric, y in enumerate(choice.y):
            yield _Line(label, number, metric, _points(group, choice, y))


def _points(group: pd.DataFrame, choice: Choice, y: str) -> pd.DataFrame:
    import pandas as pd

    values = pd.DataFrame(
        {
            "along": group[choice.along].astype(float),
            "x": group[choice.x].astype(float) * _scale_of(choice.x),
            "y": group[y].astype(float) * _scale_of(y),
        }
    )
    is_finite = values[["x", "y"]].abs().max(axis=1, skipna=False) < float("inf")
    return (
        values[is_finite]
        .groupby("along", dropna=False)
        .agg(
            x=("x", "mean"), x_low=("x", "min"), x_high=("x", "max"),
            y=("y", "mean"), y_low=("y", "min"), y_high=("y", "max"),
            num_points=("y", "size"),
        )
        .sort_index()
    )  # fmt: skip


def _scale_of(name: str) -> float:
    return 1.0 if "." in name else meaning(name).scale


def _draw(ax: Axes, line: _Line, choice: Choice) -> None:
    points, look = line.points, mark(line.group)
    linestyle = look.linestyle if len(choice.y) == 1 else mark(line.metric).linestyle
    ax.plot(
        points["x"], points["y"], color=look.color, marker=look.marker, linestyle=linestyle, markersize=5,
        markerfacecolor="white" if line.metric else look.color, zorder=3,
    )  # fmt: skip
    if (points["num_points"] > 1).any():
        errors = {
            side: [points[side] - points[f"{side}_low"], points[f"{side}_high"] - points[side]]
            for side in ("x", "y")
        }
        ax.errorbar(
            points["x"], points["y"], xerr=errors["x"] if choice.x != choice.along else None, yerr=errors["y"],
            fmt="none", ecolor=look.color, elinewidth=0.9, capsize=2.5,
        )  # fmt: skip


def _scale(ax: Axes, table: pd.DataFrame, choice: Choice, lines: Sequence[_Line]) -> None:
    xs = sorted({value for line in lines for value in line.points["x"]})
    is_few = choice.x in swept_fields(table) and len(xs) <= _MAX_TICKS
    if not is_few or not tick_values(ax, xs, [shown(choice.x, value) for value in xs]):
        scale_axis(ax, "x", xs)
    ys = [value for line in lines for side in ("y_low", "y_high") for value in line.points[side]]
    scale_axis(ax, "y", ys, may_be_log=not meaning(choice.y[0]).is_share)


def _legend(ax: Axes, lines: Sequence[_Line], choice: Choice) -> None:
    from matplotlib.lines import Line2D

    handles: list[Line2D] = []

    def add(label: str, **look: Any) -> None:
        handles.append(Line2D([], [], markersize=5, label=label, **look))

    has_metrics = len(choice.y) > 1
    title = ",\n".join(map(short_name, choice.by))
    if has_metrics:
        for index, name in enumerate(choice.y):
            face = "white" if index else INK
            linestyle = mark(index).linestyle
            add(meaning(name).label, color=INK, linestyle=linestyle, marker="o", markerfacecolor=face)
    if choice.by:
        if has_metrics:
            add(f"\n{title}", linestyle="")
        for line in lines:
            if line.metric == 0:
                look = mark(line.group)._asdict()
                add(line.label, **(look | {"linestyle": ""} if has_metrics else look))
    if handles:
        ax.legend(
            handles=handles, title=None if has_metrics else title, loc="upper left", bbox_to_anchor=(1.01, 1.0),
            borderaxespad=0.0, title_fontsize=8, alignment="left", handlelength=3.0,
        )  # fmt: skip


def _y_label(names: Sequence[str]) -> str:
    if len(names) == 1:
        return axis_label(names[0])
    unit = meaning(names[0]).unit
    return " and ".join(meaning(name).label for name in names) + (f" ({unit})" if unit else "")


def _title(choice: Choice) -> str:
    names = " and ".join(meaning(name).label for name in choice.y)
    return f"{names[0].upper()}{names[1:]} over {short_name(choice.x)}"


def _notes(table: pd.DataFrame, choice: Choice, lines: Sequence[_Line]) -> Iterator[str]:
    if choice.along != choice.x:
        values = sorted(value for line in lines for value in line.points.index)
        if values and values[0] < values[-1]:
            unit = axis_label(choice.along).removeprefix(short_name(choice.along)).strip(" ()")
            span = f"{shown(choice.along, values[0])} to {shown(choice.along, values[-1])} {unit}".strip()
            yield f"along a line: {short_name(choice.along)} {span}"
    num_points = max((int(line.points["num_points"].max()) for line in lines), default=1)
    yield averaged_over(table, (choice.along, *choice.by), num_points, "; bars: lowest to highest")
    yield left_out(table, *choice.y)
