"""`simkv calibrate`: what it writes, and that shipped calibrations are what it makes of their own points."""

from dataclasses import asdict
from functools import cache

import pandas as pd
import pytest

import simkv
from simkv.calibrate.collect import collect, plan
from simkv.calibrate.families import GROUPS
from simkv.calibrate.fit import Calibration
from simkv.calibrate.layer_profile import calibrate_any, has_layers
from simkv.calibrate.measurements import Measurements, read_measurements
from simkv.calibrate.tables import shipped_points, write_measurements
from simkv.cost.kernels.collectives import RingParameters, ring_seconds
from simkv.errors import TraceError
from simkv.load.calibration import find_calibration, read_calibration, read_points, shipped_calibrations
from simkv.load.hardware import find_hardware
from simkv.load.shipped import shipped_dir
from tests.calibrate.boxes import FormsBackend
from tests.calibrate.synthetic import HARDWARE, TRUE, table_of

SAME = 2e-3  # parameters are rounded to four digits


@cache
def shipped(name):
    spec = find_calibration(name, shipped_dir("kernels"))
    return spec, find_hardware(spec.device, with_calibration=False), shipped_points(name)


def close(found, expected):
    """Compare parameters; dicts may lie within dicts."""
    if not isinstance(expected, dict):
        return found == pytest.approx(expected, rel=SAME)
    return found.keys() == expected.keys() and all(close(found[key], expected[key]) for key in expected)


@pytest.mark.parametrize("name", shipped_calibrations())
def test_every_shipped_family_says_what_it_rests_on(name):
    spec, _, points = shipped(name)
    assert spec.engine
    assert spec.engine_version
    assert all(fit.source and fit.date and fit.num_points for fit in spec.families.values())
    assert (shipped_dir("kernels") / f"{name}.parquet").stat().st_size < 400 * 1024
    assert len(points.frame) > 1000


@pytest.mark.parametrize("name", [name for name in shipped_calibrations() if not name.startswith("rtx")])
def test_a_part_of_a_shipped_calibration_is_found_again(name):
    """Prefill and collectives, which are quick; the rest is slow."""
    spec, hardware, points = shipped(name)
    is_quick = points.frame["world_size"].notna() | (points.frame["op"] == "prefill_attention")
    groups = tuple(group for group in GROUPS if group.name == "prefill_attention/bfloat16")
    found = Calibration(hardware, groups).fit(Measurements(points.frame[is_quick]))
    for family, parameters in found.parameters_.items():
        assert close(asdict(parameters), spec.families[family].parameters), family
        assert spec.families[family].residual_octaves == found.collectives_.octaves_.get(family)


@pytest.mark.slow
@pytest.mark.parametrize("name", shipped_calibrations())
def test_a_shipped_calibration_is_found_again(name):
    spec, hardware, points = shipped(name)
    found = calibrate_any(hardware, points, "again", "today").spec
    assert found.families.keys() == spec.families.keys()
    for family, fit in spec.families.items():
        assert close(found.families[family].parameters, fit.parameters), family
        assert found.families[family].num_points == fit.num_points
        assert found.families[family].error == pytest.approx(fit.error, abs=1e-3)
        assert found.families[family].residual_octaves == fit.residual_octaves


def test_layers_are_told_from_kernels():
    assert has_layers(shipped("rtx_4090")[2])
    assert not has_layers(shipped("a100_sxm")[2])


@pytest.fixture
def run(simkv, monkeypatch, tmp_path):
    """The command line in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return simkv


def test_a_box_of_ones_own(run, tmp_path):
    name = "prefill_attention/fp8"
    write_measurements(table_of(name, noise=0.01), tmp_path / "measured.parquet")
    code, out, err = run(
        "calibrate", "--system", "h100_sxm", "--measurements", "measured.parquet", "-o", "fit.yaml"
    )
    assert code == 0
    assert err.startswith("prefill_attention: 45 of 405 rows left out")  # chunks below a block
    assert name in out
    assert "1 plots beside it" in out
    found = read_calibration(tmp_path / "fit.yaml")
    assert found.families[name].parameters["efficiency"] == pytest.approx(TRUE[name].efficiency, rel=0.05)
    assert found.families[name].error < 0.05
    assert set(read_points(tmp_path / "fit.parquet")) == {name}
    assert (tmp_path / "fit.errors.csv").read_text().startswith("group,range,metric")
    assert (tmp_path / "fit.prefill_attention_fp8.png").stat().st_size > 10_000
    # a profile beside it takes it
    profile = tmp_path / "box.yaml"
    profile.write_text("like: h100_sxm\ncalibration: fit.yaml\n")
    hardware = find_hardware(str(profile))
    assert hardware.calibration.families.keys() == {name}
    assert not hardware.calibration.is_transferred


def test_files_of_several_kinds_are_one_table(run, tmp_path):
    """One's own kernels, and an all-reduce as nccl-tests print it."""
    write_measurements(table_of("prefill_attention/fp8", noise=0.01), tmp_path / "measured.parquet")
    true = RingParameters(6e-6, 2e-6, {8: 4e11}, 0.8, 8e-6, 1e-6, 1e6, 0.5)
    times = {size: ring_seconds(true, "all_reduce", 8, size) for size in (2**n for n in range(10, 31))}
    lines = ["# Collective test starting: all_reduce_perf", "# nThread 1 nGpus 8 minBytes 1024"]
    lines += [f"{size} {size // 4} float sum -1 {1e6 * seconds:.3f} 0 0 0" for size, seconds in times.items()]
    (tmp_path / "nccl.txt").write_text("\n".join(lines))
    files = [option for name in ("measured.parquet", "nccl.txt") for option in ("--measurements", name)]
    code, out, _ = run("calibrate", "--system", "h100_sxm", *files, "-o", "fit.yaml", "--no-plots")
    assert code == 0
    assert "all_reduce_nccl" in out
    found = read_calibration(tmp_path / "fit.yaml").families
    assert found.keys() == {"prefill_attention/fp8", "all_reduce/nccl"}
    assert found["all_reduce/nccl"].parameters["bytes_per_s"][8] == pytest.approx(4e11, rel=0.1)
    assert found["all_reduce/nccl"].source == "measured.parquet, nccl.txt"


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    """What `simkv collect --quick` writes on eight GPUs whose kernels are the shipped H100's forms."""
    path = tmp_path_factory.mktemp("collected") / "measured.parquet"
    collect(plan("quick", 8), FormsBackend(), path)
    return path


def test_what_the_collector_writes_calibrates(run, collected, tmp_path):
    """Short as it is, it finds the kernels that made it, and leaves nothing out."""
    options = ("--measurements", collected, "-o", "mine.yaml", "--no-plots")
    code, out, err = run("calibrate", "--system", "h100_sxm", *options)
    assert code == 0
    assert "plots" not in out
    found, expected = read_calibration(tmp_path / "mine.yaml"), shipped("h100_sxm")[0]
    rings = {f"{op}/nccl" for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")}
    attention = {f"{kind}_attention/bfloat16" for kind in ("decode", "prefill", "chunked")}
    moves = {f"elementwise/{kernel}" for kernel in ("copy", "rms_norm", "glu", "gather")} | {"sampler"}
    assert found.families.keys() == {"gemm/bfloat16"} | attention | moves | rings
    assert all(fit.error < 0.05 for fit in found.families.values())
    assert (found.device, found.engine) == ("NVIDIA H100 80GB HBM3", "torch")
    rates = [spec.families["all_reduce/nccl"].parameters["bytes_per_s"][8] for spec in (found, expected)]
    assert rates[0] == pytest.approx(rates[1], rel=0.1)
    assert err == ""


def test_what_no_family_takes_is_said(run, collected):
    """Additions, which collectors before measured; several chunks over prefixes; too few of anything."""
    table = read_measurements(collected).frame
    chunks = table[table["context"] > 0].head(20)
    sent = table[table["op"] == "send_recv"].head(3)
    moves = table[table["kernel"] == "copy"].assign(kernel="add")
    kept = [table[table["op"] == "gemm"], chunks.assign(batch=2), sent, moves]
    pd.concat(kept, ignore_index=True).to_csv("some.csv", index=False)
    code, _, err = run(
        "calibrate", "--system", "h100_sxm", "--measurements", "some.csv", "-o", "mine.yaml", "--no-plots"
    )
    assert code == 0
    assert err.splitlines() == [
        "send_recv/nccl: left out, 3 points are too few for 3 parameters",
        "elementwise: left out, no family is fitted to its 28 rows",
        "prefill_attention: left out, no family is fitted to its 20 rows",
    ]


def test_tables_of_one_gpu_and_too_few_points(run, collected):
    table = read_measurements(collected).frame
    few = table[(table["op"] == "gemm") | ((table["op"] == "decode_attention") & (table["batch"] < 4))]
    few.to_csv("few.csv", index=False)
    code, _, err = run(
        "calibrate", "--system", "h100_sxm", "--measurements", "few.csv", "-o", "a.yaml", "--no-plots"
    )
    assert code == 0
    assert "decode_attention/bfloat16: left out, 7 points are too few for 11 parameters" in err
    table[table["world_size"].notna() & (table["num_bytes"] > 2e7)].to_csv("some.csv", index=False)
    code, _, err = run("calibrate", "--system", "h100_sxm", "--measurements", "some.csv", "-o", "b.yaml")
    assert code == 2
    assert "all_reduce/nccl: left out" in err


GOOD = "op,m,n,k,dtype,seconds,device\ngemm,1,512,512,bfloat16,1e-6,d\n"


@pytest.mark.parametrize(
    ("content", "faults"),
    [
        (None, ["measured.csv: cannot be read: No such file or directory"]),
        ("", ["measured.csv: wanted measurements in Parquet or CSV"]),
        ("op,seconds\n", ["measured.csv: column 'device' is missing"]),
        ("op,m,n,k,seconds,device\n", ["measurements: nothing to calibrate"]),
        (
            GOOD + "gemm,1,512,x,bfloat16,-1,d\n",
            ["row 1: gemm needs k, got 'x'", "row 1: seconds: wanted a positive"],
        ),
        (GOOD.replace("op,m", "op,rows,m"), ["unknown column 'rows'"]),
        (GOOD, ["nothing to calibrate", "gemm/bfloat16: left out"]),
        (GOOD.replace("gemm", "gem"), ["did you mean 'gemm'"]),
    ],
)
def test_a_file_that_cannot_be_used_is_a_line_a_fault(run, tmp_path, content, faults):
    if content is not None:
        (tmp_path / "measured.csv").write_text(content)
    code, out, err = run(
        "calibrate", "--system", "h100_sxm", "--measurements", "measured.csv", "-o", "fit.yaml"
    )
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == len(faults)
    assert all(fault in line for fault, line in zip(faults, err.splitlines(), strict=True))
    assert not (tmp_path / "fit.yaml").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-o", "fit.yaml", "--measurements", "a.csv"), "fit.parquet: wanted a file that does not exist yet"),
        (("-o", "a.yaml", "--measurements", "a.parquet", "--force"), "would replace the measurements"),
        (("-o", "b.yaml"), "--source, --measurements: wanted one of the two"),
        (("-o", "b.yaml", "--source", "mine"), "--source: wanted aiconfigurator"),
        (("-o", "b.json", "--measurements", "a.csv"), "--output: wanted a file that ends in .yaml"),
    ],
)
def test_wrong_options_are_one_line(run, tmp_path, options, said):
    (tmp_path / "fit.parquet").touch()
    code, out, err = run("calibrate", "--system", "h100_sxm", *options)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert said in err


@pytest.fixture(scope="module")
def fitted():
    """A calibration of kernels that take twice the time of those that a test knows."""
    table = table_of("decode_attention/bfloat16", "gemm/bfloat16").frame
    return Calibration(HARDWARE).fit(
        Measurements(table.assign(seconds=2 * table["seconds"], device="h100_sxm"))
    )


def test_a_profile_takes_a_calibration_into_a_simulation(fitted, tmp_path):
    """Slower kernels make slower answers; points beside the profile are read for the residuals."""
    scenario = simkv.load_scenario("quickstart", overrides=["workload.num_prompts=5"])
    slow = fitted.apply(HARDWARE, points=tmp_path / "points.parquet")
    assert slow.calibration.families.keys() == {"decode_attention/bfloat16", "gemm/bfloat16"}
    assert set(read_points(tmp_path / "points.parquet")) == slow.calibration.families.keys()
    answers = [
        simkv.simulate(scenario.replace(hardware=hardware)).summary["mean_tpot_ms"]
        for hardware in (scenario.hardware, fitted.apply(HARDWARE), slow)
    ]
    assert answers[1] > 1.3 * answers[0]
    assert answers[2] == pytest.approx(answers[1], rel=0.1)  # without points: the forms alone


def test_another_gpu_takes_forms_over_but_no_ratios(fitted, tmp_path):
    other = find_hardware("a100_sxm", with_calibration=False)
    assert fitted.apply(other).calibration.is_transferred
    assert not fitted.apply(HARDWARE.replace(name="mine")).calibration.is_transferred
    with pytest.raises(TraceError, match=r"wanted a file that ends in \.parquet"):
        fitted.apply(other, points=tmp_path / "points.csv")


def test_a_table_may_name_its_profile():
    table = table_of("prefill_attention/fp8").frame
    found = Calibration().fit(Measurements(table.assign(device="h100_sxm")))
    assert found.hardware.name == "h100_sxm"
    assert Calibration("h100_sxm").hardware.name == "h100_sxm"
    with pytest.raises(TraceError, match=r"device: wanted one shipped profile .*, got imaginary"):
        Calibration().fit(Measurements(table))
    with pytest.raises(TraceError, match="wanted a hardware profile"):
        print(Calibration().hardware)


def test_what_was_fitted_before_predicts_the_same():
    spec, hardware, points = shipped("a100_sxm")
    again = Calibration.of(spec, points, hardware)
    assert again.parameters_.keys() == spec.families.keys()
    shapes = {"world_size": [8, 8], "num_bytes": [32768, 40000]}
    only = Measurements(points.frame[points.frame["world_size"].notna()])
    expected = Calibration(hardware).fit(only).predict(shapes, "all_reduce_custom_graph")
    assert again.predict(shapes, "all_reduce_custom_graph") == pytest.approx(expected)
