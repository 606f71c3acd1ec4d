"""The bars of accuracy, on the measured tables of aiconfigurator-core (the extra ``silicon``).

Errors are over all held-out points of a group's reported shapes: spikes and duplicates' medians, nothing else
left out. `physical` is the form alone, fitted to the other 70 %; `residual` adds their interpolated residual.
"""

from functools import cache

import numpy as np
import pytest

from simkv.calibrate.families import GROUPS
from simkv.calibrate.fit import Calibration, served_from_cache
from simkv.calibrate.measurements import held_out, held_out_weights
from simkv.calibrate.readers.aiconfigurator import read_aiconfigurator
from simkv.load.hardware import find_hardware

pytest.importorskip("aiconfigurator_core", reason="measured tables: pip install 'simkv[silicon]'")

VERSION = {"h100_sxm": "0.24.0", "a100_sxm": "0.14.0"}
# group: physical median and p90, residual median and p90
BARS = {
    ("h100_sxm", "gemm/bfloat16"): (0.05, 0.16, 0.03, 0.11),
    ("a100_sxm", "gemm/bfloat16"): (0.05, 0.16, 0.035, 0.14),
    ("h100_sxm", "gemm/fp8"): (0.08, 0.25, 0.03, 0.10),
    ("h100_sxm", "decode_attention/bfloat16"): (0.07, 0.22, 0.025, 0.09),
    ("h100_sxm", "decode_attention/fp8"): (0.07, 0.22, 0.025, 0.09),
    ("a100_sxm", "decode_attention/bfloat16"): (0.07, 0.22, 0.025, 0.09),
    ("h100_sxm", "prefill_attention/bfloat16"): (0.05, 0.15, 0.025, 0.09),
    ("h100_sxm", "prefill_attention/fp8"): (0.05, 0.15, 0.025, 0.09),
    ("a100_sxm", "prefill_attention/bfloat16"): (0.05, 0.15, 0.025, 0.09),
}


@cache
def measurements_of(system):
    return read_aiconfigurator(system, VERSION[system])


@cache
def score_of(system):
    measurements = measurements_of(system)
    return Calibration(find_hardware(system)).fit(measurements, split=held_out).score(measurements)


@cache
def weights_score_of(system):
    gemms = tuple(group for group in GROUPS if group.op == "gemm")
    measurements = measurements_of(system)
    calibration = Calibration(find_hardware(system), gemms)
    return calibration.fit(measurements, split=lambda rows, _: held_out_weights(rows)).score(measurements)


@pytest.mark.parametrize(("system", "name"), BARS)
def test_held_out_points(system, name):
    found = [score_of(system).row(name, metric) for metric in ("physical", "residual")]
    errors = [error for row in found for error in (row.median, row.p90)]
    assert np.less_equal(errors, BARS[system, name]).all(), errors


@pytest.mark.parametrize(("system", "name"), [key for key in BARS if key[1].startswith("gemm")])
def test_held_out_weight_matrices(system, name):
    """Real models sit off the grid of n and k: whole columns held out meet the same bars."""
    found = [weights_score_of(system).row(name, metric) for metric in ("physical", "residual")]
    errors = [error for row in found for error in (row.median, row.p90)]
    assert np.less_equal(errors, BARS[system, name]).all(), errors


@pytest.mark.parametrize("system", VERSION)
def test_no_row_of_these_cards_is_left_out_as_cached(system):
    calibration = Calibration(find_hardware(system))
    rows = calibration.groups["gemm/bfloat16"].rows(measurements_of(system))
    assert not served_from_cache(rows, calibration.gpu("gemm/bfloat16"), 2.0).any()
