"""A balance as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from simkv.planning.balance import GOALS, Balance, Layout, Partition

_AT_LEAST = 5e-4  # a gain that prints as 0.1 % or more
_UNITS = {"decode": "ms a batch", "prefill": "ms a batch", "blocks": "KV blocks"}


def format_balance(answer: Balance) -> Iterator[str]:
    """Yield what each stage takes and holds now and at best, what that gains, and what to write for it."""
    num_stages = len(answer.now.layers)
    if num_stages == 1:
        yield "Balance: one stage, nothing to balance."
        return
    decode, (chunk,) = answer.decode, answer.prefill.prefills
    yield f"Balance of {sum(answer.now.layers)} layers over {num_stages} stages"
    yield (
        f"  decode: {decode.num_decodes:,} sequence{'s' * (decode.num_decodes > 1)} of "
        f"{decode.max_decode_context:,} tokens in a batch; "
        f"prefill: {chunk.num_tokens:,} tokens over {chunk.context_len:,}"
    )
    if answer.refusal is not None:
        yield f"  no stage times: {answer.refusal}"
    for goal, best in answer.best.items():
        yield ""
        yield f"best for {goal} ({_UNITS[goal]}, * the worst stage)"
        yield from _rows(goal, answer.now, best)
    yield ""
    yield from _advice(answer)


def _rows(goal: str, now: Layout, best: Layout) -> Iterator[str]:
    layouts = {"now": now} if best.layers == now.layers else {"now": now, "best": best}
    width = max(len(_runs(map(str, layout.layers))) for layout in layouts.values())
    for name, layout in layouts.items():
        worst = layout.worst(goal)
        cells = (f"{_cell(goal, value)}{'*' * (value == worst)}" for value in _values(goal, layout))
        yield f"  {name:<5} {_runs(map(str, layout.layers)):<{width}}   {_runs(cells)}"
    if best.layers == now.layers:
        yield "  nothing gained by any other partition"
        return
    changes = {other: best.gain(other, now) for other in dict.fromkeys((goal, *GOALS))}
    yield "  " + ", ".join(f"{other} {_percent(gain)}" for other, gain in changes.items() if gain is not None)
    if not best.fits:
        yield "  does not start"


def _advice(answer: Balance) -> Iterator[str]:
    """A line for each partition that gains and starts, to be put into the scenario."""
    gains: dict[Partition, list[str]] = {}
    for goal, best in answer.best.items():
        gain = best.gain(goal, answer.now)
        if best.fits and not answer.now.fits:
            gains.setdefault(best.layers, []).append(f"starts, best for {goal}")
        elif best.fits and gain is not None and gain >= _AT_LEAST:
            gains.setdefault(best.layers, []).append(f"{_percent(gain)} {goal}")
    if not any(layout.fits for layout in (answer.now, *answer.best.values())):
        yield "None of these partitions starts."
        return
    if not gains:
        yield "Nothing is gained: leave the layers where they are."
        return
    yield "Put into the scenario, under parallel (vLLM: VLLM_PP_LAYER_PARTITION):"
    for layers, reasons in gains.items():
        yield f"  pipeline_layer_partition: [{', '.join(map(str, layers))}]  # {', '.join(reasons)}"


def _runs(cells: Iterable[str]) -> str:
    """Join cells, three or more alike as one.

    >>> _runs(["7", "8", "8", "8", "7", "7"])
    '7  3×8  7  7'
    """
    parts: list[str] = []
    for cell, run in groupby(cells):
        number = len(list(run))
        parts += [f"{number}×{cell}"] if number > 2 else [cell] * number
    return "  ".join(parts)


def _values(goal: str, layout: Layout) -> tuple[float, ...]:
    if goal == "blocks":
        return layout.blocks
    times = layout.decode_s if goal == "decode" else layout.prefill_s
    assert times is not None
    return times


def _cell(goal: str, value: float) -> str:
    return f"{value:,}" if goal == "blocks" else f"{1e3 * value:.2f}"


def _percent(gain: float) -> str:
    return f"{100 * gain:+.1f} %"
