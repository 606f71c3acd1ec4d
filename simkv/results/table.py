"""Text for the terminal: the table of ``vllm bench serve``, and what it does not say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simkv.results.metrics import INPUT_KINDS
from simkv.results.series import BUSY_PARTS

_WIDTH = 50
_BAR_WIDTH = 20
_SECTIONS = {
    "ttft": ("TTFT", "Time to First Token"),
    "tpot": ("TPOT", "Time per Output Token (excl. 1st token)"),
    "itl": ("ITL", "Inter-token Latency"),
    "e2el": ("E2EL", "End-to-end Latency"),
}
_PART_NAMES = {"comm": "communication"}


def format_bench_table(summary: Mapping[str, Any], metrics: Sequence[str] = ("ttft", "tpot", "itl")) -> str:
    """Return the table that ``vllm bench serve`` prints; `metrics` as its ``--percentile-metrics``."""
    lines = [
        _header(" Serving Benchmark Result ", "="),
        _row("Successful requests:", summary["completed"]),
        _row("Failed requests:", summary["failed"]),
    ]
    if summary.get("max_concurrency") is not None:
        lines.append(_row("Maximum request concurrency:", summary["max_concurrency"]))
    if isinstance(summary.get("request_rate"), int | float):
        lines.append(_row("Request rate configured (RPS):", float(summary["request_rate"])))
    lines += [
        _row("Benchmark duration (s):", float(summary["duration"])),
        _row("Total input tokens:", summary["total_input_tokens"]),
        _row("Total generated tokens:", summary["total_output_tokens"]),
        _row("Request throughput (req/s):", summary["request_throughput"]),
    ]
    if summary["request_goodput"] is not None:
        lines.append(_row("Request goodput (req/s):", summary["request_goodput"]))
    lines += [
        _row("Output token throughput (tok/s):", summary["output_throughput"]),
        _row("Peak output token throughput (tok/s):", summary["max_output_tokens_per_s"]),
        _row("Peak concurrent requests:", float(summary["max_concurrent_requests"])),
        _row("Total token throughput (tok/s):", summary["total_token_throughput"]),
    ]
    for metric in metrics:
        name, header = _SECTIONS[metric]
        lines.append(_header(header, "-"))
        lines += [
            _row(f"{statistic} {name} (ms):", summary[f"{statistic.lower()}_{metric}_ms"])
            for statistic in ("Mean", "Median", "P99")
        ]
    return "\n".join([*lines, "=" * _WIDTH])


def _header(text: str, fill: str) -> str:
    return f"{text:{fill}^{_WIDTH}}"


def _row(label: str, value: int | float) -> str:
    return f"{label:<40} {value:<10.2f}" if isinstance(value, float) else f"{label:<40} {value:<10}"


def format_breakdown(summary: Mapping[str, Any]) -> str:
    """Return where the stages' busy time went, summed over stages, and what kind of inputs it rests on."""
    lines = [_header("Step Time", "-"), f"{'':<26} {'seconds':>12} {'share':>10}"]
    for part in BUSY_PARTS:
        seconds, share = summary[f"{part}_time_s"], summary[f"{part}_time_share"]
        lines.append(f"{_PART_NAMES.get(part, part):<26} {seconds:>12.3f} {share:>10.1%}")
    total_s = sum(summary[f"{part}_time_s"] for part in BUSY_PARTS)
    lines.append(f"{'busy':<26} {total_s:>12.3f}")
    lines.append(f"{'CPU before steps':<26} {summary['scheduling_time_s']:>12.3f}")
    shares = {kind: summary[f"{kind}_input_share"] for kind in INPUT_KINDS}
    named = ", ".join(f"{_percent(share)} {kind}" for kind, share in shares.items() if share)
    lines.append(f"inputs: {named or 'none'}")
    if summary.get("kernel_tables"):
        lines.append(f"kernels: as measured on {summary['kernel_tables']}")
    return "\n".join(lines)


def _percent(share: float) -> str:
    """A whole percentage, but neither nothing for something nor everything for almost everything.

    >>> _percent(0.5), _percent(0.001), _percent(0.999)
    ('50 %', '<1 %', '>99 %')
    """
    if 0 < share < 0.01:
        return "<1 %"
    return ">99 %" if 0.99 < share < 1 else f"{share:.0%}".replace("%", " %")


def format_stages(summary: Mapping[str, Any]) -> str:
    """Return a line for each pipeline stage: the share of the run during which its kernels ran."""
    lines = [_header("Stage Utilization", "-")]
    for stage, share in enumerate(summary["stage_utilization"]):
        filled = round(share * _BAR_WIDTH)
        bar = "█" * filled + "·" * (_BAR_WIDTH - filled)
        lines.append(f"{f'stage {stage}':<18} {bar} {share:>10.1%}")
    return "\n".join(lines)
