"""What-if: a plan for each of several values, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simkv.planning.answer import Plan
from simkv.units import GIB

_COLUMNS = (("outcome", 9), ("stage", 7), ("KV GiB", 9), ("blocks", 11), ("tokens", 12), ("concurrency", 13))


def vary_row(values: Mapping[str, Any], answer: Plan | None, error: str | None = None) -> dict[str, Any]:
    """Return what a table says of one point; `answer` None is a scenario that vLLM takes for no input.

    `kv_bytes` is that of the binding stage.
    """
    row: dict[str, Any] = {"values": dict(values), "outcome": "invalid", "reason": error}
    figures = ("binding_stage", "kv_bytes", "num_gpu_blocks", "kv_tokens", "max_concurrency")
    if answer is None:
        return row | dict.fromkeys(figures)
    ledger = answer.ledger
    sizes = (
        ledger.binding_stage,
        ledger.ranks[ledger.binding_stage].kv_bytes,
        ledger.num_gpu_blocks,
        ledger.kv_tokens,
        ledger.max_concurrency,
    )
    return (
        row | {"outcome": answer.outcome, "reason": answer.refusal} | dict(zip(figures, sizes, strict=True))
    )


def format_rows(fields: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each row, the fields' values first."""
    lines = [[_text(row["values"][field]) for field in fields] for row in rows]
    widths = [
        max(len(field), *(len(line[i]) for line in lines), 0) if lines else len(field)
        for i, field in enumerate(fields)
    ]
    head = "".join(f"{field:<{width + 2}}" for field, width in zip(fields, widths, strict=True))
    yield head + "".join(f"{title:>{width}}" for title, width in _COLUMNS)
    for row, line in zip(rows, lines, strict=True):
        values = "".join(f"{cell:<{width + 2}}" for cell, width in zip(line, widths, strict=True))
        cells = "".join(f"{cell:>{width}}" for cell, (_, width) in zip(_cells(row), _COLUMNS, strict=True))
        yield values + cells
    yield from dict.fromkeys(row["reason"] for row in rows if row["outcome"] == "invalid")


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    if row["outcome"] == "invalid":
        return ("invalid", *("-" * 5))
    return (
        row["outcome"],
        str(row["binding_stage"]),
        f"{row['kv_bytes'] / GIB:.2f}",
        f"{row['num_gpu_blocks']:,}",
        f"{row['kv_tokens']:,}",
        f"{row['max_concurrency']:.2f}x",
    )
