"""What timing one batch costs, against SimPy passing one bare timeout in the same run.

python benchmarks/step_time.py

Decodes: 32 of one length more at every step, as in a run. Mixed: a chunk of 2,048 tokens over a growing context
beside them. Both after a first batch of their kind has filled the caches.
"""

import statistics
import time
from collections.abc import Callable, Sequence

import simpy

import simkv
from simkv.cost import CostModel
from simkv.load.calibration import kernel_points
from simkv.step import GraphMode, PrefillChunk, StepShape

NUM_STEPS, NUM_ROUNDS, NUM_DECODES = 1_000, 9, 32
LAYOUTS = (
    ("Llama-3.1-8B", "h100_sxm", 1, 1),
    ("Llama-3.1-70B", "h100_sxm", 8, 1),
    ("Llama-3.1-70B", "h100_sxm", 4, 4),
    ("Llama-3.1-8B", "rtx_pro_6000", 1, 1),
    ("Llama-3.1-8B", "h100_pcie", 1, 1),
)


def decodes(step: int) -> StepShape:
    context = 4_096 + step
    return StepShape(
        num_decodes=NUM_DECODES,
        decode_kv_tokens=NUM_DECODES * context,
        max_decode_context=context,
        num_sampled=NUM_DECODES,
        num_padded_tokens=NUM_DECODES,
        graph_mode=GraphMode.FULL,
    )


def mixed(step: int) -> StepShape:
    alone = decodes(step)
    return StepShape(
        num_decodes=NUM_DECODES,
        decode_kv_tokens=alone.decode_kv_tokens,
        max_decode_context=alone.max_decode_context,
        prefills=(PrefillChunk(2_048, 16 * step),),
        num_sampled=NUM_DECODES + 1,
        num_padded_tokens=NUM_DECODES + 2_048,
    )


def median_us(work: Callable[[], object]) -> float:
    times = []
    for _ in range(NUM_ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times) / NUM_STEPS * 1e6


def bare_timeouts() -> None:
    def process(env):
        for _ in range(NUM_STEPS):
            yield env.timeout(1)

    env = simpy.Environment()
    env.process(process(env))
    env.run()


def cost_of(model: str, hardware: str, tp: int, pp: int) -> CostModel:
    parallel = f"{{tensor_parallel_size: {tp}, pipeline_parallel_size: {pp}}}"
    scenario = simkv.parse_scenario(f"model: {model}\nhardware: {hardware}_2x8\nparallel: {parallel}\n")
    return CostModel(scenario, kernel_points(scenario.resolved_hardware))


def step_us(cost: CostModel, shapes: Sequence[StepShape]) -> float:
    def work() -> None:
        for shape in shapes:
            cost.stage_times(shape)
            cost.transfers_s(shape)
            cost.host_s(shape)

    return median_us(work)


def main() -> None:
    baseline = median_us(bare_timeouts)
    print(f"one SimPy timeout: {baseline:.2f} µs")
    print(f"{'model':<16}{'hardware':<14}{'layout':<10}{'decodes':>20}{'mixed':>20}")
    for model, hardware, tp, pp in LAYOUTS:
        cost = cost_of(model, hardware, tp, pp)
        cells = ""
        for kind in (decodes, mixed):
            us = step_us(cost, [kind(step) for step in range(NUM_STEPS)])
            cells += f"{f'{us:.1f} µs, {us / baseline:.0f} ×':>20}"
        print(f"{model:<16}{hardware:<14}{f'TP{tp}×PP{pp}':<10}{cells}")


if __name__ == "__main__":
    main()
