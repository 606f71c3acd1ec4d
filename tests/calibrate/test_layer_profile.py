"""Per-layer profiles in a calibration: bars on held-out points, and what the shipped ones are made of."""

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from simkv.calibrate.layer_profile import calibrate_layers, fit_layers, has_layers
from simkv.calibrate.measurements import read_measurements
from simkv.calibrate.readers.layers import read_profiles
from simkv.calibrate.tables import shipped_points
from simkv.cli import app
from simkv.errors import TraceError
from simkv.load.calibration import find_calibration, kernel_points, read_calibration
from simkv.load.hardware import find_hardware
from simkv.validate.kernels import compare_kernels

REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "kernels" / "layers"
CARDS = ["rtx_4090", "rtx_pro_6000"]
every_card = pytest.mark.parametrize("card", CARDS)
needs_reference = pytest.mark.skipif(
    not REFERENCE.is_dir(), reason="the profiles of ../shared/reference/kernels/layers are not here"
)
MOVES = [
    f"elementwise/{name}" for name in ("act_fn", "embedding", "final_layernorm", "layernorm", "rotary_emb")
]
# median and ninetieth percentile of the error on held-out points, of the form alone and with the residual
BARS = {
    "gemm/bfloat16": ((0.05, 0.15), (0.03, 0.10)),
    "chunked_attention/bfloat16": ((0.07, 0.20), (0.04, 0.12)),
    "mixed_attention/bfloat16": ((0.10, 0.30), (0.05, 0.15)),
    "uneven_decode/bfloat16": ((0.05, 0.15), (0.04, 0.12)),
    **dict.fromkeys([*MOVES, "head", "sampler"], ((0.08, 0.25), (0.03, 0.10))),
}
# Times of rotary embedding on the RTX 4090 jump by half from one number of rows to the next and back.
BARS_4090 = {"elementwise/rotary_emb": ((0.08, 0.27), (0.03, 0.16))}


@cache
def errors(card):
    return compare_kernels(card).points


@every_card
@pytest.mark.parametrize("group", BARS)
def test_held_out_points_meet_their_bar(card, group):
    bars = BARS | (BARS_4090 if card == "rtx_4090" else {})
    for metric, (median, p90) in zip(("physical", "residual"), bars[group], strict=True):
        row = errors(card).row(group, metric)
        assert row.median <= median, row
        assert row.p90 <= p90, row


@every_card
def test_a_shipped_calibration_is_reproducible_from_its_points(card):
    shipped, points = find_calibration(card, Path()), shipped_points(card)
    assert has_layers(points)
    kernels, layers = fit_layers(find_hardware(card, with_calibration=False), points)
    found = kernels.parameters_ | layers.parameters_
    assert found.keys() == shipped.families.keys()
    for name, parameters in found.items():
        expected = shipped.families[name].parameters
        for key, value in asdict(parameters).items():
            assert value == pytest.approx(expected[key], rel=1e-3), (name, key)
    for name, fit in shipped.families.items():
        assert fit.source.startswith("LLMServingSim")
        assert fit.date
        assert fit.num_points
        assert fit.error == pytest.approx(errors(card).row(name, "physical").median, abs=2e-3)


@every_card
def test_points_are_small_and_grouped_as_fits_are(card):
    groups = kernel_points(find_hardware(card))
    assert groups.keys() >= {*BARS, "decode_attention/bfloat16"}
    assert (groups["prefill_attention/bfloat16"]["context"] == 0).all()
    assert (groups["chunked_attention/bfloat16"]["context"] > 0).any()
    assert groups["mixed_attention/bfloat16"].keys() >= {"chunk", "context", "batch", "decode_context"}


def test_the_command_prints_the_table_and_its_points():
    done = CliRunner().invoke(app, ["validate", "kernels", "--system", "rtx_4090", "--json", "--points"])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert {group["group"] for group in answer["groups"]} >= set(BARS)
    assert {row["group"] for row in answer["rows"]} >= set(BARS)
    text = CliRunner().invoke(app, ["validate", "kernels", "--system", "rtx_4090"])
    assert "mixed_attention/bfloat16" in text.stdout


def test_a_folder_without_the_card_says_what_it_wanted(tmp_path):
    with pytest.raises(TraceError, match="rtx4090_MODEL_tpN_KIND"):
        read_profiles(tmp_path, "rtx_4090")
    options = ["--source", "layers", "--system", "rtx_4090", "-o", str(tmp_path / "a.yaml")]
    done = CliRunner().invoke(app, ["calibrate", *options])
    assert done.exit_code != 0


@needs_reference
def test_the_command_writes_what_is_shipped(tmp_path):
    output = tmp_path / "rtx_4090.yaml"
    options = ["--source", "layers", "--system", "rtx_4090", "--root", str(REFERENCE), "-o", str(output)]
    done = CliRunner().invoke(app, ["calibrate", *options, "--no-plots"])
    assert done.exit_code == 0, done.output
    shipped = shipped_points("rtx_4090").frame
    written = read_measurements(output.with_suffix(".parquet")).frame
    assert (written["seconds"].to_numpy() == shipped["seconds"].to_numpy()).all()
    assert read_calibration(output).families.keys() == find_calibration("rtx_4090", Path()).families.keys()
    assert output.with_suffix(".parquet").stat().st_size < 300 * 1024


@needs_reference
@every_card
def test_shipped_points_are_the_profile_s(card):
    table = read_profiles(REFERENCE, card)
    shipped = shipped_points(card)
    for op in ("mixed_attention", "prefill_attention", "skewed_attention", "lm_head"):
        assert len(shipped.frame[shipped.frame["op"] == op]) == len(table.frame[table.frame["op"] == op])
    assert np.median(shipped.frame["seconds"]) > 0


@needs_reference
def test_nothing_of_a_file_is_lost_by_reducing_twice():
    hardware, table = find_hardware("rtx_4090", with_calibration=False), read_profiles(REFERENCE, "rtx_4090")
    once = calibrate_layers(hardware, table, "a test", "2026-11-30")
    twice = calibrate_layers(hardware, once.points, "a test", "2026-11-30")
    assert twice.spec == once.spec
