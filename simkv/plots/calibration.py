"""How well calibrated kernels meet measurements that their fit has not seen: one figure a group."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simkv.plots.style import INK, NOTE, PALE, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from simkv.results.series import Floats

# column of a table of measurements -> what its axis says
_SIZES = {
    "m": "rows of the product, tokens",
    "chunk": "chunk, tokens",
    "context": "context of a sequence, tokens",
    "decode_context": "context of a decode, tokens",
    "batch": "sequences",
    "tokens": "rows, tokens",
    "num_bytes": "message, bytes",
}
_METRICS = (  # column, label, look of its points and lines
    ("physical", "form alone", {"color": "#d55e00", "marker": "^", "linestyle": "--"}),
    ("residual", "with residual", {"color": "#0072b2", "marker": "o", "linestyle": "-"}),
)
_FEW = 60  # up to so many points each is drawn in the right panel
_MAX_POINTS = 3000
_SHOWN = 0.5  # errors beyond are drawn at the edge
_NEAR = 0.1  # the band around equality


def kernel_errors(points: pd.DataFrame, size: str, title: str) -> Figure:
    """Draw held-out points of one group: predicted over measured seconds, and the error over a size.

    points   columns `size`, ``seconds``, and the predictions ``physical`` and ``residual``, in seconds
    size     the column that the right panel goes along
    """
    import matplotlib.pyplot as plt

    with style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 4.1), width_ratios=(1.0, 1.25))
        _draw_equality(left, _thinned(points))
        _draw_errors(right, points, size)
        figure.suptitle(
            f"{title}: {len(points):,} held-out points", x=0.01, ha="left", fontsize=10, weight="bold"
        )
        handles, labels = right.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, columnspacing=2.0)
    return figure


def save_kernel_errors(
    groups: Iterable[tuple[str, str, pd.DataFrame]], output: Path, title: str
) -> list[Path]:
    """Draw (group, size, points) into files named after `output`; return them.

    Raises ResultsError if one cannot be written.
    """
    import matplotlib

    matplotlib.use("Agg")
    from simkv.plots.draw import write_figure

    files = []
    for name, size, points in groups:
        files.append(output.with_suffix(f".{name.replace('/', '_')}.png"))
        write_figure(kernel_errors(points, size, f"{title} {name}"), files[-1])
    return files


def _draw_equality(ax: Axes, points: pd.DataFrame) -> None:
    from matplotlib.ticker import EngFormatter

    measured = points["seconds"].to_numpy(float)
    size = 4.0 if len(points) <= _FEW else 2.6
    for column, _, look in _METRICS:
        ax.plot(
            measured, points[column], look["marker"], color=look["color"], markersize=size, alpha=0.55,
            markeredgewidth=0,
        )  # fmt: skip
    ends = np.array([measured.min() / 1.3, measured.max() * 1.3])
    ax.plot(ends, ends, color=INK, linewidth=0.8)
    for factor in (1 - _NEAR, 1 + _NEAR):
        ax.plot(ends, factor * ends, color=PALE, linewidth=0.8, linestyle=(0, (1, 2)))
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="measured", ylabel="predicted")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(EngFormatter(unit="s"))
        axis.set_minor_formatter("")
    ax.set_title(f"equal, and ± {_NEAR:.0%}".replace("%", " %"), fontsize=8, weight="normal", color=NOTE)


def _draw_errors(ax: Axes, points: pd.DataFrame, size: str) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

    sizes, measured = points[size].to_numpy(float), points["seconds"].to_numpy(float)
    for column, label, look in _METRICS:
        errors = np.clip(points[column].to_numpy(float) / measured - 1.0, -_SHOWN, _SHOWN)
        if len(points) <= _FEW:
            ax.plot(sizes, errors, look["marker"], color=look["color"], markersize=4, label=label)
            continue
        places, (low, middle, high) = _quantiles(sizes, errors)
        ax.plot(
            places, middle, look["linestyle"], color=look["color"], label=f"{label}: median, and 10 to 90 %"
        )
        if column == "residual":
            ax.fill_between(places, low, high, color=look["color"], alpha=0.18, linewidth=0)
        else:
            for edge in (low, high):
                ax.plot(places, edge, ":", color=look["color"], linewidth=1.0)
    ax.axhline(0.0, color=INK, linewidth=0.8)
    if sizes.min() > 0 and sizes.max() > 20 * sizes.min():
        ax.set_xscale("log")
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.xaxis.set_minor_formatter("")
    ax.yaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10], integer=False))
    ax.yaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=0, symbol=" %"))
    limit = max(0.05, *(abs(end) for end in ax.get_ylim()))
    ax.set(xlabel=_SIZES.get(size, size), ylabel="predicted / measured − 1", ylim=(-limit, limit))
    ax.set_title("error over size", fontsize=8, weight="normal", color=NOTE)


def _quantiles(sizes: Floats, errors: Floats) -> tuple[Floats, Any]:
    """Return places along the sizes, and the quantiles 10, 50 and 90 % of the errors at each."""
    steps = np.round(2 * np.log2(np.maximum(sizes, 1.0)))  # two a doubling
    kept = [steps == step for step in np.unique(steps)]
    places = np.array([float(np.exp(np.log(np.maximum(sizes[own], 1.0)).mean())) for own in kept])
    return places, np.array([np.quantile(errors[own], (0.1, 0.5, 0.9)) for own in kept]).T


def _thinned(points: pd.DataFrame) -> pd.DataFrame:
    step = -(-len(points) // _MAX_POINTS)
    return points.iloc[::step]
