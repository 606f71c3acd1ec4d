"""Two runs side by side: what was asked differently, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simkv.results.keys import meaning
from simkv.results.series import BUSY_PARTS

if TYPE_CHECKING:
    from simkv.results.results import Results

SECTIONS: dict[str, tuple[str, ...]] = {
    "Serving": (
        "completed", "failed", "duration", "total_input_tokens", "total_output_tokens", "request_throughput",
        "request_goodput", "output_throughput", "total_token_throughput", "max_output_tokens_per_s",
        "max_concurrent_requests",
    ),
    "Latency": tuple(
        f"{statistic}_{latency}_ms"
        for latency in ("ttft", "tpot", "itl", "e2el")
        for statistic in ("mean", "median", "p99")
    ),
    "Capacity and use": (
        "kv_tokens", "max_concurrency", "mean_kv_cache_usage_perc", "max_kv_cache_usage_perc",
        "mean_num_requests_running", "mean_num_requests_waiting", "num_preemptions", "num_recomputed_tokens",
        "prefix_cache_hit_rate", "mean_stage_utilization",
    ),
    "Step time": (
        *(f"{part}_time_s" for part in BUSY_PARTS),
        *(f"{part}_time_share" for part in BUSY_PARTS),
        "scheduling_time_s",
    ),
}  # fmt: skip
_OF_THE_LEDGER = ("kv_tokens", "max_concurrency")  # in a summary, max_concurrency is what the clients keep to
_NOTABLE = 0.0005  # a smaller change reads 0.0 %
_MAX_WIDTH = 34  # of a cell of text
_NAMED_PARTS = ("model", "hardware")  # parts with a name that stands for their fields


@dataclass(frozen=True)
class Row:
    """A metric of both runs, None where a run has none.

    change    of b against a: a fraction of a, or for a share b − a; None if there is no such number
    verdict   ``better`` or ``worse`` for b, empty if neither
    """

    key: str
    a: float | None
    b: float | None
    change: float | None
    verdict: str


@dataclass(frozen=True)
class Difference:
    """A field of the scenarios, None where it is not set."""

    path: str
    a: Any
    b: Any


@dataclass(frozen=True)
class Comparison:
    """What differs between two runs; `print(comparison)` is the table."""

    names: tuple[str, str]
    scenario: tuple[Difference, ...]
    sections: dict[str, tuple[Row, ...]]

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data, in the units of the summaries."""
        return {
            "names": list(self.names),
            "scenario": {d.path: {"a": d.a, "b": d.b} for d in self.scenario},
            "metrics": {
                row.key: {"a": row.a, "b": row.b, "change": row.change, "verdict": row.verdict}
                for rows in self.sections.values()
                for row in rows
            },
        }

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def compare(a: Results, b: Results, names: tuple[str, str] = ("A", "B")) -> Comparison:
    """Compare two runs, fresh or loaded; `b` is judged against `a`."""
    values_a, values_b = _metrics(a), _metrics(b)
    sections = {
        title: tuple(
            _row(key, values_a.get(key), values_b.get(key))
            for key in keys
            if values_a.get(key) is not None or values_b.get(key) is not None
        )
        for title, keys in SECTIONS.items()
    }
    return Comparison(names, tuple(_differences(a.scenario, b.scenario)), sections)


def _metrics(results: Results) -> dict[str, Any]:
    """The summary and the capacity; a latency of no request at all, which is 0 there, is none here."""
    capacity = {key: (results.ledger or {}).get(key) for key in _OF_THE_LEDGER}
    summary = {
        key: value
        for key, value in results.summary.items()
        if not key.endswith("_ms") or results.summary[f"mean_{key.split('_')[1]}_ms"]
    }
    return summary | capacity


def _row(key: str, a: float | None, b: float | None) -> Row:
    what = meaning(key)
    if a is None or b is None:
        return Row(key, a, b, None, "")
    change: float | None = b - a
    if not what.is_share:
        change = (b - a) / a if a else (0.0 if b == a else None)
    is_notable = change is None or abs(change) >= _NOTABLE
    verdict = ""
    if what.better and is_notable and a != b:
        verdict = "better" if (b - a) * what.better > 0 else "worse"
    return Row(key, a, b, change, verdict)


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Difference]:
    flat_a, flat_b = dict(_flattened(a)), dict(_flattened(b))
    for path in dict.fromkeys((*flat_a, *flat_b)):
        if flat_a.get(path) != flat_b.get(path):
            yield Difference(path, flat_a.get(path), flat_b.get(path))


def _flattened(mapping: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _lines(comparison: Comparison) -> Iterator[str]:
    names = tuple(_short(name) for name in comparison.names)
    settings = list(_shown_differences(comparison.scenario))
    rows = {title: [_cells(row) for row in rows] for title, rows in comparison.sections.items()}
    left = max(len(cells[0]) for cells in (*settings, *(cells for part in rows.values() for cells in part)))
    width = max(
        12, *map(len, names), *(len(cell) for part in rows.values() for cells in part for cell in cells[1:3])
    )
    if settings:
        wide = max(width, *(len(cell) for cells in settings for cell in cells[1:3]))
        yield f"{'Scenario':<{left}}  {names[0]:>{wide}}  {names[1]:>{wide}}"
        for path, a, b in settings:
            yield f"{path:<{left}}  {a:>{wide}}  {b:>{wide}}".rstrip()
    else:
        yield "The same scenario."
    for title, part in rows.items():
        yield ""
        yield f"{title:<{left}}  {names[0]:>{width}}  {names[1]:>{width}}  {'change':>10}"
        for label, a, b, change, verdict in part:
            yield f"{label:<{left}}  {a:>{width}}  {b:>{width}}  {change:>10}  {verdict}".rstrip()


def _shown_differences(differences: tuple[Difference, ...]) -> Iterator[tuple[str, str, str]]:
    """Yield the fields that differ; a model or GPU of another name is its name and a count."""
    named = {part for part in _NAMED_PARTS if any(d.path == f"{part}.name" for d in differences)}
    num_hidden = dict.fromkeys(sorted(named), 0)
    for difference in differences:
        part = difference.path.partition(".")[0]
        if part in named and difference.path != f"{part}.name":
            num_hidden[part] += 1
        else:
            yield difference.path, _text(difference.a), _text(difference.b)
    for part, number in num_hidden.items():
        if number:
            yield f"… and {number} more of {part}", "", ""


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    return _short(f"{value:g}" if isinstance(value, float) else str(value))


def _short(text: str) -> str:
    """The end of a long text: of a path, the end tells more."""
    return text if len(text) <= _MAX_WIDTH else f"…{text[-_MAX_WIDTH + 1 :]}"


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    what = meaning(row.key)
    if row.change is None:
        change = "–"
    elif row.a == row.b:
        change = "="
    elif abs(row.change) < _NOTABLE:
        change = "0.0 pp" if what.is_share else "0.0 %"
    elif what.is_share:
        change = f"{100 * row.change:+.1f} pp"
    else:
        change = f"{row.change:+.1%}".replace("%", " %")
    return what.axis_label, _number(row.a, what.scale), _number(row.b, what.scale), change, row.verdict


def _number(value: float | None, scale: float) -> str:
    if value is None:
        return "–"
    if scale == 1.0 and isinstance(value, int):
        return f"{value:,}"
    shown = value * scale
    return f"{shown:,.1f}" if scale != 1.0 else f"{shown:,.2f}"
