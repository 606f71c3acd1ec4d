"""Pictures of a run, which take `Results`, fresh or loaded, and of a sweep, which take the table of its points.

Each draws on given axes or its own, and returns them. Matplotlib is imported when something is drawn.
"""

from collections.abc import Callable
from typing import Any

from simkv.plots.breakdown import breakdown
from simkv.plots.bubbles import bubbles
from simkv.plots.curve import curve
from simkv.plots.frontier import frontier
from simkv.plots.gantt import gantt
from simkv.plots.heatmap import heatmap
from simkv.plots.latency import latency_cdf
from simkv.plots.ledger import ledger
from simkv.plots.overview import overview
from simkv.plots.sweep_bubbles import sweep_bubbles
from simkv.plots.sweep_table import read_points
from simkv.plots.timeline import timeline

KINDS: dict[str, Callable[..., Any]] = {
    "latency": latency_cdf,
    "timeline": timeline,
    "breakdown": breakdown,
    "overview": overview,
    "ledger": ledger,
    "bubbles": bubbles,
    "gantt": gantt,
}

SWEEP_KINDS: dict[str, Callable[..., Any]] = {
    "frontier": frontier,
    "curve": curve,
    "heatmap": heatmap,
    "bubbles": sweep_bubbles,
}

__all__ = [
    "KINDS", "SWEEP_KINDS", "breakdown", "bubbles", "curve", "frontier", "gantt", "heatmap", "latency_cdf",
    "ledger", "overview", "read_points", "sweep_bubbles", "timeline",
]  # fmt: skip
