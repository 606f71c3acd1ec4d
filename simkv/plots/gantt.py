"""Batches on their stages over time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simkv.errors import ResultsError
from simkv.plots.bubbles import CAUSE_FILLS
from simkv.plots.style import INK, PALE, axes_or_new, say_below, say_empty, style
from simkv.results.bubbles import idle_intervals
from simkv.results.bubbles_history import CAUSE_NAMES, CAUSES
from simkv.results.bubbles_replay import Idle
from simkv.results.results import Results
from simkv.units import NS_PER_S

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DECODE = np.array([0x4F, 0x9B, 0xC9]) / 255
_PREFILL = np.array([0x0B, 0x2E, 0x4D]) / 255
_BAR_HEIGHT = 0.8
_IDLE_HEIGHT = 0.56
_NUM_STEPS = 200
_SMALLEST = 1e-3  # of the picture: less is not in the legend
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))  # the largest in which the picture is a few wide


def gantt(
    results: Results,
    ax: Axes | None = None,
    first_step: int | None = None,
    num_steps: int = _NUM_STEPS,
    replica: int = 0,
) -> Axes:
    """Draw the batches of a replica on its stages, the first stage on top; between them idle time by cause.

    first_step   the first batch drawn, counted in the replica; default: so that the middle of the run is seen
    num_steps    how many batches are drawn at most
    replica      whose batches

    A batch is the darker the more of its tokens are prefill. An idle interval is filled by its causes, in the
    order of precedence from its end: where it began and ended is exact, where the causes meet inside is not.
    Raises ResultsError for a batch or a replica that the run does not have.
    """
    num_stages, num_replicas = results.summary["num_stages"], results.summary["num_replicas"]
    _require_within("replica", replica, 0, num_replicas - 1)
    _require_within("num_steps", num_steps, 1, None)
    tables = results.stage_tables
    rows = tables.rows_of(replica)
    if first_step is not None:
        _require_within("first_step", first_step, 0, max(len(rows) - 1, 0))
    with style():
        ax = axes_or_new(ax, width_in=9.0, height_in=1.7 + 0.42 * num_stages)
        ax.set(title="Batches on the pipeline stages")
        ax.grid(False)
        if not len(rows):
            say_empty(ax, "no step ran")
            return ax
        first = max(0, (len(rows) - num_steps) // 2) if first_step is None else first_step
        last = min(first + num_steps, len(rows))
        starts_ns, ends_ns = tables.by_stage("start_ns", rows), tables.by_stage("end_ns", rows)
        low_ns = int(starts_ns[first, 0]) if first else tables.start_ns
        high_ns = int(ends_ns[last - 1, -1]) if last < len(rows) else max(tables.end_ns, int(ends_ns[-1, -1]))
        scale, unit = next(u for u in _UNITS if high_ns - low_ns > 3 * u[0] * NS_PER_S or u is _UNITS[-1])
        frame = _Frame(ax, low_ns, high_ns, 1 / (NS_PER_S * scale))
        for idle in idle_intervals(tables, replica):
            frame.draw_idle(idle)
        area_ns = (high_ns - low_ns) * num_stages
        seen = {cause for cause, ns in frame.idle_ns.items() if ns > _SMALLEST * area_ns}
        # Batches issued before or after those asked for run at the same time on other stages.
        shown = np.flatnonzero((ends_ns[:, -1] > low_ns) & (starts_ns[:, 0] < high_ns))
        prefill = _prefill_shares(results, rows[shown])
        for stage in range(num_stages):
            for batch, share in zip(shown, prefill, strict=True):
                frame.draw_batch(stage, int(starts_ns[batch, stage]), int(ends_ns[batch, stage]), share)
        ax.set_xlim(0, (high_ns - low_ns) * frame.per_ns)
        ax.set_ylim(num_stages - 0.5, -0.5)
        ax.set_yticks(range(num_stages), [f"stage {stage}" for stage in range(num_stages)])
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel(f"time from {low_ns / NS_PER_S:,.6g} s on ({unit})")
        _legend(ax, prefill, seen)
        of_replica = f" of replica {replica}" if num_replicas > 1 else ""
        batches = f"batches {first:,} to {last - 1:,}" if last - first > 1 else f"batch {first:,}"
        say_below(ax, f"{batches} of {len(rows):,}{of_replica}")
    return ax


def _require_within(name: str, value: int, least: int, most: int | None) -> None:
    if value < least or (most is not None and value > most):
        wanted = f"{least} or more" if most is None else f"{least} to {most}" if most > least else f"{least}"
        raise ResultsError(f"{name}: wanted {wanted}, got {value}")


def _prefill_shares(results: Results, rows: npt.NDArray[np.int64]) -> list[float]:
    steps = results.steps.iloc[rows]
    return (steps["num_prefill_tokens"] / steps["num_tokens"].clip(lower=1)).tolist()


class _Frame:
    """Draws what lies between two times."""

    def __init__(self, ax: Axes, low_ns: int, high_ns: int, per_ns: float):
        self.ax, self.low_ns, self.high_ns, self.per_ns = ax, low_ns, high_ns, per_ns
        self.idle_ns: Counter[str] = Counter()

    def draw_batch(self, stage: int, start_ns: int, end_ns: int, prefill_share: float) -> None:
        """Draw a batch on a stage."""
        color = _DECODE + (_PREFILL - _DECODE) * prefill_share
        self._bar(stage, start_ns, end_ns, _BAR_HEIGHT, color=color, edgecolor="white", linewidth=0.2)

    def draw_idle(self, idle: Idle) -> None:
        """Fill an idle interval from its end, cause by cause in the order of precedence."""
        end_ns = idle.end_ns
        for cause, share_ns in zip(CAUSES, idle.shares, strict=True):
            if share_ns:
                color, hatch = CAUSE_FILLS[cause]
                look = {"color": color, "hatch": hatch, "edgecolor": PALE, "linewidth": 0.0}
                self.idle_ns[cause] += self._bar(idle.stage, end_ns - share_ns, end_ns, _IDLE_HEIGHT, **look)
            end_ns -= share_ns

    def _bar(self, stage: int, start_ns: int, end_ns: int, height: float, **look: Any) -> int:
        """Draw what lies within; return how long that is."""
        start_ns, end_ns = max(start_ns, self.low_ns), min(end_ns, self.high_ns)
        if start_ns >= end_ns:
            return 0
        left, width = (start_ns - self.low_ns) * self.per_ns, (end_ns - start_ns) * self.per_ns
        self.ax.barh(stage, width, height, left=left, **look)
        return end_ns - start_ns


def _legend(ax: Axes, prefill: list[float], causes: set[str]) -> None:
    from matplotlib.patches import Patch

    handles = []
    if min(prefill) < 1:
        handles.append(Patch(facecolor=tuple(_DECODE), label="decode"))
    if max(prefill) > 0:
        handles.append(Patch(facecolor=tuple(_PREFILL), label="prefill"))
    for cause, (color, hatch) in CAUSE_FILLS.items():
        if cause in causes:
            name = CAUSE_NAMES[cause]
            handles.append(Patch(facecolor=color, hatch=hatch, edgecolor=INK, linewidth=0.3, label=name))
    ax.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.02), borderaxespad=0.0, handlelength=2.0
    )
