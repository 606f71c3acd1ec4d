"""The residual: exact where measured, between its neighbours elsewhere, honest about which is which."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import RegularGridInterpolator

from simkv.cost.residual import EXTRAPOLATED, INTERPOLATED, MEASURED, PROVENANCES, Residual, spikes
from simkv.step import Provenance

AXES = {"m": [1.0, 2.0, 4.0, 8.0], "n": [64.0, 128.0, 512.0], "k": [10.0, 20.0]}


def grid_of(holes=0.0, seed=0):
    rng = np.random.default_rng(seed)
    grid = rng.uniform(0.5, 2.0, [len(axis) for axis in AXES.values()])
    grid[rng.random(grid.shape) < holes] = np.nan
    grid[0, 0, 0] = 1.25
    return grid


seeds = st.integers(0, 1000)
anywhere = st.tuples(st.floats(0.1, 20), st.floats(1, 1000), st.floats(1, 40))
inside = st.tuples(st.floats(1, 8), st.floats(64, 512), st.floats(10, 20))


@given(seeds, st.sampled_from([0.0, 0.3, 0.7, 0.99]))
def test_measured_points_come_out_exactly(seed, holes):
    grid = grid_of(holes, seed)
    residual = Residual(AXES, grid)
    for index in np.argwhere(~np.isnan(grid)):
        shape = [axis[i] for axis, i in zip(AXES.values(), index, strict=True)]
        assert residual(*shape) == (grid[tuple(index)], Provenance.MEASURED)


@given(seeds, st.sampled_from([0.0, 0.3, 0.7, 0.99]), anywhere)
def test_ratios_stay_within_the_measured_range(seed, holes, shape):
    grid = grid_of(holes, seed)
    ratio, _ = Residual(AXES, grid)(*shape)
    assert np.nanmin(grid) - 1e-9 <= ratio <= np.nanmax(grid) + 1e-9


@given(seeds, inside, st.integers(0, 2))
def test_it_is_continuous(seed, shape, axis):
    residual = Residual(AXES, grid_of(0.3, seed))
    nearby = tuple(size + 1e-7 if index == axis else size for index, size in enumerate(shape))
    assert residual(*nearby)[0] == pytest.approx(residual(*shape)[0], abs=1e-5)


@given(seeds, inside)
def test_between_measured_points_it_is_linear_in_the_size(seed, shape):
    grid = grid_of(0.0, seed)
    expected = RegularGridInterpolator(list(AXES.values()), grid)([shape])[0]
    ratio, provenance = Residual(AXES, grid)(*shape)
    assert ratio == pytest.approx(expected)
    assert provenance in (Provenance.INTERPOLATED, Provenance.MEASURED)


def test_outside_the_grid_the_edge_goes_on_and_says_so():
    residual = Residual(AXES, grid_of())
    assert residual(100.0, 64.0, 10.0) == (residual(8.0, 64.0, 10.0)[0], Provenance.EXTRAPOLATED)
    assert residual(1.0, 1.0, 10.0) == (residual(1.0, 64.0, 10.0)[0], Provenance.EXTRAPOLATED)


def test_a_hole_between_neighbours_is_interpolated_and_beyond_them_extrapolated():
    line = Residual({"m": [1.0, 2.0, 5.0, 9.0]}, np.array([1.0, np.nan, 2.0, np.nan]))
    assert line(2.0) == (1.25, Provenance.INTERPOLATED)
    assert line(9.0) == (2.0, Provenance.EXTRAPOLATED)


def test_the_axis_that_predicts_better_fills_the_hole():
    """Along m the ratio jumps from cell to cell, along n it is constant."""
    grid = np.tile([[1.0], [1.4], [1.0], [1.4], [1.0]], (1, 5))
    grid[1, 2] = np.nan
    axes = {"m": [1.0, 2.0, 3.0, 4.0, 5.0], "n": [1.0, 2.0, 3.0, 4.0, 5.0]}
    assert Residual(axes, grid)(2.0, 3.0)[0] == pytest.approx(1.4, abs=0.01)


def test_a_dip_along_one_axis_survives():
    grid = np.ones((5, 5))
    grid[2, :] = 0.65
    axes = {"m": [1.0, 2.0, 3.0, 4.0, 5.0], "n": [1.0, 2.0, 3.0, 4.0, 5.0]}
    assert not spikes(grid).any()
    assert Residual(axes, grid)(3.0, 2.5)[0] == pytest.approx(0.65)


def test_a_single_spike_is_left_out():
    grid = np.ones((5, 5))
    grid[2, 3] = 3.2
    assert np.argwhere(spikes(grid)).tolist() == [[2, 3]]
    m, n = np.meshgrid(np.arange(5.0), np.arange(5.0), indexing="ij")
    residual = Residual.from_points(("m", "n"), (m.ravel(), n.ravel()), grid.ravel())
    assert residual(2.0, 3.0) == (pytest.approx(1.0), Provenance.INTERPOLATED)


def test_a_step_or_a_corner_is_no_spike():
    step = np.ones((5, 5))
    step[3:, :] = 2.0
    corner = np.ones((5, 5))
    corner[4, 4] = 3.0  # neighbours on one side only: nothing to compare with
    assert not spikes(step).any()
    assert not spikes(corner).any()


@given(seeds, st.sampled_from([0.0, 0.3]), anywhere)
def test_fixing_axes_changes_nothing(seed, holes, shape):
    residual = Residual(AXES, grid_of(holes, seed))
    ratio, provenance = residual.fixed(n=shape[1], k=shape[2])(shape[0])
    expected, expected_provenance = residual(*shape)
    assert ratio == pytest.approx(expected)
    assert PROVENANCES.index(provenance) <= PROVENANCES.index(expected_provenance)
    assert residual.fixed(n=shape[1])(shape[0], shape[2])[0] == pytest.approx(expected)


def test_fixing_an_unknown_axis_is_refused():
    with pytest.raises(ValueError, match="axes are m, n, k; got width"):
        Residual(AXES, grid_of()).fixed(width=3.0)


def test_a_grid_without_a_measured_point_is_refused():
    with pytest.raises(ValueError, match="at least one measured point"):
        Residual({"m": [1.0]}, np.array([np.nan]))


def test_many_shapes_at_once():
    residual = Residual(AXES, grid_of(0.4))
    shapes = [(1.0, 64.0, 10.0), (3.0, 100.0, 15.0), (99.0, 64.0, 10.0)]
    ratios, marks = residual.predict(*zip(*shapes, strict=True))
    assert list(zip(ratios, [PROVENANCES[mark] for mark in marks], strict=True)) == [
        residual(*shape) for shape in shapes
    ]
    assert (MEASURED, INTERPOLATED, EXTRAPOLATED) == (0, 1, 2)
