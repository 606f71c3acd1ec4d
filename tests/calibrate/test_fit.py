"""Fits: known parameters are found again, held-out points are not looked at, data are cleaned by rule."""

import doctest

import numpy as np
import pandas as pd
import pytest

from simkv.calibrate import fit
from simkv.calibrate.families import GROUPS
from simkv.calibrate.fit import Calibration
from simkv.calibrate.fits.pointwise import served_from_cache
from simkv.calibrate.measurements import Measurements, held_out, held_out_weights, validate
from simkv.calibrate.tables import reduce
from simkv.errors import TraceError
from simkv.step import Provenance
from tests.calibrate.synthetic import GROUP, HARDWARE, TRUE, gpu_of, rows_of, table_of

PROVENANCES = list(Provenance)


@pytest.fixture(scope="module")
def measurements():
    return table_of(noise=0.02)


@pytest.fixture(scope="module")
def calibration(measurements):
    return Calibration(HARDWARE).fit(measurements, split=held_out)


def test_groups_without_rows_are_not_fitted(calibration):
    assert set(calibration.parameters_) == set(TRUE) == set(calibration.residuals_)


@pytest.mark.parametrize("name", TRUE)
def test_a_fit_finds_the_kernels_that_made_the_table(calibration, name):
    rows = rows_of(name)
    rows = rows[GROUP[name].reported(rows)]
    errors = np.abs(calibration.physical(rows, name) / rows["seconds"].to_numpy() - 1)
    assert np.median(errors) < 0.02
    assert np.quantile(errors, 0.9) < 0.05


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("gemm/bfloat16", "launch_s"),
        ("gemm/bfloat16", "small_tile_efficiency"),
        ("gemm/fp8", "many_rows_efficiency"),
        ("decode_attention/bfloat16", "launch_s"),
        ("prefill_attention/fp8", "efficiency"),
        ("prefill_attention/fp8", "kv_write_s"),
    ],
)
def test_well_determined_parameters_are_recovered(calibration, name, field):
    assert getattr(calibration.parameters_[name], field) == pytest.approx(getattr(TRUE[name], field), rel=0.1)


def test_parameters_stay_within_bounds_and_keep_what_is_not_fitted(calibration):
    for name, parameters in calibration.parameters_.items():
        for field, (low, high) in GROUP[name].bounds.items():
            assert low * 0.999 <= getattr(parameters, field) <= high * 1.001
    assert calibration.parameters_["prefill_attention/fp8"].kv_bytes == 1.0


def test_the_same_table_gives_the_same_parameters(calibration, measurements):
    only = tuple(group for group in GROUPS if group.name == "prefill_attention/fp8")
    again = Calibration(HARDWARE, only).fit(measurements, split=held_out)
    assert again.parameters_["prefill_attention/fp8"] == calibration.parameters_["prefill_attention/fp8"]


@pytest.mark.parametrize("name", TRUE)
def test_predictions_return_points_that_were_seen_exactly(calibration, measurements, name):
    rows = calibration.rows(measurements, name)
    seen = rows[~held_out(rows, GROUP[name].op)]
    assert calibration.predict(seen, name) == pytest.approx(seen["seconds"].to_numpy(), rel=1e-12)
    ratios, marks = calibration.residuals_[name].predict(*GROUP[name].shape(seen))
    assert set(marks) == {PROVENANCES.index(Provenance.MEASURED)}
    assert ratios * calibration.physical(seen, name) == pytest.approx(seen["seconds"].to_numpy())


@pytest.mark.parametrize("split", [held_out, lambda rows, _: held_out_weights(rows)])
def test_what_is_held_out_changes_nothing(split):
    table = table_of("gemm/bfloat16", noise=0.02).frame
    drawn = split(table, "gemm")
    spoilt = table.assign(seconds=table["seconds"].where(~drawn, 1.0))
    only = (GROUP["gemm/bfloat16"],)
    honest = Calibration(HARDWARE, only).fit(Measurements(table), split=split)
    fooled = Calibration(HARDWARE, only).fit(Measurements(spoilt), split=split)
    assert honest.parameters_ == fooled.parameters_
    assert honest.predict(table, "gemm/bfloat16") == pytest.approx(fooled.predict(table, "gemm/bfloat16"))


def test_several_rows_for_a_point_are_their_median():
    table = table_of("prefill_attention/fp8").frame
    low, high = table.assign(seconds=table["seconds"] / 2), table.assign(seconds=table["seconds"] * 9)
    three = Measurements(pd.concat([low, table, high], ignore_index=True))
    calibration = Calibration(HARDWARE, (GROUP["prefill_attention/fp8"],))
    expected = calibration.rows(Measurements(table), "prefill_attention/fp8")
    pd.testing.assert_frame_equal(calibration.rows(three, "prefill_attention/fp8"), expected)


def test_structure_is_chosen_by_the_table():
    """Rows with heads = kv_heads that never split (FlashAttention 2) make the fit choose that alternative."""
    name = "decode_attention/bfloat16"
    group, gpu = GROUP[name], gpu_of(GROUP[name])
    rows = rows_of(name)
    equal = rows.assign(kv_heads=8, heads=8).drop_duplicates(["batch", "context"])
    rows = pd.concat([rows[rows["heads"] > rows["kv_heads"]], equal], ignore_index=True)
    figures = (gpu.peak_flops_per_s, gpu.bandwidth_bytes_per_s, gpu.num_sms)
    for unsplit in group.starts:
        table = rows.assign(seconds=group.seconds(unsplit, *figures, *group.shape(rows)))
        found = Calibration(HARDWARE, (group,)).fit(validate(table, "t")).parameters_[name]
        assert found.splits_equal_heads == unsplit.splits_equal_heads


def test_products_whose_weights_a_cache_served_are_left_out():
    rows = rows_of("gemm/bfloat16")
    gpu = gpu_of(GROUP["gemm/bfloat16"])
    assert not served_from_cache(rows, gpu, 2.0).any()
    small = 2.0 * rows["n"] * rows["k"] <= 2**24
    cached = rows.assign(seconds=rows["seconds"].where(~small, rows["seconds"] / 8))
    dropped = served_from_cache(cached, gpu, 2.0)
    assert dropped.any()
    assert not dropped[~small.to_numpy()].any()
    assert not dropped[(rows["m"] >= 1024).to_numpy()].any()  # bound by arithmetic: the cache does not matter


def test_mixed_tables_and_empty_ones_are_refused():
    table = table_of("gemm/fp8").frame
    two = pd.concat([table, table.assign(engine_version="9.9")], ignore_index=True)
    with pytest.raises(TraceError, match=r"wanted one engine_version, got 0\.0\.1, 9\.9"):
        Calibration(HARDWARE).fit(Measurements(two))
    with pytest.raises(TraceError, match="wanted rows of one of gemm/bfloat16"):
        Calibration(HARDWARE).fit(Measurements(table[table["m"] > 10**6]))
    with pytest.raises(TraceError, match="too few for 10 parameters"):
        Calibration(HARDWARE).fit(Measurements(table.head(15)))


def test_a_dtype_that_the_gpu_lacks_is_refused():
    gpu = HARDWARE.gpu
    peaks = {dtype: peak for dtype, peak in gpu.peak_flops_per_s.items() if dtype != "fp8"}
    without = HARDWARE.replace(gpu={"peak_flops_per_s": peaks})
    with pytest.raises(TraceError, match="has no peak_flops_per_s in fp8"):
        Calibration(without).fit(table_of("gemm/fp8"))


def test_a_reduced_table_gives_the_same_residuals(calibration, measurements):
    reduced = validate(reduce(calibration, measurements), "reduced")
    assert len(reduced.frame) < len(measurements.frame)
    for name in TRUE:
        pd.testing.assert_frame_equal(
            calibration.rows(reduced, name), calibration.rows(measurements, name), check_dtype=False
        )


def test_the_example_of_the_module_runs():
    assert doctest.testmod(fit).attempted > 5
    assert doctest.testmod(fit).failed == 0
