"""The memory ledger as bars: every byte of a card is drawn once."""

from itertools import pairwise

import pytest
from logs import SCENARIO, small_log

from simkv.planning import plan
from simkv.plots import ledger
from simkv.plots.ledger import ledger_bars
from simkv.results.results import Results
from simkv.units import GIB
from tests.cost.worlds import scenario_of


def bars_of(ax, row):
    parts = [(container.get_label(), container.patches[0]) for container in ax.containers]
    return {name: (bar.get_x(), bar.get_width()) for name, bar in parts if round(bar.get_y() + 0.31) == row}


@pytest.mark.parametrize("version", ["0.19.0", "0.32.0"])
@pytest.mark.parametrize("layout", [(4, 2), (8, 1), (1, 8)])
def test_the_parts_of_each_stage_add_up_to_the_card(version, layout):
    answer = plan(scenario_of("Llama-3.1-70B", "h100_sxm", *layout, vllm_version=version, max_model_len=8192))
    ax = ledger_bars(answer.as_dict())
    for stage, rank in enumerate(answer.ledger.ranks):
        bars = bars_of(ax, stage)
        assert sum(width for _, width in bars.values()) == pytest.approx(rank.total_bytes / GIB)
        assert bars["weights"] == pytest.approx((0, rank.weights_bytes / GIB))
        assert bars["KV cache"][1] == pytest.approx(answer.ledger.num_gpu_blocks * rank.kv_block_bytes / GIB)
        ends = sorted((start, start + width) for start, width in bars.values())
        assert all(end == pytest.approx(start) for (_, end), (start, _) in pairwise(ends))
        graphs_are_beyond = bars["CUDA graphs"][0] > bars["KV cache"][0]
        assert graphs_are_beyond == (version == "0.19.0")
    names = [label.get_text() for label in ax.get_yticklabels()]
    binding = answer.ledger.binding_stage
    if layout[1] > 1:
        assert [stage for stage, name in enumerate(names) if "(binds)" in name] == [binding]
    else:
        assert names == ["every GPU\n80 layers"]


def test_fills_differ_without_colour():
    from matplotlib.colors import to_rgb

    from simkv.plots.ledger import _FILLS

    greys = {name: sum(w * c for w, c in zip((0.299, 0.587, 0.114), to_rgb(fill.color), strict=True)) for
             name, fill in _FILLS.items()}  # fmt: skip
    looks = {(round(greys[name], 1), fill.hatch) for name, fill in _FILLS.items()}
    assert len(looks) == len(_FILLS)


def test_more_than_the_card_has_is_drawn_beyond_its_end():
    answer = plan(scenario_of("Llama-3.1-70B", vllm_version="0.19.0", max_model_len=8192))
    ax = ledger_bars(answer.as_dict())
    assert answer.outcome == "oom"
    assert bars_of(ax, 0)["weights"][1] > 130
    assert ax.get_xlim()[1] > 130
    assert "KV cache" not in bars_of(ax, 0)


def test_a_result_without_a_ledger_and_an_older_one():
    results = Results(small_log(), SCENARIO)
    results.ledger = None
    assert [text.get_text() for text in ledger(results).texts] == ["the result has no memory ledger"]
    answer = plan(scenario_of("Llama-3.1-8B")).as_dict()
    for rank in answer["ranks"]:
        del rank["outside_bytes"], rank["kv_block_bytes"]
    results.ledger = answer
    assert "outside the budget" not in bars_of(ledger(results), 0)
