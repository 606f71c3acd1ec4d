"""Real start-ups: the reference's bars, and what a table may lack."""

import csv
import json
from pathlib import Path
from statistics import fmean

import pytest
from typer.testing import CliRunner

from simkv.cli import app
from simkv.errors import TraceError
from simkv.validate.memory import METRICS, OUTCOME, compare_row, compare_startups
from simkv.validate.startup_groups import is_fitted
from simkv.validate.startup_rows import StartupRow, gpu_of, read_startup_rows, version_of

LOGS = Path(__file__).parents[3] / "shared" / "reference" / "memory" / "vllm_startup_logs.csv"
needs_logs = pytest.mark.skipif(
    not LOGS.exists(), reason="the start-up logs of ../shared/reference are not here"
)

# A public start-up of vLLM 0.19 on one H100.
LLAMA = {
    "id": "a", "vllm_version": "v0.19.0", "model": "meta-llama/Llama-3.1-8B-Instruct",
    "gpu": "NVIDIA H100 80GB HBM3", "gpu_mem_gib": "79.19", "tp": "1.0", "pp": "1.0",
    "dtype": "bfloat16", "quantization": "none",
    "kv_cache_dtype": "auto", "max_model_len": "8192.0", "gpu_memory_utilization": "0.95",
    "max_num_batched_tokens": "8192.0", "weights_gib_per_gpu": "14.99", "non_torch_gib": "0.25",
    "activation_peak_gib": "1.89", "kv_gib_per_gpu": "58.11", "num_gpu_blocks": "29751.0",
    "kv_tokens": "476016.0", "max_concurrency": "58.11", "outcome": "started", "notes": "",
}  # fmt: skip


def compared(**changes):
    return compare_row(StartupRow({**LLAMA, **changes}, 2))


def table(tmp_path, *rows):
    path = tmp_path / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, LLAMA)
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def reference():
    return compare_startups(LOGS)


# The bars


@needs_logs
def test_kv_tokens_by_group(reference):
    _, groups = reference
    mape = {group.group: group.mape for group in groups if group.metric == "kv_tokens"}
    assert mape.pop("dense campaign") <= 0.005
    assert len(mape) >= 7
    assert max(mape.values()) <= 0.03, mape


@needs_logs
def test_weights(reference):
    rows, _ = reference
    metric = "weights_gib_per_gpu"
    compared_rows = [row for row in rows if row.error.get(metric) is not None]
    pairs = [(row.predicted[metric], row.logged[metric]) for row in compared_rows]
    good = [abs(predicted - logged) <= max(0.1, 0.005 * logged) for predicted, logged in pairs]
    assert len(good) == 107
    assert fmean(good) >= 0.95


@needs_logs
def test_activation_peak(reference):
    rows, _ = reference
    errors = {
        row.id: row.error["activation_peak_gib"]
        for row in rows
        if row.error.get("activation_peak_gib") is not None
    }
    dense = [abs(errors[row.id]) for row in rows if row.id in errors and "dense campaign" in row.groups]
    others = [abs(errors[row.id]) for row in rows if row.id in errors and "dense campaign" not in row.groups]
    assert max(dense) <= 0.05
    assert fmean(error <= 0.15 for error in others) >= 0.8


@needs_logs
def test_concurrency_follows_from_the_logged_blocks_on_every_row_that_shows_both(reference):
    rows, _ = reference
    shown = {row.id: row for row in read_startup_rows(LOGS) if row.number("max_concurrency") is not None}
    with_blocks = {name for name, row in shown.items() if row.text("num_gpu_blocks") or row.text("kv_tokens")}
    errors = {row.id: row.error.get("max_concurrency") for row in rows if row.id in shown}
    assert {name for name, error in errors.items() if error is not None} == with_blocks
    assert len(with_blocks) == 103
    hybrid = {name for name in with_blocks if "hybrid" in shown[name].text("params_note")}
    assert len(hybrid) == 15
    assert {errors[name] for name in with_blocks} == {0.0}
    left = {row.id: row.left_out["max_concurrency"] for row in rows if row.id in shown.keys() - with_blocks}
    assert set(left.values()) == {"neither blocks nor tokens are logged"}


@needs_logs
def test_every_outcome_that_can_be_decided_is_right(reference):
    rows, _ = reference
    wrong = [row.id for row in rows if row.error.get(OUTCOME)]
    assert wrong == []
    assert {row.predicted[OUTCOME] for row in rows if row.error.get(OUTCOME) == 0} == {
        "started",
        "refused",
        "oom",
    }


@needs_logs
def test_rows_that_were_not_fitted_are_predicted_as_well(reference):
    _, groups = reference
    errors = {group.group: group.mape for group in groups if group.metric == "kv_tokens"}
    assert errors["rows not fitted"] <= 0.01


@needs_logs
def test_a_row_is_skipped_only_with_a_reason(reference):
    rows, _ = reference
    for row in rows:
        if row.skipped is None:
            blank = {metric for metric, value in row.predicted.items() if value is None}
            breaks_rules = row.predicted[OUTCOME] == "refused" and row.predicted["kv_tokens"] is None
            assert breaks_rules or blank <= {"max_concurrency"}
            assert blank == row.left_out.keys()
        else:
            assert len(row.skipped) > 10
    held = {row.id for row in rows if row.skipped == "another process held the GPU"}
    assert held == {"R001", "R032", "R039", "R167"}


# One row


# Logged beside each other in public start-ups; the model is not known, or its dimensions are not shipped.
UNIFORM = "32 layers, 8 KV heads, head_dim 128"
HYBRID = "hybrid attention (not every layer keeps full KV)"
FACT_COLUMNS = (
    "vllm_version", "params_note", "max_model_len", "block_size", "num_gpu_blocks", "kv_tokens", "max_concurrency",
)  # fmt: skip
FACTS = [
    ("v0.17.1", UNIFORM, 32768, "", "", 1890400, 57.69),
    ("v0.13.0", UNIFORM, 8196, "", "", 129504, 15.78),  # 513 blocks a request
    ("0.7.3", UNIFORM, 10000, "", 1395, "", 2.23),
    ("0.7.3", UNIFORM, 4096, "", 0, "", 0.0),
    ("0.7.3", HYBRID, 32768, "", 19513, "", 9.53),  # all layers cache alike in V0
    ("", UNIFORM, 8192, 128, "", 1701248, 207.67),  # V0 and V1 divide alike
    ("v0.25.1", HYBRID, 262144, "", "", 3912140, 14.92),
    ("v0.25.1", "", 262144, "", "", 1191213, 4.54),
]


@pytest.mark.parametrize("fact", FACTS)
def test_concurrency_needs_no_model_where_it_follows_from_what_is_logged(fact):
    columns = zip(FACT_COLUMNS, map(str, fact), strict=True)
    row = compared(model="nobody/nothing", **dict(columns))
    assert row.error["max_concurrency"] == 0.0
    assert row.logged["max_concurrency"] == fact[-1]
    assert row.predicted["max_concurrency"] == pytest.approx(fact[-1], abs=0.005)
    assert row.skipped == "model: 'nobody/nothing' is not shipped"
    assert row.left_out.keys() == set(METRICS) - {"max_concurrency"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"params_note": ""}, "whether its layers cache alike is not known"),
        ({"params_note": HYBRID}, "its layers do not cache alike, and their dimensions are not known"),
        (
            {"vllm_version": "", "max_model_len": "8190"},
            "the version is not stated, and V0 and V1 divide differently",
        ),
        ({"max_model_len": ""}, "max_model_len is not stated"),
        ({"num_gpu_blocks": "", "kv_tokens": ""}, "neither blocks nor tokens are logged"),
    ],
)
def test_concurrency_without_a_model_is_not_guessed(changes, reason):
    row = compared(**{"model": "nobody/nothing", "params_note": UNIFORM, **changes})
    assert row.error == row.predicted == dict.fromkeys(METRICS)
    assert row.left_out["max_concurrency"] == reason


def test_a_local_copy_has_the_dimensions_of_its_model():
    def weights(model, **changes):
        return compared(model=model, **changes).predicted["weights_gib_per_gpu"]

    assert weights("Llama-3.1-8B fine-tune (local checkpoint mine)") == weights("Llama-3.1-8B")
    packed = weights("Llama-3.1-8B (local Int4 W4A16)", quantization="compressed-tensors")
    assert packed == weights("Llama-3.1-8B-w4a16", quantization="compressed-tensors")
    for remark in ("exact repo not in the excerpt", "Q8_0 GGUF"):
        row = compared(model=f"Llama-3.1-8B ({remark})", params_note=UNIFORM)
        assert row.skipped.startswith("model: 'Llama-3.1-8B (")
        assert row.predicted["weights_gib_per_gpu"] is None


def test_a_start_up_is_predicted_from_its_configuration():
    row = compared()
    assert row.skipped is None
    assert "dense campaign" in row.groups  # no source is stated: its setting is the campaign's
    assert "dense campaign" not in compared(source="a blog").groups
    assert "dense campaign" not in compared(max_num_seqs="256").groups
    assert row.predicted[OUTCOME] == "started"
    assert row.error["kv_tokens"] == pytest.approx(0, abs=0.001)
    assert row.error["activation_peak_gib"] == pytest.approx(0, abs=0.02)
    assert row.error["max_concurrency"] == 0


def test_logged_figures_do_not_leak_into_predictions():
    logged = ("weights_gib_per_gpu", "activation_peak_gib", "non_torch_gib", "kv_gib_per_gpu", "kv_tokens")
    blank = compared(**dict.fromkeys((*logged, "num_gpu_blocks", "max_concurrency", "outcome"), ""))
    for metric in (*logged, "max_concurrency_end_to_end", OUTCOME):
        assert blank.predicted[metric] == compared().predicted[metric]
        assert blank.error[metric] is None


def test_blanks_are_defaults():
    blanks = dict.fromkeys(
        ("tp", "pp", "dtype", "quantization", "kv_cache_dtype", "max_num_batched_tokens"), ""
    )
    assert compared(**blanks).predicted == compared().predicted
    unstated = compared(gpu_memory_utilization="")
    assert unstated.predicted["kv_tokens"] == compared(gpu_memory_utilization="0.9").predicted["kv_tokens"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "nobody/nothing"}, "model: 'nobody/nothing' is not shipped"),
        (
            {"quantization": "gguf"},
            "how meta-llama/Llama-3.1-8B-Instruct is quantised in 'gguf' is not shipped",
        ),
        ({"vllm_version": ""}, "the version is not stated"),
        ({"gpu": "", "gpu_mem_gib": ""}, "the log does not name the GPU"),
        ({"gpu": "RTX 5070 Ti + RTX 5090 D"}, "two kinds of GPU in one replica"),
        ({"gpu": "A100 (README)", "gpu_mem_gib": ""}, "the GPU is named by the repository, not by the log"),
        ({"gpu": "GB10 (DGX Spark)"}, "the GPU shares its memory with the host"),
        ({"gpu": "RTX 2060", "gpu_mem_gib": ""}, "no memory size is known for 'RTX 2060'"),
        ({"error_kind": "free memory below gpu_memory_utilization"}, "another process held the GPU"),
        ({"kv_cache_dtype": "int3"}, "kv_cache_dtype: "),
    ],
)
def test_what_a_row_must_state(changes, reason):
    row = compared(**changes)
    assert row.skipped.startswith(reason)
    assert row.predicted.get("kv_tokens") is None
    assert row.predicted.keys() == row.logged.keys() == row.error.keys() == set(METRICS)
    if row.predicted["weights_gib_per_gpu"] is not None:
        assert row.predicted["weights_gib_per_gpu"] == pytest.approx(14.99, abs=0.01)
        assert row.error["max_concurrency"] == 0


def test_an_outcome_needs_no_version_where_all_versions_end_alike():
    refused = compared(
        vllm_version="", max_model_len="131072", gpu_memory_utilization="0.3", outcome="refused"
    )
    assert (refused.predicted[OUTCOME], refused.error[OUTCOME]) == ("refused", 0.0)
    assert compared(vllm_version="", max_model_len="").predicted[OUTCOME] == "started"


@pytest.mark.parametrize(
    ("notes", "version"),
    [
        ("reproduction steps use image v0.11.0", "v0.11.0"),
        ("V0, Dec 2024", "0.7.3"),
        ("V1, Oct 2025", None),
        ("", None),
    ],
)
def test_a_version_may_stand_in_the_notes(notes, version):
    assert version_of(StartupRow({**LLAMA, "vllm_version": "", "notes": notes}, 2)) == version
    assert version_of(StartupRow({**LLAMA, "notes": notes}, 2)) == "v0.19.0"


def test_a_gpu_has_the_memory_of_the_log_or_of_its_profile():
    def memory(**changes):
        hardware, _ = gpu_of(StartupRow({**LLAMA, **changes}, 2))
        return hardware.gpu.memory_bytes.value / 2**30

    assert memory(gpu_mem_gib="79.11") == pytest.approx(79.11)
    assert memory(gpu_mem_gib="") == pytest.approx(79.19)
    assert memory(gpu="NVIDIA GeForce RTX 4090", gpu_mem_gib="") == pytest.approx(23.52, abs=0.01)
    assert memory(gpu="", gpu_mem_gib="15.99") == pytest.approx(15.99)


def test_rows_are_fitted_or_not_by_their_names_alone():
    fitted = [is_fitted(f"R{i:03}") for i in range(1_000)]
    assert fmean(fitted) == pytest.approx(0.7, abs=0.05)


# Tables and the command


def test_a_table_with_faults_names_each_line(tmp_path):
    path = table(tmp_path, LLAMA, {**LLAMA, "id": "b", "tp": "two"}, {**LLAMA, "kv_tokens": "many"})
    with pytest.raises(TraceError) as caught:
        read_startup_rows(path)
    assert caught.value.faults == (
        f"{path}: line 3: tp: wanted a whole number from 1, got 'two'",
        f"{path}: line 4: kv_tokens: wanted a number, got 'many'",
    )


@pytest.mark.parametrize(
    ("column", "cell", "wanted"),
    [
        ("tp", "0", "a whole number from 1"),
        ("tp", "2.5", "a whole number from 1"),
        ("pp", "inf", "a whole number from 1"),
        ("gpu_mem_gib", "-3", "a number above 0"),
        ("gpu_mem_gib", "inf", "a number above 0"),
        ("kv_tokens", "nan", "a number"),
    ],
)
def test_a_number_out_of_its_range_is_a_fault(tmp_path, column, cell, wanted):
    with pytest.raises(TraceError) as caught:
        read_startup_rows(table(tmp_path, {**LLAMA, column: cell}))
    assert str(caught.value).endswith(f"line 2: {column}: wanted {wanted}, got {cell!r}")


def test_a_spreadsheets_table_is_read(tmp_path):
    path = table(tmp_path, LLAMA)
    path.write_text("\ufeff" + path.read_text("utf-8").replace(",", ", ", 1), "utf-8")
    assert read_startup_rows(path)[0].id == LLAMA["id"]


@pytest.mark.parametrize("changes", [{"tp": "3"}, {"tp": "64"}, {"pp": "33"}])
def test_a_layout_against_vllms_rules_is_refused(changes):
    row = compared(**changes, outcome="refused")
    assert row.skipped is None
    assert (row.predicted[OUTCOME], row.error[OUTCOME]) == ("refused", 0.0)
    assert row.predicted["kv_tokens"] is None
    assert set(row.left_out) == set(METRICS) - {OUTCOME}


@pytest.mark.parametrize("dtype", ["half", "torch.float16", "float16"])
def test_a_dtype_is_spelt_as_vllm_takes_it(dtype):
    assert compared(dtype=dtype).predicted == compared(dtype="float16").predicted
    assert compared(dtype="float").predicted["weights_gib_per_gpu"] == pytest.approx(29.9, abs=0.2)


@pytest.mark.parametrize(("text", "fault"), [("a,b\n1,2\n", "got no id"), ("id\n1\n", "got no model")])
def test_a_table_needs_its_columns(tmp_path, text, fault):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=fault):
        read_startup_rows(path)
    with pytest.raises(TraceError, match="cannot be read"):
        read_startup_rows(tmp_path / "absent.csv")


def test_the_command_prints_rows_groups_and_what_was_skipped(tmp_path):
    path = table(tmp_path, LLAMA, {**LLAMA, "id": "b", "model": "nobody/nothing"})
    done = CliRunner().invoke(app, ["validate", "memory", str(path)])
    assert done.exit_code == 0
    assert "started (started)" in done.stdout
    assert "rows not fitted" in done.stdout or "fitted rows" in done.stdout
    assert "model: 'nobody/nothing' is not shipped: b" in done.stdout
    assert "max_concurrency_end_to_end" in done.stdout


def test_json_has_the_shape_that_was_asked_for(tmp_path):
    path = table(tmp_path, LLAMA, {**LLAMA, "id": "b", "model": "nobody/nothing"})
    done = CliRunner().invoke(app, ["validate", "memory", str(path), "--json"])
    answer = json.loads(done.stdout)
    first, second = answer["rows"]
    assert {"id", "predicted", "logged", "error", "skipped"} <= first.keys() == second.keys()
    for metric in ("weights_gib_per_gpu", "kv_tokens", "max_concurrency", OUTCOME):
        assert {*first["predicted"], *first["logged"], *first["error"]} >= {metric}
    assert (first["skipped"], second["skipped"]) == (None, "model: 'nobody/nothing' is not shipped")
    for group in answer["groups"]:
        assert group.keys() == {"group", "metric", "n", "mape", "median", "p90"}
    assert json.dumps(answer, allow_nan=False)
