"""A run on one page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simkv.plots.breakdown import breakdown
from simkv.plots.latency import latency_cdf
from simkv.plots.style import style
from simkv.plots.timeline import timeline
from simkv.results.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZE_IN = (10.0, 6.0)


def overview(results: Results) -> Figure:
    """Draw timeline, latencies and breakdown, under a line with the run's main figures."""
    with style():
        import matplotlib.pyplot as plt

        figure = plt.figure(figsize=_SIZE_IN)
        axes = figure.subplot_mosaic([["timeline", "timeline"], ["latency", "breakdown"]])
        timeline(results, axes["timeline"])
        latency_cdf(results, axes["latency"])
        breakdown(results, axes["breakdown"])
        figure.suptitle(_headline(results), x=0.01, ha="left", fontsize=10)
    return figure


def _headline(results: Results) -> str:
    summary: dict[str, Any] = results.summary
    name = results.scenario.get("name")
    figures = (
        f"{summary['completed']:,} of {summary['num_requests']:,} requests",
        f"{summary['output_throughput']:,.0f} output tok/s",
        f"P99 TTFT {summary['p99_ttft_ms'] / 1e3:,.2f} s",
        f"P99 TPOT {summary['p99_tpot_ms']:,.1f} ms",
        f"mean KV cache use {100 * summary['mean_kv_cache_usage_perc']:.0f} %",
    )
    return "   ·   ".join((*([str(name)] if name else []), *figures))
