"""`simkv calibrate`: what it writes, and that shipped calibrations are what it makes of their own points."""

from dataclasses import asdict

import pytest
from typer.testing import CliRunner

from simkv.calibrate.families import GROUPS
from simkv.calibrate.fit import Calibration
from simkv.calibrate.measurements import read_measurements
from simkv.calibrate.tables import write_measurements
from simkv.cli import app
from simkv.load.calibration import read_calibration, read_points, shipped_calibrations
from simkv.load.hardware import find_hardware
from simkv.load.shipped import shipped_dir
from tests.calibrate.synthetic import TRUE, table_of


@pytest.mark.parametrize("name", shipped_calibrations())
def test_a_shipped_calibration_is_reproducible_from_its_points(name):
    shipped = read_calibration(shipped_dir("kernels") / f"{name}.yaml")
    table = read_measurements(shipped_dir("kernels") / f"{name}.parquet")
    kernels = table.frame[table.frame["world_size"].isna()]
    groups = tuple(group for group in GROUPS if group.name == "prefill_attention/bfloat16")
    found = Calibration(find_hardware(name), groups).fit(type(table)(kernels))
    for group, parameters in found.parameters_.items():
        assert asdict(parameters) == pytest.approx(shipped.families[group].parameters, rel=1e-3)
    assert all(fit.source and fit.date and fit.num_points for fit in shipped.families.values())
    assert (shipped_dir("kernels") / f"{name}.parquet").stat().st_size < 400 * 1024


def test_a_box_of_ones_own(tmp_path):
    name = "prefill_attention/fp8"
    write_measurements(table_of(name, noise=0.01), tmp_path / "mine.parquet")
    output = tmp_path / "fit.yaml"
    options = ["--system", "h100_sxm", "--measurements", str(tmp_path / "mine.parquet"), "-o", str(output)]
    done = CliRunner().invoke(app, ["calibrate", *options])
    assert done.exit_code == 0, done.output
    assert name in done.stdout
    found = read_calibration(output)
    assert found.families[name].parameters["efficiency"] == pytest.approx(TRUE[name].efficiency, rel=0.05)
    assert found.families[name].error < 0.05
    assert set(read_points(tmp_path / "fit.parquet")) == {name}
    assert (tmp_path / "fit.errors.csv").read_text().startswith("group,range,metric")
    # a profile beside it takes it
    profile = tmp_path / "box.yaml"
    profile.write_text("like: h100_sxm\ncalibration: fit.yaml\n")
    hardware = find_hardware(str(profile))
    assert hardware.calibration.families.keys() == {name}
    assert not hardware.calibration.is_transferred


def test_existing_files_and_two_sources_are_refused(tmp_path):
    (tmp_path / "fit.parquet").touch()
    for options in (
        ["-o", str(tmp_path / "fit.yaml"), "--measurements", "a.csv"],
        ["-o", str(tmp_path / "b.yaml")],
    ):
        done = CliRunner().invoke(app, ["calibrate", "--system", "h100_sxm", *options])
        assert done.exit_code != 0
