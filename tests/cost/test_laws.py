"""Laws of the step time, for every shipped profile, dense models of unlike kinds and TP × PP layouts."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.cost import CostModel
from simkv.cost.collectives import Collectives
from simkv.cost.fitted import FittedKernels
from simkv.cost.model import quantized_compute_dtype
from simkv.errors import InfeasibleError
from simkv.load.hardware import shipped_hardware
from simkv.load.model import find_model, shipped_models
from simkv.step import GraphMode, StepShape
from tests.cost.worlds import (
    DENSE_MODELS,
    batches,
    chunks,
    contexts,
    cost_of,
    hardware_of,
    layouts,
    nonempty_batches,
    scenario_of,
    shape_of,
)

every_profile = pytest.mark.parametrize("hardware", shipped_hardware())
ROUNDING = 1e-12  # sums of floats in another order


def cost_strategy(hardware):
    return st.sampled_from(layouts(hardware)).map(lambda layout: cost_of(*layout))


def parts_of(time):
    return (time.compute_s, time.memory_s, time.comm_s, time.host_s)


def provenances_of(time):
    return (
        time.measured_input_s,
        time.interpolated_input_s,
        time.extrapolated_input_s,
        time.assumed_input_s,
    )


@every_profile
@settings(deadline=None)
@given(data=st.data())
def test_step_time_is_positive_finite_and_the_sum_of_its_parts(hardware, data):
    cost = data.draw(cost_strategy(hardware))
    shape = shape_of(*data.draw(nonempty_batches), num_new_blocks=data.draw(st.integers(0, 100)))
    time = cost.step_time(shape)
    stages = cost.stage_times(shape)
    for each in (time, *stages):
        assert 0 < each.total_s < math.inf
        assert min(parts_of(each)) >= 0
        assert min(provenances_of(each)) >= 0
        assert sum(parts_of(each)) == pytest.approx(each.total_s, rel=ROUNDING)
        assert sum(provenances_of(each)) == pytest.approx(each.total_s, rel=ROUNDING)
    whole = sum(stage.total_s for stage in stages) + sum(cost.transfers_s(shape)) + cost.host_s(shape)
    assert time.total_s == pytest.approx(whole, rel=ROUNDING)
    assert min(cost.transfers_s(shape), default=1) > 0
    assert len(cost.transfers_s(shape)) == len(stages) - 1


@every_profile
def test_an_empty_batch_costs_nothing(hardware):
    for layout in layouts(hardware):
        cost = cost_of(*layout)
        assert cost.step_time(StepShape()).total_s == 0
        assert all(stage.total_s == 0 for stage in cost.stage_times(StepShape()))
        assert set(cost.transfers_s(StepShape())) <= {0.0}
        assert cost.host_s(StepShape()) == 0


@st.composite
def grown_batches(draw):
    """A batch, and the same with a request more, or a longer context or chunk."""
    decodes, prefills = draw(batches)
    changes = ["add a decode", "add a chunk"]
    changes += ["lengthen a decode's context"] * bool(decodes)
    changes += ["lengthen a chunk", "lengthen a chunk's context"] * bool(prefills)
    change, more = draw(st.sampled_from(changes)), draw(st.one_of(st.integers(1, 20), st.integers(1, 20_000)))
    grown_decodes, grown_prefills = list(decodes), list(prefills)
    if change == "add a decode":
        grown_decodes.append(draw(contexts))
    elif change == "add a chunk":
        grown_prefills.append(draw(chunks))
    elif change == "lengthen a decode's context":
        grown_decodes[draw(st.integers(0, len(decodes) - 1))] += more
    else:
        i = draw(st.integers(0, len(prefills) - 1))
        num_tokens, context_len = prefills[i]
        is_chunk = change == "lengthen a chunk"
        grown_prefills[i] = (num_tokens + more, context_len) if is_chunk else (num_tokens, context_len + more)
    return shape_of(decodes, prefills), shape_of(grown_decodes, grown_prefills)


@every_profile
@settings(deadline=None)
@given(data=st.data(), pair=grown_batches())
def test_a_fuller_or_longer_batch_never_takes_less_time(hardware, data, pair):
    """Graph modes, padding, tiles and the change of all-reduce kernel included."""
    cost = data.draw(cost_strategy(hardware))
    before, after = map(cost.step_time, pair)
    assert after.total_s >= before.total_s * (1 - ROUNDING)


@pytest.mark.parametrize("model", DENSE_MODELS)
def test_time_never_falls_over_the_steps_of_graphs_tiles_and_kernels(model):
    """Every batch of decodes up to 1,100, and every chunk near the sizes where something changes."""
    cost = cost_of(model, "h100_sxm", 4 if model != "Llama-3.2-1B" else 2)
    for shapes in (
        [shape_of([2_000] * num_decodes) for num_decodes in range(1_101)],
        [shape_of([], [(num_tokens, 0)]) for num_tokens in range(1, 1_400)],
    ):
        times = [cost.step_time(shape).total_s for shape in shapes]
        assert all(b >= a * (1 - ROUNDING) for a, b in pairwise(times))


@every_profile
@settings(deadline=None)
@given(data=st.data(), batch=nonempty_batches)
def test_one_gpu_does_not_communicate(hardware, data, batch):
    layout = data.draw(st.sampled_from([layout for layout in layouts(hardware) if layout[2] == 1]))
    cost = cost_of(*layout)
    shape = shape_of(*batch)
    assert all(stage.comm_s == 0 for stage in cost.stage_times(shape))
    if layout[3] == 1:
        assert cost.step_time(shape).comm_s == 0
        assert cost.transfers_s(shape) == ()


@given(batch=nonempty_batches, model=st.sampled_from(DENSE_MODELS))
def test_splitting_layers_into_stages_neither_adds_nor_loses_work(batch, model):
    """Only the CPU's waits come once a stage."""
    shape = shape_of(*batch)
    one, two = (cost_of(model, pp=pp).stage_times(shape) for pp in (1, 2))
    kernels_of_one, kernels_of_two = (
        sum(time.total_s - time.host_s for time in times) for times in (one, two)
    )
    assert kernels_of_two == pytest.approx(kernels_of_one, rel=1e-9)
    assert sum(time.host_s for time in two) >= one[0].host_s * (1 - 1e-9)


@every_profile
@settings(deadline=None)
@given(data=st.data(), batch=nonempty_batches)
def test_a_batch_without_a_graph_is_never_faster(hardware, data, batch):
    cost = data.draw(cost_strategy(hardware))
    shape = shape_of(*batch)
    eager, piecewise, full = (
        cost.step_time(replace(shape, graph_mode=mode)).total_s
        for mode in (GraphMode.NONE, GraphMode.PIECEWISE, GraphMode.FULL)
    )
    assert eager >= piecewise >= full


def dense_mla():
    """None is shipped without experts."""
    fields = {"num_experts": 0, "num_experts_per_tok": 0, "num_shared_experts": 0, "first_k_dense_replace": 0}
    return find_model("deepseek-ai/DeepSeek-R1").replace(**fields, moe_intermediate_size=None)


def windowed(model):
    return model.sliding_window is not None and not model.is_hybrid


UNMODELLED = {
    "mixture-of-experts": [model for model in shipped_models().values() if model.is_moe],
    "latent-attention": [dense_mla()],
    "hybrid-attention": [m for m in shipped_models().values() if m.is_hybrid and not m.is_moe],
    "sliding-window": [m for m in shipped_models().values() if windowed(m) and not m.is_moe],
}


@pytest.mark.parametrize("kind", UNMODELLED)
def test_models_without_a_step_time_are_refused_and_sent_to_plan(kind):
    models = UNMODELLED[kind]
    assert models
    for model in models:
        scenario = scenario_of("Llama-3.1-8B").replace(model=model)
        with pytest.raises(InfeasibleError, match=f"{kind}.*step time is not modelled.*simkv plan"):
            CostModel(scenario)


def test_a_dtype_the_gpu_does_not_have_is_refused():
    scenario = scenario_of("Llama-3.1-8B")
    scenario = scenario.replace(model=scenario.model.replace(dtype="float32"))
    with pytest.raises(InfeasibleError, match="no peak_flops_per_s in float32; try model"):
        CostModel(scenario)


@pytest.mark.parametrize(
    ("model", "hardware", "dtype"),
    [
        ("nvidia/Llama-3.1-70B-Instruct-FP8", "h100_sxm", "fp8"),
        ("nvidia/Llama-3.1-70B-Instruct-FP8", "a100_sxm", "bfloat16"),
        ("RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w8a8", "a100_sxm", "int8"),
        ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "h100_sxm", "float16"),
        ("Llama-3.1-70B", "h100_sxm", "bfloat16"),
    ],
)
def test_quantised_weights_multiply_in_what_the_tensor_cores_have(model, hardware, dtype):
    assert quantized_compute_dtype(find_model(model), hardware_of(hardware)) == dtype


def test_fp8_weights_without_fp8_compute_save_bytes_but_no_flops():
    fp8, bf16 = "nvidia/Llama-3.1-70B-Instruct-FP8", "Llama-3.1-70B"
    decode, prefill = shape_of([1_000]), shape_of([], [(8_192, 0)])
    on_a100 = [cost_of(model, "a100_sxm", 4) for model in (fp8, bf16)]
    assert on_a100[0].step_time(decode).memory_s < 0.75 * on_a100[1].step_time(decode).memory_s
    # the smoothed roofline lets a little of the saved bytes through
    assert on_a100[0].step_time(prefill).compute_s == pytest.approx(
        on_a100[1].step_time(prefill).compute_s, rel=0.02
    )
    on_h100 = [cost_of(model, "h100_sxm", 4) for model in (fp8, bf16)]
    assert on_h100[0].step_time(prefill).compute_s < on_h100[1].step_time(prefill).compute_s


@pytest.mark.parametrize("model", ["Llama-3.1-70B", "Qwen3-32B"])
def test_tensor_parallelism_divides_the_work(model):
    """A large chunk's computing time halves with every doubling, but for launches."""
    prefill, decode = shape_of([], [(8_192, 0)]), shape_of([32_768] * 16)
    costs = [cost_of(model, tp=tp) for tp in (1, 2, 4, 8)]
    for one, two in pairwise(costs):
        assert two.step_time(prefill).compute_s == pytest.approx(
            one.step_time(prefill).compute_s / 2,
            rel=0.1,  # tiles and waves quantise
        )
        assert two.step_time(decode).memory_s < one.step_time(decode).memory_s


def test_what_a_step_communicates():
    """Two all-reduces a layer and one for the embedding, and the logits are gathered."""
    shape, hidden_bytes = shape_of([1_000] * 8), 8 * 8_192 * 2
    hardware = hardware_of("h100_sxm")
    group = Collectives(hardware, 8, 8, fitted=FittedKernels(hardware))
    all_reduce_s = group.all_reduce(hidden_bytes, in_graph=True).seconds
    gather_s = group.all_gather(8 * 128_256 * 2).seconds
    (time,) = cost_of("Llama-3.1-70B", tp=8).stage_times(shape)
    assert time.comm_s == pytest.approx((2 * 80 + 1) * all_reduce_s + gather_s)
