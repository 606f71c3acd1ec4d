"""The printed answer: points ranked, the best first, those that cannot work last with their reasons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from simkv.errors import ScenarioError, did_you_mean
from simkv.results.keys import meaning
from simkv.spec.sweep import LATENCY_METRICS
from simkv.sweeping.study import Study
from simkv.sweeping.table import plain_text

Row = dict[str, Any]
_DEFAULT_METRIC = "output_throughput"
_LAYOUT_FIELDS = tuple(
    f"parallel.{name}_parallel_size" for name in ("tensor", "pipeline", "data", "prefill_context")
)


def ranked(study: Study, rows: Sequence[Row], sort: str | None = None) -> list[Row]:
    """Return the rows, the best first; rows without a value keep their order at the end.

    sort   a column, or a limit's name such as ``ttft_p99_ms``; unless given what was found, else the output
           throughput of those that meet the limits, then of the others

    Raises ScenarioError for a column that no row has.
    """
    name = sort or ("found" if study.find else _DEFAULT_METRIC)
    if name in LATENCY_METRICS:
        latency, statistic, unit = name.split("_")
        name = f"{statistic}_{latency}_{unit}"
    known = list(dict.fromkeys(key for row in rows for key in row))
    if sort and name not in known:
        raise ScenarioError(f"--sort: wanted a column of the table, got {sort!r}{did_you_mean(sort, known)}")
    if sort is None and study.find:
        is_descending = study.find.is_max
    else:
        is_descending = name != "rho" and meaning(name).better >= 0

    def place(row: Row) -> tuple[bool, bool, float]:
        value = row.get(name)
        is_known = isinstance(value, int | float)
        key = float(value) if is_known and value is not None else 0.0
        misses = sort is None and row.get("meets_slo") is False
        return row["status"] != "done" or not is_known, misses, -key if is_descending else key

    return sorted(rows, key=place)


def format_answer(study: Study, rows: Sequence[Row], sort: str | None = None) -> str:
    """Return the question, the ranked table and the answer in a sentence."""
    rows = ranked(study, rows, sort)
    done = [row for row in rows if row["status"] == "done"]
    parts = (
        _question(study),
        _aligned(*_cells(study, done)),
        _impossible(study, rows),
        _conclusion(study, done),
    )
    return "\n\n".join("\n".join(lines) for lines in map(list, parts) if lines)


def _question(study: Study) -> Iterator[str]:
    limits = ", ".join(
        f"{name} {'≥' if name == 'goodput' else '≤'} {limit:,g}" for name, limit in study.slo.items()
    )
    if study.find:
        yield f"{study.name}: {study.find} with {limits}"
    elif limits:
        yield f"{study.name}: {limits}"


def _cells(study: Study, rows: Sequence[Row]) -> Iterator[list[str]]:
    """Yield the header, then each row."""
    fields = _shown_fields(study)
    names = [_short_name(field, fields) for field in fields]
    found = [_short_name(study.find.field, fields)] if study.find else []
    checks = ["within limits"] if study.slo and not study.find else []
    loads = ["load"] if any(row.get("rho") is not None for row in rows) else []
    stops = ["binds", "stopped by"] if study.slo else ["binds"]
    numbers = ["TTFT p99 ms", "TPOT mean ms", "output tok/s", "users that fit"]
    yield ["layout", *names, *found, *checks, *numbers, *loads, *stops]
    for row in rows:
        cells = [row["layout"], *(plain_text(row[field]) for field in fields)]
        if found:
            cells.append(_number(row.get("found"), 4))
        if checks:
            cells.append("–" if row.get("meets_slo") is None else "yes" if row["meets_slo"] else "no")
        cells += [
            _number(row.get(name))
            for name in ("p99_ttft_ms", "mean_tpot_ms", "output_throughput", "users_that_fit")
        ]
        if loads:
            cells.append("–" if row.get("rho") is None else f"{row['rho']:.2f}")
        yield [*cells, *[row["binds"], _stopped_by(row)][: len(stops)]]


def _stopped_by(row: Row) -> str:
    """The limit that the next value, or the point itself, does not keep."""
    if not row.get("fails"):
        return ""
    return f"at {row['fails_at']:.4g}: {row['fails']}" if row.get("fails_at") else str(row["fails"])


def _impossible(study: Study, rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each reason why points do not work, with the points."""
    labels: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["status"] != "done":
            labels.setdefault((row["status"], row["reason"]), []).append(_label(study, row))
    for (status, reason), points in labels.items():
        yield f"{status}: {_enumerated(points)}: {reason}"


def _short_name(field: str, among: Sequence[str]) -> str:
    """The last word of a field, or all of it where that could be two."""
    last = field.rpartition(".")[2]
    is_ambiguous = sum(other.rpartition(".")[2] == last for other in {*among, field}) > 1
    return field if is_ambiguous else last


def _number(value: float | None, num_digits: int = 3) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 or isinstance(value, int) else f"{value:.{num_digits}g}"


def _aligned(header: Sequence[str], *rows: Sequence[str]) -> Iterator[str]:
    """Yield lines with text to the left and numbers to the right."""
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    are_text = [_is_text(column) for column in zip(*rows, strict=True)]
    for row in (header, *rows):
        cells = [
            cell.ljust(width) if is_text else cell.rjust(width)
            for cell, width, is_text in zip(row, widths, are_text, strict=True)
        ]
        yield "  ".join(cells).rstrip()


def _is_text(column: Sequence[str]) -> bool:
    return not all(cell == "–" or cell[:1].isdigit() or cell[:1] == "-" for cell in column)


def _conclusion(study: Study, rows: Sequence[Row]) -> Iterator[str]:
    notes: dict[str, list[str]] = {}
    for row in rows:
        for note in filter(None, (row.get("notes") or "").split("; ")):
            notes.setdefault(note, []).append(_label(study, row))
    for note, labels in notes.items():
        yield f"Note on {_enumerated(labels)}: {note}."
    if study.find is None or not rows:
        return
    found = ranked(study, [row for row in rows if row["found"] is not None])
    if not found:
        yield f"No point keeps the limits at any {study.find.field} tried."
        return
    text = f"Best: {_found(study, found[0])}"
    if len(found) > 1:
        text += f"; next {_found(study, found[1])} ({_change(found[0], found[1])})"
    if len(found) > 2:
        text += f"; last {_found(study, found[-1])} ({_change(found[0], found[-1])})"
    yield f"{text}."


def _enumerated(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - 2} more" if len(labels) > 2 else ""
    return "; ".join(labels[:2]) + more


def _found(study: Study, row: Row) -> str:
    assert study.find is not None
    return f"{_label(study, row)} at {_short_name(study.find.field, ())} {_number(row['found'], 4)}"


def _change(best: Row, other: Row) -> str:
    change = other["found"] / best["found"] - 1
    return f"{abs(change):.0%} {'less' if change < 0 else 'more'}".replace("%", " %")


def _label(study: Study, row: Row) -> str:
    """What a point is called: its layout and the other fields that were swept."""
    shown = _shown_fields(study)
    fields = shown if row.get("layout") else study.swept  # a scenario that was refused has no layout
    words = [f"{_short_name(field, fields)} {plain_text(row[field])}" for field in fields]
    if not row.get("layout"):
        return ", ".join(words)
    return f"{row['layout']} with {', '.join(words)}" if words else str(row["layout"])


def _shown_fields(study: Study) -> list[str]:
    """The swept fields that the layout does not say."""
    return [field for field in study.swept if field != "parallel" and field not in _LAYOUT_FIELDS]
