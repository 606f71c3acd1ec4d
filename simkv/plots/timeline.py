"""Requests and KV cache over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simkv.plots.style import LINES, axes_or_new, say_empty, style
from simkv.results.results import Results
from simkv.results.series import Floats, StateSeries, state_series
from simkv.units import NS_PER_S

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NUM_BINS = 800  # more than that a picture cannot show


def timeline(results: Results, ax: Axes | None = None) -> Axes:
    """Draw requests running and waiting (left) and the KV cache in use in % (right) over simulated seconds.

    Sums over replicas. A run of many steps is drawn as its means over short bins of time.
    """
    with style():
        from matplotlib.ticker import MaxNLocator

        ax = axes_or_new(ax)
        ax.yaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 2.5, 5, 10]))
        summary = results.summary
        steps = results.steps
        columns = {
            name: steps[name].to_numpy()
            for name in ("replica", "scheduled_ns", "end_ns", "num_running", "num_waiting", "num_free_blocks")
        }
        series = state_series(columns, summary["num_gpu_blocks"])
        ax.set(title="Requests and KV cache", xlabel="simulated time (s)", ylabel="requests")
        usage_ax = ax.twinx()
        usage_ax.set(ylabel="KV cache in use (%)", ylim=(0, 103))
        usage_ax.grid(False)
        usage_ax.spines["right"].set_visible(True)
        if not len(series.times_ns):
            say_empty(ax, "no step ran")
            return ax
        seconds, running, waiting, used = _points(series)
        usage = 100 * used / max(1, (summary["num_gpu_blocks"] - 1) * summary["num_replicas"])
        kv = LINES["kv"]
        usage_ax.fill_between(seconds, usage, step="post", color=kv.color, alpha=0.12, linewidth=0)
        handles = [
            ax.step(seconds, running, where="post", label="running", **LINES["running"]._asdict())[0],
            ax.step(seconds, waiting, where="post", label="waiting", **LINES["waiting"]._asdict())[0],
            usage_ax.step(seconds, usage, where="post", label="KV cache", linewidth=1.0, **kv._asdict())[0],
        ]
        ax.set_ylim(bottom=0, top=1.1 * max(1.0, running.max(), waiting.max()))
        ax.set_xlim(0, seconds[-1])
        # the lines are about requests: they go over the area of the other axes
        ax.set_zorder(usage_ax.get_zorder() + 1)
        ax.patch.set_visible(False)
        ax.legend(handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, borderaxespad=0.2)
    return ax


def _points(series: StateSeries) -> tuple[Floats, Floats, Floats, Floats]:
    """Return seconds and the values from then on: as they are, or binned if they are many."""
    values = (series.num_running, series.num_waiting, series.num_used_blocks)
    if len(series.times_ns) <= _NUM_BINS:
        running, waiting, used = (value.astype(float) for value in values)
        return series.times_ns / NS_PER_S, running, waiting, used
    edges_ns = np.linspace(series.times_ns[0], series.times_ns[-1], _NUM_BINS + 1)
    running, waiting, used = (np.append(series.binned_mean(value, edges_ns), 0.0) for value in values)
    return edges_ns / NS_PER_S, running, waiting, used
