"""Pictures of a run: each takes `Results`, fresh or loaded, draws on given axes or its own, and returns them.

Matplotlib is imported when something is drawn.
"""

from collections.abc import Callable
from typing import Any

from simkv.plots.breakdown import breakdown
from simkv.plots.latency import latency_cdf
from simkv.plots.overview import overview
from simkv.plots.timeline import timeline

KINDS: dict[str, Callable[..., Any]] = {
    "latency": latency_cdf,
    "timeline": timeline,
    "breakdown": breakdown,
    "overview": overview,
}

__all__ = ["KINDS", "breakdown", "latency_cdf", "overview", "timeline"]
