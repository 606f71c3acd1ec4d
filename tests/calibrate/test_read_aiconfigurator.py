"""The reader of aiconfigurator-core's tables, on small tables of the same layout."""

import sys

import pandas as pd
import pytest

from simkv.calibrate.readers import aiconfigurator
from simkv.calibrate.readers.aiconfigurator import find_root, read_aiconfigurator
from simkv.errors import TraceError

GEMM = {"gemm_dtype": "bfloat16", "m": 8, "n": 512, "k": 1024, "latency": 0.005}
ATTENTION = {
    "batch_size": 2,
    "isl": 4096,
    "num_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "attn_dtype": "bfloat16",
    "kv_cache_dtype": "fp8",
    "step": 0,
    "window_size": 0,
    "latency": 0.3,
}
DECODE = {**ATTENTION, "isl": 1, "step": 8191}


@pytest.fixture
def root(tmp_path):
    data = tmp_path / "systems" / "data" / "h100_sxm"
    for op, name, rows in (
        ("gemm", "gemm_perf", [GEMM]),
        ("attention", "context_attention_perf", [ATTENTION, {**ATTENTION, "window_size": 128}]),
        ("attention", "generation_attention_perf", [DECODE]),
    ):
        folder = data / op / "vllm" / "0.24.0"
        folder.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(rows).to_parquet(folder / f"{name}.parquet")
    return tmp_path


def test_tables_become_measurements(root):
    measurements = read_aiconfigurator("h100_sxm", "0.24.0", root=root)
    (gemm,) = measurements.of("gemm").to_dict("records")
    (prefill,) = measurements.of("prefill_attention").to_dict("records")
    (decode,) = measurements.of("decode_attention").to_dict("records")
    assert (gemm["m"], gemm["n"], gemm["k"], gemm["dtype"]) == (8, 512, 1024, "bfloat16")
    assert gemm["seconds"] == pytest.approx(5e-6)
    assert (prefill["chunk"], prefill["context"], prefill["heads"], prefill["kv_heads"]) == (4096, 0, 32, 8)
    assert (decode["context"], decode["batch"], decode["kv_dtype"]) == (8192, 2, "fp8")
    assert (decode["device"], decode["engine"], decode["engine_version"]) == ("h100_sxm", "vllm", "0.24.0")
    assert "aiconfigurator" in decode["source"]


def test_a_version_may_lack_a_table(root):
    folder = root / "systems/data/h100_sxm/gemm/vllm/0.19.0"
    folder.mkdir()
    pd.DataFrame([GEMM]).to_parquet(folder / "gemm_perf.parquet")
    assert set(read_aiconfigurator("h100_sxm", "0.19.0", root=root).frame["op"]) == {"gemm"}


def test_older_tables_have_no_window(root):
    path = root / "systems/data/h100_sxm/attention/vllm/0.24.0/context_attention_perf.parquet"
    pd.DataFrame([ATTENTION]).drop(columns="window_size").to_parquet(path)
    assert len(read_aiconfigurator("h100_sxm", "0.24.0", root=root).of("prefill_attention")) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("h100_sxn", "0.24.0"), "system: wanted one of h100_sxm, got 'h100_sxn'; did you mean 'h100_sxm'"),
        (("h100_sxm", "0.23.0"), r"version: wanted one of 0\.24\.0, got '0\.23\.0'"),
        (("h100_sxm", "0.24.0", "sglang"), "engine: wanted one of vllm, got 'sglang'"),
    ],
)
def test_what_is_not_there_is_named_beside_what_is(root, arguments, message):
    with pytest.raises(TraceError, match=message):
        read_aiconfigurator(*arguments, root=root)


def test_a_folder_of_something_else_and_a_broken_file_are_refused(root):
    with pytest.raises(TraceError, match="is not a folder of aiconfigurator-core"):
        read_aiconfigurator("h100_sxm", "0.24.0", root=root / "systems")
    (root / "systems/data/h100_sxm/gemm/vllm/0.24.0/gemm_perf.parquet").write_text("no table")
    with pytest.raises(TraceError, match="wanted a Parquet table"):
        read_aiconfigurator("h100_sxm", "0.24.0", root=root)


def test_without_the_package_the_remedy_is_named(monkeypatch):
    monkeypatch.setattr(aiconfigurator, "PACKAGE", "a_package_that_is_not_there")
    with pytest.raises(TraceError, match=r"pip install 'simkv\[silicon\]'"):
        find_root()


def test_the_package_is_found_without_importing_it(tmp_path, monkeypatch):
    (tmp_path / "an_unlikely_package").mkdir()
    (tmp_path / "an_unlikely_package" / "__init__.py").write_text("raise RuntimeError")
    monkeypatch.setattr(aiconfigurator, "PACKAGE", "an_unlikely_package")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_root() == tmp_path / "an_unlikely_package"
    assert "an_unlikely_package" not in sys.modules
