"""The table, the summary's shares and the text of bubbles; the arithmetic of histories."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs import SCENARIO, empty_log, lively_log, small_log

from simkv.results.bubbles import format_bubbles, stage_accounts
from simkv.results.bubbles_history import (
    CAUSE_NAMES,
    CAUSES,
    CHUNK_IMBALANCE,
    KEPT_OUT,
    STARVED_BY,
    TOKEN_DEPENDENCY,
    TRANSFER,
    beginning,
    blame,
    clip_parts,
    take,
)
from simkv.results.results import Results

NUMBERS = st.lists(st.integers(-50, 50), min_size=len(CAUSES), max_size=len(CAUSES))


@pytest.mark.parametrize("make", [small_log, lively_log])
def test_the_table_has_every_part_and_cause_of_every_stage_and_sums_to_the_wall(make):
    results = Results(make(), SCENARIO)
    frame = results.bubbles
    num_stages, num_replicas = results.summary["num_stages"], results.summary["num_replicas"]
    assert len(frame) == num_stages * num_replicas * (4 + len(CAUSES))
    sums = frame.groupby(["replica", "stage"])[["duration_ns", "share"]].sum()
    assert sums["duration_ns"].nunique() == 1
    assert list(sums["share"]) == pytest.approx([1.0] * len(sums))


def test_the_summary_holds_the_mean_shares():
    results = Results(lively_log(300), SCENARIO)
    idle = {cause: results.summary[f"idle_{cause}_share"] for cause in CAUSES}
    assert sum(idle.values()) == pytest.approx(1 - results.summary["mean_stage_utilization"])
    of_stage = results.bubbles[results.bubbles["cause"] == "stage_imbalance"]["share"]
    assert idle["stage_imbalance"] == pytest.approx(of_stage.mean())


def test_a_run_without_time_has_no_bubbles():
    results = Results(empty_log(), SCENARIO)
    assert len(results.bubbles) == 0
    assert format_bubbles(results.summary).endswith("none: no stage was ever idle")


def test_a_loaded_run_has_the_same_accounts(tmp_path):
    results = Results(lively_log(300), SCENARIO)
    loaded = Results.load(results.save(tmp_path / "run"))
    assert stage_accounts(loaded.stage_tables) == stage_accounts(results.stage_tables)
    assert loaded.bubbles.equals(results.bubbles)


def test_text_names_the_largest_first():
    shares = {f"idle_{cause}_share": 0.0 for cause in CAUSES}
    text = format_bubbles(shares | {"idle_transfer_share": 0.05, "idle_no_work_share": 0.25})
    assert text.splitlines()[1:] == [
        f"{'no work':<24} {'█' * 5 + '·' * 15} 25.0%",
        f"{'transfer':<24} {'█' + '·' * 19}  5.0%",
    ]
    assert set(CAUSE_NAMES) == set(CAUSES)


@given(NUMBERS, st.data())
def test_what_is_shared_out_is_what_there_is_to_explain(numbers, data):
    positive = sum(number for number in numbers if number > 0)
    amount = data.draw(st.integers(0, positive))
    shares = take(numbers, amount)
    assert sum(shares) == amount
    assert all(0 <= share <= max(number, 0) for share, number in zip(shares, numbers, strict=True))
    # In the order of precedence: what comes after the first cause cut short gets nothing.
    cut = next((i for i, n in enumerate(numbers) if n > 0 and shares[i] < n), len(numbers))
    assert not any(shares[cut + 1 :])


def test_idle_time_without_a_cause_is_a_bug():
    with pytest.raises(AssertionError, match="have no cause"):
        take([3, -5, 1, 0, 0, 0, 0, 0, 0, 0], 5)


@given(NUMBERS, st.sampled_from([None, *sorted(STARVED_BY.values())]), st.floats(0, 1))
def test_blame_moves_but_keeps_the_sum(numbers, starved_by, likeness):
    blamed = blame(numbers, starved_by, likeness)
    assert sum(blamed) == sum(numbers)
    if starved_by is None:
        assert blamed == numbers
    elif starved_by in KEPT_OUT:
        assert {cause for cause, ns in enumerate(blamed) if ns} <= {TRANSFER, starved_by}
    elif starved_by != TOKEN_DEPENDENCY:
        assert blamed[CHUNK_IMBALANCE] == 0


@pytest.mark.parametrize(("likeness", "left"), [(1.0, 0), (0.25, 60), (0.0, 80)])
def test_what_unlike_batches_take_counts_for_late_tokens_only_as_far_as_they_are_like(likeness, left):
    numbers = [0, 0, 80, 0, 0, 0, 0, 0, 0, 0]
    assert blame(numbers, TOKEN_DEPENDENCY, likeness)[CHUNK_IMBALANCE] == left


@given(st.lists(st.integers(0, 9), max_size=5), st.integers(0, 60))
def test_parts_are_cut_in_order(parts, amount):
    cut = clip_parts(parts, amount)
    assert sum(cut) == min(amount, sum(parts))
    assert all(0 <= short <= part for short, part in zip(cut, parts, strict=True))
    assert sum(beginning(amount)) == amount
