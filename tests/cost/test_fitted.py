"""Calibrated kernels with the residuals of measured points: what was measured comes out as measured."""

from functools import cache

import numpy as np
import pytest

from simkv.cost import CostModel
from simkv.cost.fitted import FittedKernels
from simkv.load.calibration import kernel_points, shipped_calibrations
from simkv.load.hardware import find_hardware
from simkv.step import PrefillChunk, Provenance
from simkv.units import MIB
from tests.cost.worlds import hardware_of, scenario_of, shape_of

KIB, PEAK_BYTES_PER_S = 1024, 3.35e12
every_calibration = pytest.mark.parametrize("name", shipped_calibrations())


@cache
def calibrated(name):
    """The profile of a calibration's device with that calibration."""
    hardware = hardware_of(name.partition("_vllm")[0])
    found = [each for each in (hardware.calibration, *hardware.other_calibrations) if each.points == name]
    return hardware.replace(calibration=found[0], other_calibrations=())


@cache
def points_of(name):
    return kernel_points(calibrated(name))


@cache
def fitted(name="h100_sxm"):
    return FittedKernels(calibrated(name), points_of(name))


def bandwidth_share(num_seqs, context):
    seconds = fitted().decode(8, 1, 128, 2.0)(num_seqs, num_seqs * context, context).seconds
    return num_seqs * context * 512 / seconds / PEAK_BYTES_PER_S


def fp8_over_bf16(num_seqs, context):
    fp8, bf16 = (
        fitted().decode(8, 1, 128, size)(num_seqs, num_seqs * context, context).seconds for size in (1.0, 2.0)
    )
    return fp8 / bf16


def prefill_tflops(heads, kv_heads, num_tokens):
    seconds = fitted().prefill(heads, kv_heads, 128, 2.0)([PrefillChunk(num_tokens, 0)]).seconds
    return 4 * heads * 128 * num_tokens**2 / 2 / seconds / 1e12


def all_reduce_us(num_bytes, in_graph, is_custom=True):
    return fitted().all_reduce(8, is_custom)(num_bytes, in_graph).seconds * 1e6


# H100 SXM, aiconfigurator-core 0.12.0 (vLLM 0.24, NCCL 2.29); each within 10 %
FACTS = {
    "decode 1 × 131,072: share of bandwidth": (lambda: bandwidth_share(1, 131_072), 0.39),
    "decode 32 × 65,536: share of bandwidth": (lambda: bandwidth_share(32, 65_536), 0.90),
    "fp8 KV 1 × 131,072: over bf16": (lambda: fp8_over_bf16(1, 131_072), 1.14),
    "fp8 KV 8 × 131,072: over bf16": (lambda: fp8_over_bf16(8, 131_072), 1 / 1.7),
    "prefill 32/8 heads, 1K: TFLOP/s": (lambda: prefill_tflops(32, 8, 1_024), 242),
    "prefill 32/8 heads, 16K: TFLOP/s": (lambda: prefill_tflops(32, 8, 16_384), 664),
    "prefill 8/1 heads, 1K: TFLOP/s": (lambda: prefill_tflops(8, 1, 1_024), 85),
    "prefill 8/1 heads, 16K: TFLOP/s": (lambda: prefill_tflops(8, 1, 16_384), 639),
    "all-reduce 32 KiB, graph: us": (lambda: all_reduce_us(32 * KIB, True), 5.6),
    "all-reduce 32 KiB, eager: us": (lambda: all_reduce_us(32 * KIB, False), 22.6),
    "all-reduce 32 KiB, NCCL: us": (lambda: all_reduce_us(32 * KIB, True, False), 18.4),
    "all-reduce 16 MiB, graph: us": (lambda: all_reduce_us(16 * MIB, True), 92),
    "all-reduce 16 MiB, eager: us": (lambda: all_reduce_us(16 * MIB, False), 107),
    "all-reduce 16 MiB, NCCL: us": (lambda: all_reduce_us(16 * MIB, True, False), 122),
    "all-reduce 128 MiB, graph: us": (lambda: all_reduce_us(128 * MIB, True), 577),
    "all-reduce 128 MiB, eager: us": (lambda: all_reduce_us(128 * MIB, False), 665),
    "all-reduce 128 MiB, NCCL: us": (lambda: all_reduce_us(128 * MIB, True, False), 579),
    "all-reduce 512 MiB, NCCL: us": (lambda: all_reduce_us(512 * MIB, True, False), 2_100),
}


@pytest.mark.parametrize("fact", FACTS)
def test_a_measured_fact_is_met_within_10_percent(fact):
    model, measured = FACTS[fact]
    assert model() == pytest.approx(measured, rel=0.10)


@every_calibration
def test_measured_products_come_out_as_measured(name):
    """But for spikes, which are left out of the grid."""
    points = points_of(name)["gemm/bfloat16"]
    chosen = np.random.default_rng(0).permutation(len(points["m"]))[:300]
    errors = []
    for m, n, k, seconds in zip(
        *(points[column][chosen] for column in ("m", "n", "k", "seconds")), strict=True
    ):
        kernel = fitted(name).gemm("bfloat16", int(n), int(k), 2.0)(int(m))
        errors.append(abs(kernel.seconds / seconds - 1))
    assert np.mean(np.array(errors) < 1e-6) > 0.99


def test_where_an_answer_comes_from():
    products, decode = fitted().gemm("bfloat16", 4_096, 4_096, 2.0), fitted().decode(8, 1, 128, 2.0)
    assert products(1_024).provenance is Provenance.MEASURED
    assert products(1_000).provenance is Provenance.INTERPOLATED
    assert decode(8, 8 * 131_072, 131_072).provenance is Provenance.MEASURED
    assert decode(8, 8 * 1_024, 1_024).provenance is Provenance.EXTRAPOLATED  # was in cache
    prefill = fitted().prefill(8, 1, 128, 2.0)
    assert prefill([PrefillChunk(1_024, 0)]).provenance is Provenance.MEASURED
    assert prefill([PrefillChunk(1_024, 1_024)]).provenance is Provenance.EXTRAPOLATED
    assert fitted().gemm("int8", 4_096, 4_096, 1.0) is None


def test_another_gpu_takes_efficiencies_over_but_no_residuals():
    hardware = find_hardware("h100_pcie")
    assert hardware.calibration.is_transferred
    assert kernel_points(hardware) == {}
    kernel = FittedKernels(hardware).gemm("bfloat16", 4_096, 4_096, 2.0)(1_024)
    assert kernel.provenance is Provenance.EXTRAPOLATED
    assert FittedKernels(hardware).all_reduce(2, False) is None


@pytest.mark.parametrize(
    ("version", "used"), [("0.10.2", "0.19.0"), ("0.21", "0.19.0"), ("0.22", "0.24.0"), ("0.32.0", "0.24.0")]
)
def test_the_calibration_of_the_nearest_engine_version_is_used(version, used):
    scenario = scenario_of("Llama-3.1-8B")
    scenario = scenario.replace(engine={"vllm_version": version})
    assert scenario.resolved_hardware.calibration.engine_version == used
    assert CostModel(scenario).hardware.calibration.engine_version == used


def test_most_of_a_long_decode_rests_on_measurements():
    cost = CostModel(scenario_of("Llama-3.1-70B", tp=8), points_of("h100_sxm"))
    (time,) = cost.stage_times(shape_of([131_072] * 8))
    assert time.measured_input_s + time.interpolated_input_s > 0.6 * time.total_s


@every_calibration
def test_with_residuals_time_falls_no_lower_than_three_quarters_of_its_running_maximum(name):
    """Real kernels have dips; raw tables of single products fall further, whole steps rarely do."""
    scenario = scenario_of("Llama-3.1-8B").replace(hardware=calibrated(name))
    cost = CostModel(scenario, points_of(name))
    for shapes in (
        [shape_of([2_000] * num_decodes) for num_decodes in range(1, 257)],
        [shape_of([], [(num_tokens, 0)]) for num_tokens in range(64, 8_192, 64)],
    ):
        times = np.array([cost.step_time(shape).total_s for shape in shapes])
        assert (times >= 0.75 * np.maximum.accumulate(times)).all()
