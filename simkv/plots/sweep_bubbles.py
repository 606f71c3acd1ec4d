"""Busy and idle time by cause at each point of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simkv.errors import ResultsError
from simkv.plots.bubbles import CAUSE_FILLS, bubbles_by
from simkv.plots.style import say_below
from simkv.plots.sweep_table import (
    averaged_over,
    is_done,
    left_out,
    nothing_ran,
    prepare,
    require_column,
    short_name,
    shown,
    split_layout,
    swept_fields,
)
from simkv.results.series import BUSY_PARTS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MAX_BARS = 32
_METRICS = (
    "mean_stage_utilization",
    *(f"{part}_time_share" for part in BUSY_PARTS),
    *(f"idle_{cause}_share" for cause in CAUSE_FILLS),
)


def sweep_bubbles(frame: pd.DataFrame, by: str | Sequence[str] | None = None, ax: Axes | None = None) -> Axes:
    """Draw a bar for each value of the fields `by`: the shares of all stages' time, busy and idle by cause.

    by   by default all swept fields (`parallel` ones as layout); points that differ in none are averaged

    Raises ResultsError for a column that the table lacks, or more than 32 bars.
    """
    table = prepare(frame)
    done = is_done(table)
    if not done.any():
        return nothing_ran(table, ax)
    names = [by] if isinstance(by, str) else list(dict.fromkeys(by or ()))
    for name in names:
        require_column(table, "by", name)
    if missing := [name for name in _METRICS if name not in table]:
        raise ResultsError(f"bubbles: wanted a table with idle times by cause, got one without {missing[0]}")
    names = names or split_layout(table, [name for name in swept_fields(table) if name != "seed"])
    groups = table[done].groupby(names, dropna=False, sort=False) if names else None
    means = groups[list(_METRICS)].mean() if groups is not None else table.loc[done, list(_METRICS)]
    if len(means) > MAX_BARS:
        raise ResultsError(
            f"by: wanted at most {MAX_BARS} bars, got {len(means)} ({' × '.join(names)}); name fewer"
        )
    bars = means.reset_index()
    title = ", ".join(map(short_name, names)) or "point"
    bars[title] = [
        ", ".join(shown(name, value) for name, value in zip(names, row, strict=True))
        for row in bars[names].itertuples(index=False)
    ]
    ax = bubbles_by(bars, title, ax)
    num_points = int(groups.size().max()) if groups is not None else 1
    notes = (averaged_over(table, names, num_points), left_out(table, *_METRICS))
    say_below(ax, "\n".join(filter(None, notes)))
    return ax
