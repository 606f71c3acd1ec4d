"""Where each stage's wall time went, busy and idle, and how that moves along a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simkv.plots.style import FILLS, INK, Fill, axes_or_new, say_empty, style
from simkv.results.bubbles_history import CAUSE_NAMES, CAUSES
from simkv.results.results import Results
from simkv.results.series import BUSY_PARTS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# Warm for what the layout costs, green for what the load does, grey for nothing to do; a hatch each.
CAUSE_FILLS = {
    "stage_imbalance": Fill("#b3452c", "\\\\\\\\"),
    "chunk_imbalance": Fill("#dd8264", "||||"),
    "transfer": Fill("#f2c1ae", "++++"),
    "host": Fill("#c9a227", "xx"),
    "fill_drain": Fill("#e8d58a", "oo"),
    "max_num_seqs": Fill("#2e7d5b", "----"),
    "kv_limited": Fill("#74b58f", "////"),
    "token_dependency": Fill("#a9d3ba", "..."),
    "too_few_requests": Fill("#d5eadb", "//"),
    "no_work": Fill("#f4f4f4", ""),
}
_PART_NAMES = {"comm": "communication", "host": "host (in the step)"}
_BUSY_FILLS = {part: FILLS[part] for part in BUSY_PARTS}
_SMALLEST = 3e-3  # of the time: less is hardly seen, and left out of the legend
_BAR_HEIGHT = 0.72
_LONGEST_TITLE = 24  # letters of the field in it


def bubbles(results: Results, ax: Axes | None = None) -> Axes:
    """Draw a bar a pipeline stage: the shares of its wall time, busy by part and idle by cause.

    Replicas are averaged. What takes less than 0.3 % of the time on every stage is not in the legend.
    """
    with style():
        num_stages = results.summary["num_stages"]
        ax = axes_or_new(ax, height_in=1.9 + 0.32 * num_stages)
        ax.set(title="Busy and idle, by cause", xlabel="share of wall time (%)")
        if not len(results.bubbles):
            say_empty(ax, "no time passed")
            return ax
        shares = results.bubbles.groupby(["state", "cause", "stage"])["share"].mean()
        rows = {
            (state, cause): [float(shares[state, cause, stage]) for stage in range(num_stages)]
            for state, causes in (("busy", BUSY_PARTS), ("idle", tuple(CAUSE_FILLS)))
            for cause in causes
        }
        stack(ax, rows, [f"stage {stage}" for stage in range(num_stages)])
    return ax


def bubbles_by(table: pd.DataFrame, by: str, ax: Axes | None = None) -> Axes:
    """Draw a bar a point of a sweep: the mean shares of its stages' time, busy and idle by cause.

    table   one row a point, with the keys of a summary and a column `by` whose values name the bars
    """
    with style():
        ax = axes_or_new(ax, height_in=1.9 + 0.32 * max(len(table), 1))
        name = by.replace("_", " ")
        # A long name would run into the legend; it stands along the axis as well.
        title = f"Busy and idle, by {name if len(name) <= _LONGEST_TITLE else 'cause'}"
        ax.set(title=title, xlabel="share of wall time of all stages (%)")
        if not len(table):
            say_empty(ax, "no point ran")
            return ax
        busy = table["mean_stage_utilization"]
        rows = {
            ("busy", part): (busy * table[f"{part}_time_share"]).astype(float).tolist() for part in BUSY_PARTS
        }
        rows |= {
            ("idle", cause): table[f"idle_{cause}_share"].astype(float).tolist() for cause in CAUSE_FILLS
        }
        stack(ax, rows, [str(value) for value in table[by]])
        ax.set_ylabel(name)
    return ax


def stack(ax: Axes, rows: dict[tuple[str, str], list[float]], labels: Sequence[str]) -> None:
    """Draw a bar a label, the first on top, of parts with a share a label each; beside it what they are."""
    places = range(len(labels))
    left = [0.0] * len(labels)
    for (state, cause), shares in rows.items():
        color, hatch = (_BUSY_FILLS if state == "busy" else CAUSE_FILLS)[cause]
        name = _PART_NAMES.get(cause, cause) if state == "busy" else CAUSE_NAMES[cause]
        widths = [100 * share for share in shares]
        label = name if max(shares) >= _SMALLEST else None
        ax.barh(
            places, widths, _BAR_HEIGHT, left=left, label=label, color=color, hatch=hatch,
            edgecolor=INK, linewidth=0.4,
        )  # fmt: skip
        left = [start + width for start, width in zip(left, widths, strict=True)]
    ax.set_yticks(list(places), list(labels))
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.set_xlim(0, 100)
    ax.grid(False, axis="y")
    handles, names = ax.get_legend_handles_labels()
    ax.legend(
        handles, names, loc="upper left", bbox_to_anchor=(1.01, 1.02), borderaxespad=0.0, handlelength=2.2,
        handleheight=1.2,
    )  # fmt: skip


def idle_causes(results: Results) -> dict[str, float]:
    """Return the idle causes of a run that can be seen, the largest first: share of all stages' wall time."""
    summary: dict[str, Any] = results.summary
    shares = {cause: float(summary[f"idle_{cause}_share"]) for cause in CAUSES}
    return dict(sorted(((c, s) for c, s in shares.items() if s >= _SMALLEST), key=lambda item: -item[1]))
