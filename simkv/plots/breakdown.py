"""What each pipeline stage did with its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simkv.plots.style import FILLS, INK, axes_or_new, say_empty, style
from simkv.results.results import Results
from simkv.results.series import STAGE_PARTS, Floats, stage_parts
from simkv.units import NS_PER_S

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NUM_BINS = 120
_STAGE_HEIGHT = 0.88  # of a stage's row, the rest is the gap to the next one
_LABELS = {"comm": "communication"}
_COLUMNS = ("step", "stage", "start_ns", "end_ns", "compute_ns", "memory_ns", "comm_ns", "host_ns")


def breakdown(results: Results, ax: Axes | None = None) -> Axes:
    """Draw what each pipeline stage did over simulated seconds: compute, memory, comm, host and idle.

    One row a stage, the first on top; a row's full height is 100 % of the time. Host is waiting for the CPU
    to launch kernels, inside a step.
    """
    with style():
        ax = axes_or_new(ax)
        num_stages = results.summary["num_stages"]
        ax.set(title="Where the time goes", xlabel="simulated time (s)", ylabel="share of time")
        ax.grid(False)
        if not len(results.stages):
            say_empty(ax, "no step ran")
            return ax
        edges_s, shares = _shares(results)
        for stage in range(num_stages):
            base = float(num_stages - 1 - stage) * np.ones(len(edges_s) - 1)
            for part in STAGE_PARTS:
                top = base + _STAGE_HEIGHT * shares[part][stage]
                color, hatch = FILLS[part]
                label = _LABELS.get(part, part) if stage == 0 else None
                ax.stairs(
                    top, edges_s, baseline=base, fill=True, label=label,
                    facecolor=color, hatch=hatch, edgecolor=INK if hatch else color, linewidth=0,
                )  # fmt: skip
                base = top
        ax.set_xlim(edges_s[0], edges_s[-1])
        ax.set_ylim(0, num_stages - 1 + _STAGE_HEIGHT)
        _label_rows(ax, num_stages)
        ax.legend(
            loc="upper left", bbox_to_anchor=(0.0, -0.22), ncols=len(STAGE_PARTS), columnspacing=1.0,
            handlelength=1.6, borderaxespad=0.0,
        )  # fmt: skip
    return ax


def _shares(results: Results) -> tuple[Floats, dict[str, Floats]]:
    stages = {name: results.stages[name].to_numpy() for name in _COLUMNS}
    summary = results.summary
    edges_ns = np.linspace(0.0, float(stages["end_ns"].max()), _NUM_BINS + 1)
    seconds = stage_parts(
        stages, results.steps["replica"].to_numpy(), edges_ns, summary["num_stages"], summary["num_replicas"]
    )
    edges_s = edges_ns / NS_PER_S
    return edges_s, {part: values / np.diff(edges_s) for part, values in seconds.items()}


def _label_rows(ax: Axes, num_stages: int) -> None:
    if num_stages == 1:
        ax.set_yticks([0.0, _STAGE_HEIGHT / 2, _STAGE_HEIGHT], ["0 %", "50 %", "100 %"])
        return
    rows = range(num_stages)
    ax.set_yticks(
        [row + _STAGE_HEIGHT / 2 for row in rows], [f"stage {num_stages - 1 - row}" for row in rows]
    )
    ax.tick_params(axis="y", length=0)
