"""Readers of public formats: exact on small samples, clear about what is wrong."""

from pathlib import Path

import pandas as pd
import pytest

from simkv.calibrate.readers.collectives import read_custom_all_reduce, read_nccl
from simkv.calibrate.readers.layers import read_layers
from simkv.calibrate.readers.nccl_tests import read_nccl_tests
from simkv.calibrate.readers.recognise import read_all, read_any
from simkv.calibrate.readers.vidur import read_vidur
from simkv.calibrate.readers.vidur_compute import read_vidur_attention, read_vidur_mlp
from simkv.errors import TraceError
from simkv.load.model import find_model

DATA = Path(__file__).parents[1] / "data" / "kernels"
LLAMA = find_model("llama-3.1-8b")


def rows(measurements, op, *columns):
    """The rows of an op as tuples of some columns and the time in µs."""
    frame = measurements.of(op)
    return [
        (*map(plain, values), round(seconds * 1e6, 6))
        for *values, seconds in frame[[*columns, "seconds"]].itertuples(index=False)
    ]


def plain(value):
    return int(value) if isinstance(value, float) and value == int(value) else value


def altered(tmp_path, name, old, new):
    path = tmp_path / name
    text = (DATA / name).read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
    return path


# -- profiles of layers -------------------------------------------------------------------------------------


def test_attention_profile_is_split_into_chunks_decodes_and_both():
    found = read_layers(DATA / "sample_attention.csv", "sample", LLAMA)
    shape = ("heads", "kv_heads", "head_dim")
    assert rows(found, "prefill_attention", "batch", "chunk", "context", *shape) == [
        (1, 512, 2048, 32, 8, 128, 108.5)
    ]
    assert rows(found, "decode_attention", "batch", "context", *shape) == [(4, 1024, 32, 8, 128, 26.5)]
    assert rows(found, "mixed_attention", "chunk", "context", "batch", "decode_context", *shape) == [
        (512, 2048, 4, 1024, 32, 8, 128, 130.25)
    ]


def test_layers_of_a_shard_are_as_wide_as_a_rank():
    found = read_layers(DATA / "sample_dense.csv", "sample", LLAMA, tensor_parallel_size=2)
    assert rows(found, "elementwise", "kernel", "tokens", "width") == [
        ("embedding", 8, 4096, 3.5),
        ("layernorm", 8, 4096, 2.4),
        ("rotary_emb", 8, (16 + 4) * 128, 2.7),
        ("act_fn", 8, 7168, 3.0),
    ]
    assert rows(found, "gemm", "m", "n", "k") == [
        (8, (16 + 2 * 4) * 128, 4096, 36.0),
        (8, 4096, 2048, 25.5),
        (8, 14336, 4096, 159.0),
        (8, 4096, 7168, 81.0),
    ]


def test_head_is_sharded_and_sampler_is_not():
    found = read_layers(DATA / "sample_per_sequence.csv", "sample", LLAMA, tensor_parallel_size=2)
    assert rows(found, "lm_head", "tokens", "n", "k") == [(8, 64128, 4096, 690.5)]
    assert rows(found, "sampler", "tokens", "n") == [(8, 128256, 26.5)]


def test_times_of_a_skew_profile_are_of_three_calls():
    found = read_layers(DATA / "sample_skew.csv", "sample", LLAMA)
    assert rows(found, "skewed_attention", "batch", "context", "num_long", "skew") == [(4, 256, 1, 4, 22.0)]


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("sample_attention.csv", "26.5", "fast", "csv:2: time_us: wanted a number from 0, got 'fast'"),
        ("sample_attention.csv", "kv_decode", "kv_decod", "'kv_decode' is missing; did you mean 'kv_decod'?"),
        ("sample_dense.csv", "act_fn", "moe", "layer: wanted one of embedding, "),
        ("sample_per_sequence.csv", "sampler", "sampel", "layer: wanted one of lm_head, sampler, got sampel"),
    ],
)  # fmt: skip
def test_a_broken_profile_names_the_place(tmp_path, name, old, new, message):
    with pytest.raises(TraceError) as caught:
        read_layers(altered(tmp_path, name, old, new), "sample", LLAMA)
    assert message in str(caught.value)


def test_a_file_of_another_name_is_not_guessed(tmp_path):
    path = tmp_path / "profile.csv"
    path.write_text("a,b\n", "utf-8")
    with pytest.raises(TraceError, match=r"wanted a name ending in _attention\.csv"):
        read_layers(path, "sample", LLAMA)
    with pytest.raises(TraceError, match="cannot be read"):
        read_layers(tmp_path / "none_dense.csv", "sample", LLAMA)


# -- network ------------------------------------------------------------------------------------------------


def test_vidur_hand_offs_are_parted_by_what_they_cross():
    found = read_vidur(DATA / "sample_send_recv.csv", "sample")
    assert rows(found, "send_recv", "world_size", "num_bytes", "backend") == [
        (2, 2048, "nccl", 9.0),
        (2, 2048, "nccl_network", 21.0),
        (2, 600064, "nccl", 12.0),
    ]


def test_vidur_table_of_an_unknown_collective_is_refused(tmp_path):
    path = altered(tmp_path, "sample_send_recv.csv", "2048,send_recv", "2048,broadcast")
    with pytest.raises(TraceError, match="wanted one of all_reduce, send_recv, got broadcast, send_recv"):
        read_vidur(path, "sample")


def test_vidur_products_are_a_ranks_and_what_was_not_measured_is_left_out():
    found = read_vidur_mlp(DATA / "sample_vidur_mlp.csv", "sample")
    assert rows(found, "gemm", "m", "n", "k", "dtype") == [
        (2048, (8 + 2 * 1) * 128, 8192, "bfloat16", 500.0),
        (1024, 3 * 32 * 80, 2560, "bfloat16", 250.0),
        (2048, 8192, 8 * 128, "bfloat16", 300.0),  # the other's is 0
        (2048, 2 * 28672 // 8, 8192, "bfloat16", 1750.0),
        (1024, 10240, 2560, "bfloat16", 1500.0),  # no gate
        (2048, 8192, 28672 // 8, "bfloat16", 900.0),
        (1024, 2560, 10240, "bfloat16", 750.0),
    ]
    assert rows(found, "elementwise", "kernel", "tokens", "width") == [
        ("rotary_emb", 2048, (8 + 1) * 128, 20.0),
        ("rotary_emb", 1024, 64 * 80, 10.0),
        ("act_fn", 2048, 28672 // 8, 100.0),
    ]


def test_vidur_attention_is_chunks_and_decodes():
    found = read_vidur_attention(DATA / "sample_vidur_attention.csv", "sample")
    shape = ("heads", "kv_heads", "head_dim", "kv_dtype")
    assert rows(found, "decode_attention", "batch", "context", *shape) == [
        (4, 1024, 32, 4, 128, "bfloat16", 15.0)
    ]
    assert rows(found, "prefill_attention", "batch", "chunk", "context", *shape) == [
        (1, 512, 2048, 32, 4, 128, "bfloat16", 750.0)
    ]


def test_vidur_profile_without_a_kernel_is_refused(tmp_path):
    path = altered(tmp_path, "sample_vidur_mlp.csv", "mlp_act.median", "mlp_act.mean")
    with pytest.raises(TraceError, match=r":1: column 'time_stats.mlp_act.median' is missing"):
        read_vidur_mlp(path, "sample")


@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("sample_vidur_mlp.csv", {"gemm", "elementwise"}),
        ("sample_vidur_attention.csv", {"prefill_attention", "decode_attention"}),
        ("sample_send_recv.csv", {"send_recv"}),
        ("all_reduce_perf.txt", {"all_reduce"}),
    ],
)
def test_a_file_is_recognised(name, ops):
    assert set(read_any(DATA / name, "sample").frame["op"]) == ops


def test_files_of_all_kinds_make_one_table(tmp_path):
    own = tmp_path / "own.parquet"
    read_any(DATA / "sample_vidur_mlp.csv", "sample").frame.to_parquet(own)
    names = ("sample_vidur_attention.csv", "sample_send_recv.csv", "all_reduce_perf.txt")
    found = read_all([own, *(DATA / name for name in names)], "sample")
    assert {"gemm", "decode_attention", "send_recv", "all_reduce"} <= set(found.frame["op"])
    assert set(found.frame["device"]) == {"sample"}


def test_all_faults_of_all_files_are_told(tmp_path):
    (tmp_path / "a.csv").write_text("op,seconds,device\ngem,1,x\n")
    (tmp_path / "b.txt").write_text("hello")
    with pytest.raises(TraceError) as caught:
        read_all([tmp_path / "a.csv", tmp_path / "b.txt", tmp_path / "c.csv"], "sample")
    told = str(caught.value)
    assert "a.csv: op: wanted one of" in told
    assert "b.txt: neither name nor text says which collective" in told
    assert "c.csv: cannot be read: No such file" in told


def test_nccl_tests_out_of_place_and_in_place():
    found = read_nccl_tests(DATA / "all_reduce_perf.txt")
    assert rows(found, "all_reduce", "world_size", "num_bytes", "dtype", "backend", "engine_version") == [
        (4, 1024, "float32", "nccl", "2.27.5", 12.5),
        (4, 4096, "float32", "nccl", "2.27.5", 13.0),
        (4, 16384, "float32", "nccl", "2.27.5", 14.0),
    ]
    assert set(found.frame["device"]) == {"Sample GPU 80GB"}
    in_place = read_nccl_tests(DATA / "all_reduce_perf.txt", placement="in-place")
    assert [row[-1] for row in rows(in_place, "all_reduce")] == [12.25, 12.75, 13.5]


def test_nccl_tests_without_rank_lines_count_threads_and_gpus(tmp_path):
    text = (DATA / "all_reduce_perf.txt").read_text("utf-8")
    path = tmp_path / "box.txt"
    path.write_text("\n".join(line for line in text.splitlines() if "Rank" not in line), "utf-8")
    found = read_nccl_tests(path, device="box")
    assert set(found.frame["world_size"]) == {4}
    with pytest.raises(TraceError, match="no line names the GPU; give the device"):
        read_nccl_tests(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("14.00    1.17", "  N/A    1.17", r"txt:17: time: wanted microseconds in column 6, got 'N/A'"),
        ("14.00    1.17", " 0.00    1.17", r"txt:17: time: wanted microseconds in column 6, got '0.00'"),
        ("#  Rank", "#  Bank", r"no line names the GPU"),
    ],
)
def test_broken_nccl_tests_output_names_the_place(tmp_path, old, new, message):
    with pytest.raises(TraceError, match=message):
        read_nccl_tests(altered(tmp_path, "all_reduce_perf.txt", old, new))


def test_text_that_is_no_nccl_tests_output_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello\n", "utf-8")
    with pytest.raises(TraceError, match="give op"):
        read_nccl_tests(path)
    with pytest.raises(TraceError, match="wanted output of nccl-tests"):
        read_nccl_tests(path, op="all_reduce")
    with pytest.raises(TraceError, match="op: wanted one of all_reduce"):
        read_nccl_tests(path, op="broadcast")


def test_communication_tables_count_elements(tmp_path):
    folder = tmp_path / "comm" / "nccl" / "2.99"
    folder.mkdir(parents=True)
    common = {"version": "1.0", "num_gpus": 2, "latency": 0.01}
    nccl = pd.DataFrame(
        [
            {**common, "op_name": "alltoall", "nccl_dtype": "half", "message_size": 512},
            {**common, "op_name": "all_gather", "nccl_dtype": "int8", "message_size": 512},
        ]
    )
    nccl.to_parquet(folder / "nccl_perf.parquet")
    found = read_nccl(folder / "nccl_perf.parquet", "sample")
    columns = ("world_size", "num_bytes", "backend", "engine_version")
    assert rows(found, "all_to_all", *columns) == [(2, 1024, "nccl", "2.99", 10.0)]
    assert rows(found, "all_gather", *columns) == [(2, 512, "nccl", "2.99", 10.0)]
    custom = {**common, "op_name": "all_reduce", "allreduce_dtype": "bfloat16", "message_size": 512}
    path = folder / "custom_allreduce_perf.parquet"
    pd.DataFrame([{**custom, "backend": "vllm_eager"}]).to_parquet(path)
    found = read_custom_all_reduce(path, "sample")
    assert rows(found, "all_reduce", *columns) == [(2, 1024, "custom_eager", "1.0", 10.0)]
    pd.DataFrame([{**custom, "backend": "quick"}]).to_parquet(path)
    with pytest.raises(TraceError, match="backend: wanted one of vllm_graph, vllm_eager, got quick"):
        read_custom_all_reduce(path, "sample")
    with pytest.raises(TraceError, match="column 'nccl_dtype' is missing"):
        read_nccl(path, "sample")
    path.write_bytes(b"not parquet")
    with pytest.raises(TraceError, match="wanted a table in Parquet"):
        read_nccl(path, "sample")
