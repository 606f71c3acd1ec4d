"""How the latencies are distributed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simkv.plots.style import LINES, PALE, axes_or_new, say_empty, style
from simkv.results.results import Results
from simkv.results.series import Floats, Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_POINTS = 1000
_LOG_ABOVE = 20  # largest over smallest latency
_MS_PER_S = 1e3


def latency_cdf(results: Results, ax: Axes | None = None) -> Axes:
    """Draw which share of TTFT, TPOT, ITL and E2EL stays below a latency in seconds; ITL is over tokens."""
    with style():
        from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, PercentFormatter

        ax = axes_or_new(ax)
        curves = {name: _cdf(*sample) for name, sample in _samples(results).items() if len(sample[0])}
        for name, (seconds, shares) in curves.items():
            color, linestyle = LINES[name]
            ax.step(seconds, shares, where="post", label=name.upper(), color=color, linestyle=linestyle)
        positive = [value for seconds, _ in curves.values() for value in seconds if value > 0]
        if not positive:
            say_empty(ax, "no request finished")
        elif max(positive) > _LOG_ABOVE * min(positive):
            ax.set_xscale("log")
            ax.xaxis.set_major_locator(LogLocator(numticks=8))
        else:
            ax.xaxis.set_major_locator(MaxNLocator(6))
        ax.xaxis.set_major_formatter(EngFormatter(unit="s"))
        ax.yaxis.set_major_formatter(PercentFormatter(xmax=1.0, symbol=" %"))
        ax.set(title="Latency", xlabel="latency", ylabel="share below", ylim=(0, 1.02))
        ax.axhline(0.99, color=PALE, linewidth=0.8, linestyle=(0, (1, 2)))
        ax.text(1.005, 0.99, "99 %", transform=ax.get_yaxis_transform(), va="center", fontsize=7, color=PALE)
        if curves:
            ax.legend(
                loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, columnspacing=1.2, borderaxespad=0.2
            )
    return ax


def _samples(results: Results) -> dict[str, tuple[Floats, Ints]]:
    samples: dict[str, tuple[Floats, Ints]] = {}
    for name in ("ttft", "tpot", "e2el"):
        latencies_ms = results.requests[f"{name}_ms"].dropna().to_numpy(dtype=float)
        samples[name] = latencies_ms / _MS_PER_S, np.ones(len(latencies_ms), dtype=np.int64)
    itls = results.itls
    itl = itls["gap_ms"].to_numpy(dtype=float) / _MS_PER_S, itls["num_tokens"].to_numpy()
    return {"ttft": samples["ttft"], "tpot": samples["tpot"], "itl": itl, "e2el": samples["e2el"]}


def _cdf(seconds: Floats, counts: Ints) -> tuple[Floats, Floats]:
    """Return latencies in order and the share at or below each, thinned to what a picture can show."""
    order = np.argsort(seconds, kind="stable")
    seconds, shares = seconds[order], np.cumsum(counts[order]) / counts.sum()
    if len(seconds) > _MAX_POINTS:
        kept = np.unique(np.searchsorted(shares, np.linspace(shares[0], 1.0, _MAX_POINTS)))
        seconds, shares = seconds[kept.clip(max=len(seconds) - 1)], shares[kept.clip(max=len(shares) - 1)]
    return np.insert(seconds, 0, seconds[0]), np.insert(shares, 0, 0.0)
