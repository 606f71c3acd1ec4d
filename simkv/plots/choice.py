"""What a curve draws when it is not told everything: a load, a chunk size, a context length, a depth first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simkv.errors import ResultsError
from simkv.plots.sweep_table import (
    axis_label,
    is_done,
    is_number,
    require_column,
    require_numbers,
    split_layout,
    swept_fields,
)
from simkv.results.keys import meaning

if TYPE_CHECKING:
    import pandas as pd

MAX_LINES = 12
_LOADS = ("workload.request_rate", "workload.max_concurrency")
_CHUNKS = ("engine.max_num_batched_tokens", "engine.long_prefill_token_threshold")
_CONTEXT = "engine.max_model_len"
_DEPTH = "parallel.pipeline_parallel_size"
_AVERAGED = ("seed",)  # repetitions of one point: averaged, never a line each
_Y_DEFAULTS = {
    **dict.fromkeys(_LOADS, ("p99_ttft_ms",)),
    **dict.fromkeys(_CHUNKS, ("p99_ttft_ms", "mean_tpot_ms")),
    _CONTEXT: ("max_concurrency",),
    _DEPTH: ("mean_stage_idle",),
}
_SOUGHT = "found"  # what a sweep with a search answers
_Y_FALLBACKS = ("output_throughput", "kv_tokens", "num_gpu_blocks")


@dataclass(frozen=True)
class Choice:
    """What is drawn: `y` over `x`, a line for each value of `by`, its points in the order of `along`."""

    x: str
    y: tuple[str, ...]
    by: tuple[str, ...]
    along: str


def choose(table: pd.DataFrame, x: str | None, y: tuple[str, ...], by: tuple[str, ...]) -> Choice:
    """Fill in what was not named; raise ResultsError for a column that is missing or has no numbers."""
    for name in by:
        require_column(table, "by", name)
    swept = swept_fields(table)
    numeric = [name for name in swept if is_number(table, name) and name not in (*by, *_AVERAGED)]
    along = x if x in swept else _first(table, numeric)
    if x is not None:
        require_numbers(table, "x", x)
        along = along or x
    elif along is None:
        raise ResultsError(
            f"x: wanted a swept field with numbers, got {', '.join(swept) or 'none'}; name one, or a metric"
        )
    assert along is not None
    y = y or _default_y(table, along, x)
    for name in y:
        require_numbers(table, "y", name)
    if len({meaning(name).unit for name in y}) > 1:
        raise ResultsError(f"y: wanted metrics of one unit, got {', '.join(map(axis_label, y))}")
    if x is None:
        is_latency = all(meaning(name).unit == "ms" for name in y)
        x = "output_throughput" if along in _LOADS and is_latency and "output_throughput" in table else along
    return Choice(x, y, by or _default_by(table, swept, along), along)


def _first(table: pd.DataFrame, numeric: Sequence[str]) -> str | None:
    preferred = [name for name in (*_LOADS, *_CHUNKS, _CONTEXT, _DEPTH) if name in numeric]
    return next(iter((*preferred, *numeric)), None)


def _default_y(table: pd.DataFrame, along: str, x: str | None) -> tuple[str, ...]:
    if _SOUGHT in table and x != _SOUGHT:
        return (_SOUGHT,)
    asked = _Y_DEFAULTS.get(along, ())
    if asked and all(name in table and name != x for name in asked):
        return asked
    for name in _Y_FALLBACKS:
        if name in table and name != x:
            return (name,)
    raise ResultsError("y: wanted a table with metrics, got one without; name a column")


def _default_by(table: pd.DataFrame, swept: Sequence[str], along: str) -> tuple[str, ...]:
    """The other swept fields, the last ones left out if there would be too many lines.

    Not one that goes with `along`, value for value, as TP with PP on eight GPUs.
    """
    done = table[is_done(table)]
    fields = [
        name
        for name in swept
        if name not in (along, *_AVERAGED)
        and done[name].nunique(dropna=False) > 1
        and not _go_together(done, name, along)
    ]
    if not along.startswith("parallel."):
        fields = split_layout(table, fields)
    while len(fields) > 1 and len(done[fields].drop_duplicates()) > MAX_LINES:
        fields.pop()
    return tuple(fields)


def _go_together(done: pd.DataFrame, a: str, b: str) -> bool:
    num_pairs = len(done[[a, b]].drop_duplicates())
    return num_pairs == done[a].nunique(dropna=False) == done[b].nunique(dropna=False)
