"""The one look of all plots: quiet, and readable in grey: lines and fills differ by more than colour."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


@contextmanager
def style() -> Iterator[None]:
    """Apply the look to what is drawn inside; the global settings are as before afterwards."""
    from matplotlib import rc_context

    with rc_context(_RC):
        yield


def axes_or_new(ax: Axes | None, width_in: float = 7.0, height_in: float = 3.6) -> Axes:
    """Return the given axes, or those of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width_in, height_in))[1]


def say_empty(ax: Axes, text: str) -> None:
    """Write into axes why there is nothing to see."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=PALE)
