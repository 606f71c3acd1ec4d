"""A box of one's own from `simkv collect` to a run: what was measured there is what a run takes."""

from dataclasses import dataclass

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import simkv
from simkv.calibrate.collect import collect, plan
from simkv.calibrate.layer_profile import calibrate_any
from simkv.calibrate.measurements import Measurements, read_measurements
from simkv.calibrate.tables import write_measurements
from simkv.cost import CostModel
from simkv.cost.fitted import FittedKernels
from simkv.cost.kernels import elementwise
from simkv.load.calibration import calibration_text, kernel_points
from simkv.load.hardware import find_hardware
from simkv.step import PrefillChunk, Provenance
from tests.calibrate.boxes import FormsBackend, chunk_over_prefix_s, move_s, send_recv_s
from tests.cost.worlds import shape_of

NEW = [
    "chunked_attention/bfloat16",
    *(f"elementwise/{kernel}" for kernel in ("copy", "rms_norm", "glu", "gather")),
    "sampler",
    "send_recv_nccl",
]
SCENARIO = """
model: meta-llama/Llama-3.1-8B-Instruct
hardware: {hardware}
engine: {{max_model_len: 131072, max_num_batched_tokens: 8192, max_num_seqs: 16}}
workload: {{num_prompts: 3, prompt_len: 60000, output_len: 4, arrival: inf}}
"""


@dataclass(frozen=True, repr=False)
class Box:
    """What `simkv calibrate` wrote for the table of a collector."""

    folder: object
    hardware: object
    errors: object
    notes: tuple

    def cost(self, tp=1, pp=1, **engine):
        scenario = simkv.load_scenario(self.folder / "mine_scenario.yaml")
        changes = {"tensor_parallel_size": tp, "pipeline_parallel_size": pp}
        return CostModel(scenario.replace(parallel=changes, engine=engine), kernel_points(self.hardware))

    def kernels(self):
        return FittedKernels(self.hardware, kernel_points(self.hardware))


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    folder = tmp_path_factory.mktemp("box")
    table = collect(plan("quick", 8), FormsBackend(), folder / "measured.parquet").measurements
    hardware = find_hardware("h100_sxm", with_calibration=False)
    found = calibrate_any(hardware, table, "a test", "2026-12-01")
    write_measurements(found.points, folder / "mine.parquet")
    text = calibration_text(found.spec.replace(points="mine.parquet"), "a test")
    (folder / "mine.yaml").write_text(text)
    (folder / "box.yaml").write_text("like: h100_sxm\ncalibration: mine.yaml\n")
    (folder / "mine_scenario.yaml").write_text(SCENARIO.format(hardware="box.yaml"))
    (folder / "shipped_scenario.yaml").write_text(SCENARIO.format(hardware="h100_sxm"))
    return Box(folder, find_hardware(str(folder / "box.yaml")), found.errors, found.notes)


@pytest.mark.parametrize("group", NEW)
def test_held_out_points_meet_their_bar(box, group):
    physical, residual = (box.errors.row(group, metric) for metric in ("physical", "residual"))
    assert physical.median < 0.07
    assert physical.p90 < 0.20
    assert residual.median < 0.04
    assert residual.p90 < 0.12
    assert box.notes == ()


@pytest.mark.parametrize("context", [131_072, 65_536, 20_000])
def test_a_step_has_the_measured_time_of_a_chunk_over_its_prefix(box, context):
    cost = box.cost()
    whole, over = (cost.stage_times(shape_of([], [(8_192, size)]))[0] for size in (0, context))
    alone_s = box.kernels().prefill(32, 8, 128, 2.0)([PrefillChunk(8_192, 0)]).seconds
    attention_s = (over.total_s - whole.total_s) / 32 + alone_s
    assert attention_s == pytest.approx(chunk_over_prefix_s(8_192, context, 32), rel=0.03)
    assert over.extrapolated_input_s < 0.02 * over.total_s


def test_a_run_rests_on_measurements_that_were_extrapolated_before(box):
    mine, shipped = (
        simkv.simulate(simkv.load_scenario(box.folder / f"{name}_scenario.yaml")).summary
        for name in ("mine", "shipped")
    )
    known = [row["measured_input_share"] + row["interpolated_input_share"] for row in (mine, shipped)]
    assert shipped["extrapolated_input_share"] > 0.25
    assert mine["extrapolated_input_share"] < 0.4 * shipped["extrapolated_input_share"]
    assert mine["assumed_input_share"] < shipped["assumed_input_share"]
    assert known[0] > known[1]
    assert mine["mean_ttft_ms"] > 1.02 * shipped["mean_ttft_ms"]  # 1.3 times slower over prefixes


def test_where_the_time_of_chunks_comes_from(box):
    time = box.kernels().chunks(32, 8, 128, 2.0)
    chunk = PrefillChunk(8_192, 131_072)
    assert time([chunk]).provenance is Provenance.MEASURED
    assert time([chunk]).seconds == pytest.approx(chunk_over_prefix_s(8_192, 131_072, 32), rel=0.04)
    assert time([PrefillChunk(8_000, 1_000)]).provenance is Provenance.INTERPOLATED
    for beyond in ([PrefillChunk(16_384, 8_192)], [PrefillChunk(512, 300_000)], [chunk, chunk]):
        assert time(beyond).provenance is Provenance.EXTRAPOLATED
    for other in ((64, 16, 128, 2.0), (32, 8, 64, 2.0), (32, 8, 128, 1.0)):
        assert box.kernels().chunks(*other)([chunk]).provenance is Provenance.EXTRAPOLATED
    alone = FittedKernels(box.hardware).chunks(32, 8, 128, 2.0)
    assert alone([chunk]).provenance is Provenance.INTERPOLATED
    taken_over = box.hardware.calibration.replace(is_transferred=True)
    elsewhere = FittedKernels(box.hardware.replace(calibration=taken_over)).chunks(32, 8, 128, 2.0)
    assert elsewhere([chunk]).provenance is Provenance.EXTRAPOLATED


def test_profiles_without_such_chunks_or_with_mixed_batches_stay_as_they_were():
    for name in ("h100_sxm", "rtx_4090"):
        assert FittedKernels(find_hardware(name)).chunks(32, 8, 128, 2.0) is None
        assert FittedKernels(find_hardware(name)).send_recv() is None
        assert FittedKernels(find_hardware(name)).writes_kv


CHUNK = st.integers(1, 20_000)
CONTEXT = st.integers(1, 400_000)


@settings(max_examples=200, deadline=None)
@given(chunks=st.lists(st.tuples(CHUNK, CONTEXT), min_size=1, max_size=3), tp=st.sampled_from([1, 2, 8]))
def test_a_prefix_never_saves_time(box, chunks, tp):
    """With ratios of measured points, whatever they are, and beside decodes."""
    attention = _cost_of(box, tp)._attention
    over, alone = (
        attention.prefill([PrefillChunk(chunk, context * factor) for chunk, context in chunks])
        for factor in (1, 0)
    )
    assert over.seconds >= alone.seconds > 0
    both, fewer = (
        attention.batch(shape_of([5_000] * 4, [(chunk, context * factor) for chunk, context in chunks]))
        for factor in (1, 0)
    )
    assert both.seconds >= fewer.seconds
    assert both.provenance is Provenance.ASSUMED or both.provenance is Provenance.EXTRAPOLATED


@settings(max_examples=200, deadline=None)
@given(
    chunk=CHUNK, context=st.integers(0, 400_000), more=st.integers(1, 20_000), tp=st.sampled_from([1, 2, 8])
)
def test_more_tokens_and_longer_prefixes_save_no_time(box, chunk, context, more, tp):
    """By the forms none; with ratios no more than the dips between measured points."""
    for has_points, share in ((False, 1 - 1e-9), (True, 0.9)):
        attention = _cost_of(box, tp, has_points)._attention

        def seconds(*sizes, attention=attention):
            return attention.prefill([PrefillChunk(*sizes)]).seconds

        assert seconds(chunk + more, context) >= share * seconds(chunk, context)
        assert seconds(chunk, context + more) >= share * seconds(chunk, context)


_COSTS = {}


def _cost_of(box, tp, has_points=True):
    key = (box.folder, tp, has_points)
    if key not in _COSTS:
        scenario = simkv.load_scenario(box.folder / "mine_scenario.yaml")
        points = kernel_points(box.hardware) if has_points else None
        _COSTS[key] = CostModel(scenario.replace(parallel={"tensor_parallel_size": tp}), points)
    return _COSTS[key]


@pytest.mark.parametrize(
    ("name", "width"), [("layernorm", 4_096), ("act_fn", 14_336), ("rotary_emb", 5_120), ("embedding", 4_096)]
)
def test_kernels_of_pytorch_stand_for_the_engine_s(box, name, width):
    time = box.kernels().elementwise(name, width)
    for rows in (1, 700, 8_192):
        num_bytes = rows * width * elementwise.BYTES_PER_ELEMENT[name]
        assert time(rows).seconds == pytest.approx(move_s(num_bytes), rel=0.2 if num_bytes > 30e6 else 0.06)
        assert time(rows).provenance is Provenance.INTERPOLATED
    assert time(20_000).provenance is Provenance.EXTRAPOLATED
    wider = box.kernels().elementwise(name, 50_000)
    assert wider(700).provenance is Provenance.EXTRAPOLATED
    assert wider(700).seconds > time(700).seconds
    assert FittedKernels(box.hardware).elementwise(name, width)(700).provenance is Provenance.INTERPOLATED


def test_sampling_is_measured_and_attention_writes_no_kv(box):
    sampler = box.kernels().elementwise("sampler", 128_256)
    assert sampler(16).provenance is Provenance.MEASURED
    assert sampler(16).seconds == pytest.approx(move_s(16 * 128_256 * 20.0, 1.5e-5), rel=0.04)
    assert not box.cost()._attention.writes_kv


def test_a_stage_hands_over_as_was_measured(box):
    cost, rows = box.cost(pp=2), 8_192
    (seconds,) = cost.transfers_s(shape_of([], [(rows, 0)]))
    assert seconds == pytest.approx(send_recv_s(2 * rows * 4_096 * 2), rel=0.05)
    step = cost.step_time(shape_of([], [(rows, 131_072)]))
    assert step.interpolated_input_s + step.measured_input_s > 0.9 * step.total_s
    sharded = box.cost(tp=2, pp=2).transfers_s(shape_of([], [(rows, 0)]))
    assert sharded[0] > send_recv_s(rows * 4_096 * 2)  # and the gathering of the rest


@given(num_bytes=st.integers(1, 2**30), more=st.integers(1, 2**30))
def test_a_larger_message_is_handed_over_no_sooner(box, num_bytes, more):
    assume(num_bytes > 4_096)
    time = box.kernels().send_recv()
    assert time(num_bytes + more, True).seconds >= 0.9 * time(num_bytes, True).seconds


def test_a_table_of_the_engine_s_own_kernels_needs_no_stand_in(box):
    """Such as a reader finds them: the same rows under the name of an activation, and not of PyTorch."""
    frame = read_measurements(box.folder / "measured.parquet").frame
    own = frame[frame["kernel"] == "glu"].assign(kernel="act_fn", engine="vllm")
    hardware = find_hardware("h100_sxm", with_calibration=False)
    found = calibrate_any(hardware, Measurements(own), "a test", "2026-12-01")
    assert found.spec.families.keys() == {"elementwise/act_fn"}
    write_measurements(found.points, box.folder / "own.parquet")
    spec = found.spec.replace(points=str(box.folder / "own.parquet"))
    calibrated = hardware.replace(calibration=spec)
    kernels = FittedKernels(calibrated, kernel_points(calibrated))
    assert kernels.elementwise("act_fn", 14_336)(1_024).provenance is Provenance.MEASURED
    assert kernels.elementwise("layernorm", 4_096) is None
    assert kernels.writes_kv
