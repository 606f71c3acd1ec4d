"""The one look of all plots: quiet, and readable in grey: lines and fills differ by more than colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

INK = "#222222"
PALE = "#8a8a8a"

_RC: Any = {  # matplotlib's own type for it is one literal of 300 names
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": INK,
    "axes.edgecolor": PALE,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "hatch.linewidth": 0.5,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "figure.constrained_layout.use": True,
}


class Line(NamedTuple):
    """How a series is drawn."""

    color: str
    linestyle: str | tuple[int, tuple[float, ...]]


class Fill(NamedTuple):
    """How an area is filled; the colours get lighter in this order also when printed in grey."""

    color: str
    hatch: str


# Okabe and Ito's palette (https://jfly.uni-koeln.de/color/), which colour-blind readers can tell apart
LINES = {
    "ttft": Line("#0072b2", "-"),
    "tpot": Line("#d55e00", "--"),
    "itl": Line("#009e73", ":"),
    "e2el": Line("#222222", "-."),
    "running": Line("#0072b2", "-"),
    "waiting": Line("#d55e00", (0, (4, 1.5))),
    "kv": Line("#6b6b6b", ":"),
}
FILLS = {
    "compute": Fill("#0b4f7d", ""),
    "memory": Fill("#4f9bc9", "////"),
    "comm": Fill("#f0a640", "...."),
    "host": Fill("#f6dfb3", "xxxx"),
    "idle": Fill("#f4f4f4", ""),
}
NOTE = "#5f5f5f"

_LOG_ABOVE = 20  # largest over smallest value
_LOG_TICKS_ABOVE = 8
_MANY_DECADES = 1000
_TICK_ROOM = 0.05  # of an axis, for the label of a tick


class Mark(NamedTuple):
    """How one of several series of points is drawn."""

    color: str
    marker: str
    linestyle: Literal["-", "--", "-.", ":"]


_COLORS = ("#0072b2", "#d55e00", "#009e73", "#222222", "#cc79a7", "#e69f00", "#56b4e9")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LINESTYLES: tuple[Literal["-", "--", "-.", ":"], ...] = ("-", "--", "-.", ":")


def mark(index: int) -> Mark:
    """Return the look of series `index`: 28 that differ, also without colour."""
    return Mark(
        _COLORS[index % len(_COLORS)],
        _MARKERS[index % len(_MARKERS)],
        _LINESTYLES[index % len(_LINESTYLES)],
    )


@contextmanager
def style() -> Iterator[None]:
    """Apply the look to what is drawn inside; the global settings are as before afterwards."""
    from matplotlib import interactive, is_interactive, rc_context

    with rc_context(_RC):
        yield
        shows_figures = is_interactive()
    interactive(shows_figures)  # a notebook turns it on with the first figure, which must not be undone


def axes_or_new(ax: Axes | None, width_in: float = 7.0, height_in: float = 3.6) -> Axes:
    """Return the given axes, or those of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width_in, height_in))[1]


def say_empty(ax: Axes, text: str) -> None:
    """Write into axes why there is nothing to see."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=PALE)


def say_below(ax: Axes, text: str) -> Text | None:
    """Write a note under the axes, on the left; nothing for an empty one."""
    if not text:
        return None
    return ax.annotate(
        text, (0.0, 0.0), (0, -36), xycoords="axes fraction", textcoords="offset points", va="top",
        fontsize=7.5, color=NOTE,
    )  # fmt: skip


def scale_axis(
    ax: Axes,
    which: Literal["x", "y"],
    values: Sequence[float],
    may_be_log: bool = True,
    from_zero: bool = True,
) -> None:
    """Set an axis of numbers: logarithmic if they are positive and far apart, else from 0; ticks written out."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axis = ax.xaxis if which == "x" else ax.yaxis
    low, high = min(values), max(values)
    if may_be_log and low > 0 and high > _LOG_ABOVE * low:
        ax.set(**{f"{which}scale": "log"})
        axis.set_major_locator(
            LogLocator(subs=(1.0, 2.0, 5.0) if high < _MANY_DECADES * low else (1.0,), numticks=12)
        )
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
        if from_zero and low >= 0:
            ax.set(**{f"{which}lim": (0, 1.05 * high or 1)})
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def tick_values(ax: Axes, values: Sequence[float], labels: Sequence[str]) -> bool:
    """Set a horizontal axis of few chosen numbers: a tick each; return False if there is no room for that.

    Logarithmic if the numbers are far apart.
    """
    import numpy as np
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    is_log = values[0] > 0 and values[-1] >= _LOG_TICKS_ABOVE * values[0]
    places = np.log(values) if is_log else np.array(values)
    if len(values) > 1 and np.diff(places).min() < _TICK_ROOM * (places[-1] - places[0]):
        return False
    if is_log:
        ax.set(xscale="log")
    ax.xaxis.set_major_locator(FixedLocator(list(values)))
    ax.xaxis.set_major_formatter(FixedFormatter(list(labels)))
    ax.xaxis.set_minor_locator(NullLocator())
    return True
