"""What a GPU of each pipeline stage holds: the memory ledger as stacked bars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from simkv.plots.style import INK, NOTE, Fill, axes_or_new, say_empty, style
from simkv.results.results import Results
from simkv.units import GIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LABELS = {
    "weights": "weights", "activation": "activation peak", "non_torch": "non-torch", "graph": "CUDA graphs",
    "kv": "KV cache", "outside": "outside the budget", "unused": "unused",
}  # fmt: skip
# Lighter and lighter in grey, neighbours never both without a hatch.
_FILLS = {
    "weights": Fill("#0b4f7d", ""),
    "activation": Fill("#d98c2b", "////"),
    "non_torch": Fill("#f0c987", "...."),
    "graph": Fill("#b8d8c8", "xxxx"),
    "kv": Fill("#8cc4e8", ""),
    "outside": Fill("#d9d9d9", "\\\\\\\\"),
    "unused": Fill("#ffffff", ""),
}
_BAR = 0.62
_MIN_SHARE = 0.045  # of the card, for a number inside a part
_STAGE_HEIGHT_IN = 0.42
_LEGEND_BELOW_IN = 0.5


def ledger(results: Results, ax: Axes | None = None) -> Axes:
    """Draw the memory ledger that a run was planned with."""
    if results.ledger is None:
        with style():
            ax = axes_or_new(ax)
            ax.set(title="Memory of a GPU")
            say_empty(ax, "the result has no memory ledger")
        return ax
    return ledger_bars(results.ledger, ax)


def ledger_bars(answer: Mapping[str, Any], ax: Axes | None = None) -> Axes:
    """Draw `Plan.as_dict`: a bar a stage with weights, activations, …, KV cache and what is left of the card.

    A line across each bar is the budget, total × gpu_memory_utilization.
    """
    with style():
        ranks = answer["ranks"]
        ax = axes_or_new(ax, 7.6, 1.9 + _STAGE_HEIGHT_IN * len(ranks))
        total = max(rank["total_bytes"] for rank in ranks) / GIB
        most = max(total, *(sum(_parts(rank, answer["num_gpu_blocks"]).values()) / GIB for rank in ranks))
        for row, rank in enumerate(ranks):
            _bar(ax, row, rank, _parts(rank, answer["num_gpu_blocks"]), most)
        ax.set(
            title=f"Memory of a GPU: {answer['model']}, {answer['layout']} on {answer['hardware']}",
            xlabel="GiB per GPU",
            xlim=(0, 1.01 * most),
            ylim=(len(ranks) - 0.45, -0.55),
        )
        ax.grid(visible=False, axis="y")
        ax.set_yticks(range(len(ranks)), [_row_name(rank, len(ranks), answer) for rank in ranks])
        ax.tick_params(axis="y", length=0)
        _add_legend(ax)
    return ax


def _parts(rank: Mapping[str, Any], num_gpu_blocks: int) -> dict[str, int]:
    """Bytes of each part, in the order drawn; what is left unused makes them add up to the card."""
    names = ("weights", "activation", "non_torch", "graph")
    parts = {name: rank[f"{name}_bytes"] for name in names}
    # results of older versions have neither the bytes of a block nor those outside the budget
    parts["kv"] = (
        num_gpu_blocks * rank["kv_block_bytes"] if "kv_block_bytes" in rank else max(0, rank["kv_bytes"])
    )
    parts["outside"] = rank.get("outside_bytes", 0)
    if not rank["deducts_graphs"]:  # then it lies beyond the cache
        parts["graph"] = parts.pop("graph")
    return parts | {"unused": max(0, rank["total_bytes"] - sum(parts.values()))}


def _bar(ax: Axes, row: int, rank: Mapping[str, Any], parts: Mapping[str, int], most: float) -> None:
    left = 0.0
    for name, num_bytes in parts.items():
        width, (color, hatch) = num_bytes / GIB, _FILLS[name]
        if not width:
            continue
        ax.barh(
            row, width, _BAR, left, label=_LABELS[name], facecolor=color, hatch=hatch, edgecolor=INK, linewidth=0.6,
        )  # fmt: skip
        if width >= _MIN_SHARE * most:
            ax.text(
                left + width / 2, row, f"{width:.1f}", ha="center", va="center", fontsize=7.5,
                color="white" if name == "weights" else INK,
                bbox=None if not hatch else {"facecolor": color, "edgecolor": "none", "pad": 1.0},
            )  # fmt: skip
        left += width
    budget, card = rank["requested_bytes"] / GIB, rank["total_bytes"] / GIB
    for place, linestyle in ((budget, "--"), (card, "-")):
        ax.plot([place, place], [row - 0.43, row + 0.43], color=INK, linestyle=linestyle, linewidth=1.2)
    if row == 0:
        ax.annotate(
            "budget ", (budget, row - 0.43), ha="right", va="center", fontsize=7.5, color=NOTE,
        ).set_in_layout(False)  # fmt: skip


def _row_name(rank: Mapping[str, Any], num_stages: int, answer: Mapping[str, Any]) -> str:
    name = f"stage {rank['stage']}" if num_stages > 1 else "every GPU"
    binds = num_stages > 1 and rank["stage"] == answer["binding_stage"]
    return f"{name}{' (binds)' if binds else ''}\n{rank['num_layers']} layers"


def _add_legend(ax: Axes) -> None:
    """Name the parts below the axis, as far below it whatever the bars' number."""
    from matplotlib.transforms import ScaledTranslation

    handles, labels = ax.get_legend_handles_labels()
    by_label = dict(zip(labels, handles, strict=True))
    known = [label for label in _LABELS.values() if label in by_label]
    below = ScaledTranslation(0, -_LEGEND_BELOW_IN, ax.figure.dpi_scale_trans)
    ax.legend(
        [by_label[label] for label in known], known, loc="upper left", bbox_to_anchor=(0.0, 0.0),
        bbox_transform=ax.transAxes + below, ncols=4, columnspacing=1.2, handlelength=1.8, borderaxespad=0.0,
    )  # fmt: skip
