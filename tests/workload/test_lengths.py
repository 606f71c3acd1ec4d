from itertools import pairwise
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.spec.lengths import LengthSpec, LognormalLen, TimeSpec, UniformLen
from simkv.workload import sample_lengths, stream
from simkv.workload.csv_traces import read_azure
from simkv.workload.json_traces import read_mooncake
from simkv.workload.lengths import sample_times_ns
from simkv.workload.presets import PRESETS, PROBABILITIES, preset_quantiles
from simkv.workload.traces import Trace

TRACES = Path(__file__).parents[3] / "shared" / "traces"
FILES = {
    "azure_conv_2023": ("azure_conv_2023.csv", read_azure),
    "azure_code_2023": ("azure_code_2023.csv", read_azure),
    "mooncake_conversation": ("mooncake_conversation_first3000.jsonl", read_mooncake),
}

LENGTHS = st.integers(1, 200_000)


@given(LENGTHS, st.integers(0, 50))
def test_fixed_is_the_same_every_time_and_draws_nothing(length, n):
    rng, untouched = stream(0, "x"), stream(0, "x")
    assert sample_lengths(LengthSpec(fixed=length), n, rng) == [length] * n
    assert rng.random() == untouched.random()


@given(LENGTHS, LENGTHS, st.integers(0, 2**32))
def test_uniform_stays_between_its_bounds(a, b, seed):
    low, high = sorted((a, b))
    lengths = sample_lengths(LengthSpec(uniform=UniformLen(min=low, max=high)), 50, stream(seed, "x"))
    assert all(low <= length <= high and type(length) is int for length in lengths)


def test_uniform_reaches_both_bounds():
    lengths = sample_lengths(LengthSpec(uniform=UniformLen(min=3, max=5)), 200, stream(0, "x"))
    assert set(lengths) == {3, 4, 5}


@given(st.floats(0.01, 1e6), st.floats(1, 100), st.none() | LENGTHS, st.integers(0, 2**32))
def test_lognormal_is_at_least_1_and_at_most_max(median, ratio, longest, seed):
    spec = LengthSpec(lognormal=LognormalLen(median=median, p99=median * ratio, max=longest))
    lengths = sample_lengths(spec, 50, stream(seed, "x"))
    assert all(1 <= length <= (longest or float("inf")) and type(length) is int for length in lengths)


def test_lognormal_has_the_median_and_p99_asked_for():
    spec = LengthSpec(lognormal=LognormalLen(median=60_000.0, p99=125_000.0))
    lengths = sample_lengths(spec, 200_000, stream(0, "x"))
    assert np.median(lengths) == pytest.approx(60_000, rel=0.01)
    assert np.percentile(lengths, 99) == pytest.approx(125_000, rel=0.01)


def test_lognormal_without_spread_is_its_median():
    spec = LengthSpec(lognormal=LognormalLen(median=700.4, p99=700.4))
    assert sample_lengths(spec, 3, stream(0, "x")) == [700, 700, 700]


@pytest.mark.parametrize("given_", [{}, {"fixed": None}, {"fixed": 3, "uniform": {"min": 1, "max": 2}}])
def test_a_length_is_exactly_one_distribution(given_):
    with pytest.raises(ValueError, match="expected exactly one of a number, uniform"):
        LengthSpec.model_validate(given_)


# quantiles and presets

QUANTILES = st.dictionaries(st.floats(0, 1), LENGTHS, max_size=6).flatmap(
    lambda inner: st.tuples(LENGTHS, LENGTHS).map(
        lambda ends: dict(
            zip(sorted({0.0, 1.0, *inner}), sorted([*inner.values(), *ends, *[1] * 8]), strict=False)
        )
    )
)


@given(QUANTILES, st.integers(0, 2**32))
def test_quantiles_stay_between_the_first_and_the_last(quantiles, seed):
    spec = LengthSpec(quantiles=quantiles)
    lengths = sample_lengths(spec, 50, stream(seed, "x"))
    assert all(quantiles[0.0] <= length <= quantiles[1.0] and type(length) is int for length in lengths)
    assert spec.max == quantiles[1.0]


@given(QUANTILES)
def test_quantiles_come_out_as_they_went_in(quantiles):
    spec = LengthSpec(quantiles=quantiles)
    lengths = np.sort(sample_lengths(spec, 20_000, stream(0, "x")))
    assert list(spec.quantiles) == sorted(quantiles)
    for (low, shorter), (high, longer) in pairwise(sorted(quantiles.items())):
        # Between two points lie at least as many lengths as the probabilities say, but for chance.
        share = np.mean((lengths >= shorter) & (lengths <= longer))
        assert share >= high - low - 0.02


def test_quantiles_are_linear_in_between():
    lengths = sample_lengths(LengthSpec(quantiles={0.0: 100, 0.8: 200, 1.0: 1000}), 200_000, stream(0, "x"))
    assert np.percentile(lengths, [0, 40, 80, 90, 100]) == pytest.approx([100, 150, 200, 600, 1000], rel=0.02)


def test_a_yaml_reader_makes_text_of_probabilities():
    assert LengthSpec.model_validate({"quantiles": {"0": 1, "0.5": 7, "1.0": 9}}).quantiles == {
        0: 1,
        0.5: 7,
        1: 9,
    }


@pytest.mark.parametrize(
    ("quantiles", "message"),
    [
        ({}, "expected lengths at 0 and 1 at least"),
        ({0.0: 1, 0.9: 2}, "expected lengths at 0 and 1 at least"),
        ({0.0: 5, 0.5: 4, 1.0: 9}, "expected lengths that grow, got 5 at 0 and 4 at 0.5"),
        ({"0": 5, "0.0": 5, "1": 9}, "expected every probability once, got one twice"),
        ({0.0: 5, 1.0: 9, 1.5: 10}, "less than or equal to 1"),
        ({0.0: 5, 1.0: 9, "x": 10}, "valid number"),
        ({0.0: 0, 1.0: 9}, "greater than 0"),
        ({0.0: 1.5, 1.0: 9}, "valid integer"),
        ([1, 2], "valid dictionary"),
    ],
)
def test_wrong_quantiles(quantiles, message):
    with pytest.raises(ValueError, match=message):
        LengthSpec.model_validate({"quantiles": quantiles})


def test_presets_are_those_that_a_scenario_may_name():
    names = get_args(get_args(LengthSpec.model_fields["preset"].annotation)[0])
    assert set(PRESETS) == set(names) == set(FILES)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_of_its_side(name):
    for side in ("prompt", "output"):
        quantiles = LengthSpec(quantiles=preset_quantiles(name, side))
        drawn = sample_lengths(LengthSpec(preset=name), 50, stream(0, "x"), side)
        assert drawn == sample_lengths(quantiles, 50, stream(0, "x"))


@pytest.mark.parametrize("name", FILES)
def test_presets_are_the_quantiles_of_their_traces(name):
    file, read = FILES[name]
    if not (TRACES / file).exists():
        pytest.skip(f"{file} is not in the repository")
    rows = list(Trace(TRACES / file, read))
    columns = {"prompt": [r.num_prompt_tokens for r in rows], "output": [r.num_output_tokens for r in rows]}
    for side, lengths in columns.items():
        wanted = np.percentile(lengths, [100 * p for p in PROBABILITIES], method="inverted_cdf")
        assert PRESETS[name][side] == tuple(wanted)
        mean = np.mean(sample_lengths(LengthSpec(preset=name), 100_000, stream(0, "x"), side))
        most = 1.16 if (name, side) == ("azure_code_2023", "output") else 1.06
        assert 0.99 < mean / np.mean(lengths) < most


# times


@pytest.mark.parametrize(("spec", "time_ns"), [(None, 0), (TimeSpec(fixed=1.5), 1_500_000_000)])
def test_a_fixed_time_draws_nothing(spec, time_ns):
    rng, untouched = stream(0, "x"), stream(0, "x")
    assert sample_times_ns(spec, 3, rng) == [time_ns] * 3
    assert rng.random() == untouched.random()
