"""Ratios of collectives along the size of the message: measured points exactly, the form alone far from them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.calibrate.fits.reach import OCTAVES, choose_octaves
from simkv.cost.kernels.collectives import kernel_changes
from simkv.cost.message_residual import GroupResidual, MessageResidual, Ratios, measured_ratios
from simkv.cost.residual import EXTRAPOLATED, INTERPOLATED, MEASURED
from simkv.step import Provenance

MIB = 1024.0**2


def residual(points, octaves=1.0, changes=()):
    sizes, ratios = zip(*sorted(points.items()), strict=True)
    return MessageResidual(Ratios(np.array(sizes, float), np.array(ratios, float)), octaves, changes)


POINTS = st.dictionaries(st.integers(1, 2**30), st.floats(0.5, 2.0), min_size=1, max_size=12)


@given(POINTS, st.sampled_from(OCTAVES))
def test_measured_points_come_out_as_measured(points, octaves):
    found = residual(points, octaves)
    for size, ratio in points.items():
        assert found(size) == (pytest.approx(ratio), Provenance.MEASURED)


@given(POINTS, st.sampled_from(OCTAVES), st.floats(1.0, 2.0**30), st.floats(1.0, 2.0**30))
def test_a_ratio_lies_between_its_neighbours_and_the_form(points, octaves, size, change):
    ratio, _ = residual(points, octaves, (change,))(size)
    assert min(1.0, *points.values()) * 0.999 <= ratio <= max(1.0, *points.values()) * 1.001


@given(POINTS, st.sampled_from(OCTAVES), st.floats(1.0, 2.0**30))
def test_it_has_no_jumps(points, octaves, size):
    found = residual(points, octaves)
    near, _ = found(size * (1 + 1e-9))
    assert found(size)[0] == pytest.approx(near, rel=1e-5)


def test_a_long_reach_is_a_line_in_log_size():
    found = residual({1024: 1.0, 4096: 1.21}, octaves=64.0)
    assert found(2048) == (pytest.approx(1.1, rel=1e-3), Provenance.INTERPOLATED)


def test_a_wide_gap_forgets_its_ends():
    wide = {1024: 1.5, 1024**3: 1.5}
    assert residual(wide, octaves=0.1)(1024**2)[0] == pytest.approx(1.0)
    assert residual(wide, octaves=1.0)(1024**2)[0] == pytest.approx(1.0, abs=0.001)
    assert residual(wide, octaves=64.0)(1024**2)[0] == pytest.approx(1.5, rel=0.01)


def test_beyond_the_table_the_last_ratio_holds():
    found = residual({1024: 0.9, 4096: 1.2})
    assert found(1) == (pytest.approx(0.9), Provenance.EXTRAPOLATED)
    assert found(1e9) == (pytest.approx(1.2), Provenance.EXTRAPOLATED)


def test_nothing_is_carried_into_another_kernel():
    found = residual({MIB: 0.8, 16 * MIB: 1.3}, octaves=64.0, changes=(8 * MIB,))
    assert found(8 * MIB - 1)[0] == pytest.approx(0.8)
    assert found(8 * MIB)[0] == pytest.approx(1.3)
    alone = residual({MIB: 0.8, 64 * MIB: 1.3}, changes=(2 * MIB, 32 * MIB))
    assert alone(8 * MIB) == (1.0, Provenance.INTERPOLATED)


def test_the_sizes_at_which_vllm_changes_its_kernel():
    assert kernel_changes("nccl", 8) == ()
    assert kernel_changes("custom_graph", 2) == (8 * MIB,)
    assert kernel_changes("custom_eager", 8) == (256 * 1024.0, 8 * MIB)


def test_a_message_that_takes_longer_than_a_larger_one_is_left_out():
    """A100, eight GPUs, 4,096 bytes: 14.9 µs between 5.6 and 6.3."""
    found = measured_ratios([8192, 2048, 4096], [6.3e-6, 5.6e-6, 14.9e-6], [6e-6, 6e-6, 6e-6])
    assert found.num_bytes.tolist() == [2048, 8192]
    assert found.ratios == pytest.approx([5.6 / 6, 6.3 / 6])


def test_group_sizes_are_apart():
    group = GroupResidual({2: residual({1024: 0.9}), 8: residual({1024: 1.1})})
    ratios, marks = group.predict([2, 8, 4, 8], [1024, 1024, 1024, 2048])
    assert ratios == pytest.approx([0.9, 1.1, 1.0, 1.1])
    assert marks.tolist() == [MEASURED, MEASURED, EXTRAPOLATED, EXTRAPOLATED]
    assert INTERPOLATED not in marks


def test_a_residual_needs_a_point():
    with pytest.raises(ValueError, match="at least one measured point"):
        MessageResidual(Ratios(np.array([]), np.array([])))


def test_the_reach_is_that_of_the_deviations():
    """A slow wave reaches far; a zigzag says nothing about its neighbours."""
    sizes = 256.0 * 2 ** np.arange(22)
    wave = Ratios(sizes, np.exp(0.2 * np.sin(np.arange(22) / 4)))
    zigzag = Ratios(sizes, np.exp(0.2 * np.where(np.arange(22) % 2, 1, -1)))
    assert choose_octaves([(wave, ())]) >= 3.0
    assert choose_octaves([(zigzag, ())]) == OCTAVES[0]
