"""The collector: what it plans, that it goes on where it stopped, and that PyTorch can do it."""

import importlib.util

import pandas as pd
import pytest
from typer.testing import CliRunner

from simkv.calibrate.collect import Point, collect, dimensions, plan
from simkv.calibrate.measurements import SHAPE_COLUMNS, read_measurements
from simkv.errors import SimkvError, TraceError

HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not here")


class FakeBackend:
    """Times every point by its place; some do not fit, one may be the last before a fault."""

    device, engine, engine_version, num_gpus = "fake gpu", "fake", "1", 2

    def __init__(self, impossible=(), fault_at=None):
        self.asked = []
        self.impossible, self.fault_at = impossible, fault_at

    def measure(self, points):
        for point in points:
            if len(self.asked) == self.fault_at:
                raise KeyboardInterrupt
            self.asked.append(point)
            yield point, None if point in self.impossible else 1e-6 * len(self.asked)


@pytest.mark.parametrize("scale", ["full", "quick", "tiny"])
def test_a_plan_has_each_point_once_and_in_the_schema(scale):
    points = plan(scale, num_gpus=8)
    assert len(points) == len(set(points))
    for point in points:
        assert len(point.shape) == len(SHAPE_COLUMNS[point.op])


def test_the_full_plan_covers_chunks_over_prefixes_of_all_shards():
    points = [point for point in plan("full") if point.op == "prefill_attention"]
    columns = list(zip(*(point.shape for point in points), strict=True))
    assert (min(columns[1]), max(columns[1])) == (64, 16384)
    assert (min(columns[2]), max(columns[2])) == (0, 262144)
    assert set(zip(columns[3], columns[4], strict=True)) == {
        (32, 8), (16, 4), (8, 2), (4, 1), (64, 8), (32, 4), (16, 2), (8, 1),
    }  # fmt: skip


def test_the_quick_plan_is_part_of_the_full_one_and_short():
    quick, full = plan("quick", 8), plan("full", 8)
    assert len(quick) < len(full) / 4
    assert {p.op for p in quick} == {p.op for p in full}
    assert {p for p in quick if p.op != "elementwise"} <= set(full)


def test_collectives_need_several_gpus():
    assert not [p for p in plan("full", 1) if p.backend == "nccl"]
    assert {p.shape[0] for p in plan("full", 4) if p.backend == "nccl"} == {2, 4}


def test_shards_of_a_model():
    assert dimensions(4096, 14336, 32, 8, 2) == (
        16,
        4,
        ((3072, 4096), (4096, 2048), (14336, 4096), (4096, 7168)),
        (64128, 4096),
    )


def test_a_second_run_measures_only_what_is_missing(tmp_path):
    output, points = tmp_path / "out.parquet", plan("tiny")
    first = collect(points[:4], FakeBackend(), output)
    assert (first.num_measured, first.num_known, first.num_left) == (4, 0, 0)
    backend = FakeBackend()
    second = collect(points, backend, output)
    assert backend.asked == points[4:]
    assert (second.num_measured, second.num_known) == (len(points) - 4, 4)
    assert len(read_measurements(output).frame) == len(points)
    third = FakeBackend()
    collect(points, third, output)
    assert third.asked == []


def test_another_gpu_starts_afresh_in_the_same_file(tmp_path):
    output, points = tmp_path / "out.parquet", plan("tiny")[:2]
    collect(points, FakeBackend(), output)
    other = FakeBackend()
    other.device = "other gpu"
    collect(points, other, output)
    assert other.asked == points
    assert list(read_measurements(output).frame["device"]) == ["fake gpu"] * 2 + ["other gpu"] * 2


def test_what_was_measured_is_saved_when_stopped(tmp_path):
    output, points = tmp_path / "out.parquet", plan("tiny")
    with pytest.raises(KeyboardInterrupt):
        collect(points, FakeBackend(fault_at=3), output)
    assert len(read_measurements(output).frame) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


def test_a_budget_leaves_the_rest_for_later(tmp_path):
    output, points = tmp_path / "out.parquet", plan("tiny")
    ticks = iter(range(1000))
    done = collect(points, FakeBackend(), output, budget_s=7, clock=lambda: next(ticks))
    assert 0 < done.num_measured < len(points)
    assert done.num_measured + done.num_left == len(points)
    assert collect(points, FakeBackend(), output).num_left == 0


def test_points_that_do_not_fit_are_counted_and_left_out(tmp_path):
    output, points = tmp_path / "out.parquet", plan("tiny")
    seen = []
    done = collect(points, FakeBackend(points[:2]), output, progress=lambda *args: seen.append(args))
    assert done.num_impossible == 2
    assert done.num_measured == len(points) - 2
    assert seen[0] == (points[0], None)
    assert seen[2] == (points[2], pytest.approx(3e-6))


def test_the_table_says_where_it_comes_from(tmp_path):
    point = Point("all_reduce", (2, 4096), backend="nccl")
    row = collect([point], FakeBackend(), tmp_path / "out.parquet").measurements.frame.iloc[0]
    assert (row["op"], row["world_size"], row["num_bytes"], row["backend"]) == ("all_reduce", 2, 4096, "nccl")
    assert (row["device"], row["engine"], row["engine_version"]) == ("fake gpu", "fake", "1")
    assert row["source"].startswith("simkv collect, ")
    assert pd.isna(row["kv_dtype"])


def test_a_file_that_is_no_table_is_not_overwritten(tmp_path):
    output = tmp_path / "out.parquet"
    output.write_bytes(b"mine")
    with pytest.raises(TraceError, match="wanted measurements in Parquet or CSV"):
        collect(plan("tiny"), FakeBackend(), output)
    assert output.read_bytes() == b"mine"


@pytest.mark.skipif(HAS_TORCH, reason="PyTorch is here")
def test_without_pytorch_one_line_says_what_to_install():
    from simkv.calibrate.torch_backend import TorchBackend

    with pytest.raises(SimkvError, match="install it with: pip install torch") as caught:
        TorchBackend("cpu")
    assert "\n" not in str(caught.value)


@needs_torch
def test_pytorch_measures_the_tiny_plan_on_a_cpu(tmp_path):
    import typer

    from simkv.cli.collect import collect as command

    app = typer.Typer()
    app.command()(command)
    output = tmp_path / "cpu.parquet"
    for expected in ("measured, 0 known", "0 measured"):
        done = CliRunner().invoke(app, ["-o", str(output), "--device", "cpu"])
        assert done.exit_code == 0, done.output
        assert expected in done.output
    frame = read_measurements(output).frame
    assert len(frame) == len(plan("tiny"))
    assert (frame["seconds"] < 1).all()


@needs_torch
def test_a_chunk_sees_its_prefix_and_nothing_after_itself():
    """The mask of the measured call is the one of chunked prefill."""
    import torch
    from torch.nn.attention.bias import causal_lower_right

    q, k, v = (torch.randn(1, 1, n, 8) for n in (2, 4, 4))
    found = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(2, 4))
    scores = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(
        torch.tensor([[False, False, False, True], [False] * 4]), float("-inf")
    )
    torch.testing.assert_close(found, scores.softmax(-1) @ v)


@needs_torch
def test_a_group_of_two_processes_is_timed():
    import torch.distributed as dist

    if not dist.is_available():
        pytest.skip("torch.distributed is not here")
    from simkv.calibrate.torch_collectives import measure_group

    points = [Point("all_reduce", (2, 4096)), Point("all_gather", (2, 4096)), Point("send_recv", (2, 4096))]
    assert all(0 < seconds < 5 for seconds in measure_group(points, 2, "cpu"))
