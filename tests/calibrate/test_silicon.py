"""The measured tables of aiconfigurator-core (the extra ``silicon``) are what shipped calibrations rest on."""

import pandas as pd
import pytest

from simkv.calibrate.fit import Calibration
from simkv.calibrate.fits.pointwise import served_from_cache
from simkv.calibrate.profile import reduced
from simkv.calibrate.readers.silicon import read_silicon, split_tables
from simkv.calibrate.tables import shipped_points
from simkv.load.hardware import find_hardware

VERSION = {"h100_sxm": "0.24.0", "a100_sxm": "0.14.0"}


@pytest.mark.parametrize("system", VERSION)
def test_shipped_points_are_those_of_the_tables(system):
    pytest.importorskip("aiconfigurator_core", reason="measured tables: pip install 'simkv[silicon]'")
    hardware = find_hardware(system, with_calibration=False)
    found = reduced(hardware, read_silicon(system, VERSION[system]).joined()).frame
    shipped = shipped_points(system).frame
    shapes = [column for column in shipped if shipped[column].notna().any()]
    pd.testing.assert_frame_equal(found[shapes], shipped[shapes], check_dtype=False)


@pytest.mark.parametrize("system", VERSION)
def test_no_row_of_these_cards_is_left_out_as_cached(system):
    calibration = Calibration(find_hardware(system))
    rows = calibration.groups["gemm/bfloat16"].rows(split_tables(shipped_points(system)).kernels)
    assert not served_from_cache(rows, calibration.gpu("gemm/bfloat16"), 2.0).any()
