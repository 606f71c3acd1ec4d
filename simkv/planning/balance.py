"""``simkv plan --balance``: the partition that makes a pipeline's slowest stage fastest, or its cache largest.

`best_partition` is exact for any model: a stage's figure may depend on which layers it has, not on how the
others are dealt out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any

from simkv.cost import CostModel
from simkv.errors import InfeasibleError
from simkv.kv.budget import MemoryLedger, memory_ledger
from simkv.load.calibration import kernel_points
from simkv.spec.checks import simulation_faults
from simkv.spec.scenario import Scenario
from simkv.step import GraphMode, PrefillChunk, StepShape

Partition = tuple[int, ...]
StageValue = Callable[
    [int, int, int], float
]  # (stage, first layer, layers) → what is to be small on the worst stage
GOALS = ("decode", "prefill", "blocks")
_LARGEST_GRAPH = 512  # tokens; vLLM captures no larger one on most GPUs


def best_partition(num_layers: int, now: Partition, value: StageValue) -> Partition:
    """Return the contiguous partition whose largest stage value is smallest; of equal ones the nearest to `now`.

    Nearest counts the layers that move; between partitions as near, the one with fewer layers on the earlier
    stages. If `now` cannot be beaten, it is `now`. Every stage gets a layer.

    >>> best_partition(8, (2, 2, 2, 2), lambda stage, first, layers: layers + 2 * (stage == 3))
    (2, 2, 3, 1)
    """
    num_stages = len(now)
    bound = _smallest_bound(num_layers, num_stages, value)

    @cache
    def nearest(stage: int, first: int) -> tuple[int, Partition] | None:
        """The fewest moves, and the layers, of the stages from `stage` on within the bound."""
        if stage == num_stages:
            return 0, ()
        found: list[tuple[int, Partition]] = []
        for layers in _sizes(num_layers - first, num_stages - stage):
            if value(stage, first, layers) <= bound and (rest := nearest(stage + 1, first + layers)):
                found.append((abs(layers - now[stage]) + rest[0], (layers, *rest[1])))
        return min(found, default=None)

    answer = nearest(0, 0)
    assert answer is not None, "some partition reaches the bound"
    return answer[1]


def _smallest_bound(num_layers: int, num_stages: int, value: StageValue) -> float:
    """The smallest that the largest stage value can be."""

    @cache
    def bound(stage: int, first: int) -> float:
        if stage == num_stages:
            return -inf
        return min(
            max(value(stage, first, layers), bound(stage + 1, first + layers))
            for layers in _sizes(num_layers - first, num_stages - stage)
        )

    return bound(0, 0)


def _sizes(num_layers: int, num_stages: int) -> range:
    """How many of the layers left the next of the stages left may take: each gets one, the last the rest."""
    return range(num_layers if num_stages == 1 else 1, num_layers - num_stages + 2)


@dataclass(frozen=True)
class Layout:
    """A partition with what it means: seconds of the two batches on each stage (None = not modelled), blocks."""

    layers: Partition
    decode_s: tuple[float, ...] | None
    prefill_s: tuple[float, ...] | None
    blocks: tuple[int, ...]
    fits: bool

    def worst(self, goal: str) -> float | None:
        """Return the seconds of the slowest stage, or the blocks of the fullest."""
        if goal == "blocks":
            return min(self.blocks)
        times = self.decode_s if goal == "decode" else self.prefill_s
        return None if times is None else max(times)

    def gain(self, goal: str, now: Layout) -> float | None:
        """Return how much better than `now`, as a share: tokens a second of a full pipeline, or blocks."""
        mine, others = self.worst(goal), now.worst(goal)
        if mine is None or others is None or not mine or not others:
            return None
        return mine / others - 1 if goal == "blocks" else others / mine - 1

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "pipeline_layer_partition": list(self.layers),
            "decode_s": None if self.decode_s is None else list(self.decode_s),
            "prefill_s": None if self.prefill_s is None else list(self.prefill_s),
            "num_gpu_blocks": list(self.blocks),
            "fits": self.fits,
        }


@dataclass(frozen=True)
class Balance:
    """The partition of a scenario and the best by each goal; `refusal` says why there are no stage times."""

    now: Layout
    best: dict[str, Layout]
    decode: StepShape
    prefill: StepShape
    refusal: str | None

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as plain data; gains are shares."""
        chunk = self.prefill.prefills[0]
        return {
            "decode_batch": {
                "num_requests": self.decode.num_decodes,
                "context_len": self.decode.max_decode_context,
            },
            "prefill_batch": {"num_tokens": chunk.num_tokens, "context_len": chunk.context_len},
            "now": self.now.as_dict(),
            "best": {
                goal: layout.as_dict() | {"gains": {g: layout.gain(g, self.now) for g in GOALS}}
                for goal, layout in self.best.items()
            },
            "not_modelled": self.refusal,
        }


def balance(scenario: Scenario) -> Balance:
    """Weigh every partition of a scenario's layers over its pipeline stages.

    Only partitions with room for one request of max_model_len on every stage count, if there are any.
    """
    return _Weighing(scenario).answer()


class _Weighing:
    """Figures of stages, each found once: a partition is made up around the stage that is asked for."""

    def __init__(self, scenario: Scenario):
        self.scenario = scenario
        self.now = scenario.layers_per_stage
        self.num_layers, self.num_stages = sum(self.now), len(self.now)
        self.ledger = memory_ledger(scenario)
        model = scenario.model
        # Layers that are all alike: what a stage holds depends on how many it has, not on which.
        self._is_uniform = len(set(model.layer_types)) <= 1 and not model.first_k_dense_replace
        self._found_blocks = cache(self._find_blocks)
        self._found_seconds = cache(self._find_seconds)
        self.shapes = representative_batches(scenario, self.ledger)
        self._cost, self.refusal = _cost_model(scenario)

    def answer(self) -> Balance:
        """Return the best partition by each goal that can be asked for."""
        goals: dict[str, StageValue] = {}
        if self._cost is not None:
            goals["decode"] = lambda stage, _, layers: self._seconds(stage, layers)[0]
            goals["prefill"] = lambda stage, _, layers: self._seconds(stage, layers)[1]
        if not self.ledger.is_overridden:  # else no partition changes the number of blocks
            goals["blocks"] = lambda *where: -self._blocks(*where)
        best = {goal: self._layout(self._best(value)) for goal, value in goals.items()}
        return Balance(self._layout(self.now), best, *self.shapes, self.refusal)

    def _best(self, value: StageValue) -> Partition:
        """The best partition among those with room for a request on every stage, or among all if none has."""
        needed = 0 if self.ledger.is_overridden else self.ledger.blocks_per_request + 1  # with the null block

        def where_it_fits(stage: int, first: int, layers: int) -> float:
            has_room = self._blocks(stage, first, layers) >= needed
            return value(stage, first, layers) if has_room else inf

        found = best_partition(self.num_layers, self.now, where_it_fits)
        has_room = min(rank.num_gpu_blocks for rank in self._ledger(found).ranks) >= needed
        return found if has_room else best_partition(self.num_layers, self.now, value)

    def _layout(self, partition: Partition) -> Layout:
        ledger = self._ledger(partition)
        times = None
        if self._cost is not None:
            times = [self._seconds(stage, layers) for stage, layers in enumerate(partition)]
        return Layout(
            partition,
            None if times is None else tuple(decode_s for decode_s, _ in times),
            None if times is None else tuple(prefill_s for _, prefill_s in times),
            tuple(rank.num_gpu_blocks for rank in ledger.ranks),
            ledger.fits,
        )

    def _ledger(self, partition: Partition) -> MemoryLedger:
        return memory_ledger(self.scenario.replace(parallel={"pipeline_layer_partition": partition}))

    def _blocks(self, stage: int, first: int, layers: int) -> int:
        """Blocks that fit on a stage that holds so many layers from `first` on."""
        if self._is_uniform and 0 < stage < self.num_stages - 1:
            stage = first = 1
        return self._found_blocks(stage, first, layers)

    def _find_blocks(self, stage: int, first: int, layers: int) -> int:
        partition = self._around(stage, first, layers)
        return self._ledger(partition).ranks[stage].num_gpu_blocks

    def _seconds(self, stage: int, layers: int) -> tuple[float, float]:
        """Seconds of the decode and of the prefill batch; all layers of the models that are timed are alike."""
        return self._found_seconds(min(stage, 1) if stage < self.num_stages - 1 else stage, layers)

    def _find_seconds(self, stage: int, layers: int) -> tuple[float, float]:
        assert self._cost is not None
        first = 0 if stage == 0 else self.num_layers - layers if stage == self.num_stages - 1 else stage
        cost = self._cost.with_layers(self._around(stage, first, layers))
        decode_s, prefill_s = (cost.stage_times(shape)[stage].total_s for shape in self.shapes)
        return decode_s, prefill_s

    def _around(self, stage: int, first: int, layers: int) -> Partition:
        """A partition with this stage in it; the layers before and behind are dealt out evenly."""
        before = _spread(first, stage)
        return (*before, layers, *_spread(self.num_layers - first - layers, self.num_stages - stage - 1))


def representative_batches(scenario: Scenario, ledger: MemoryLedger) -> tuple[StepShape, StepShape]:
    """Return a decode and a prefill batch to weigh stages by.

    Decode: as many sequences of half of max_model_len as the cache holds and max_num_seqs lets run, spread over
    the batches in flight. Prefill: a full chunk that ends at half of max_model_len.
    """
    engine = scenario.resolved_engine
    context = max(1, engine.max_model_len // 2)
    num_that_fit = ledger.num_gpu_blocks // max(1, ledger.groups.blocks_of(context))
    num_decodes = max(1, min(engine.max_num_seqs, num_that_fit) // len(scenario.layers_per_stage))
    chunk = min(engine.max_num_batched_tokens, engine.max_model_len)
    in_graph = not engine.enforce_eager
    decode = StepShape(
        num_decodes=num_decodes,
        decode_kv_tokens=num_decodes * context,
        max_decode_context=context,
        num_sampled=num_decodes,
        num_padded_tokens=num_decodes,
        graph_mode=GraphMode.FULL if in_graph and num_decodes <= _LARGEST_GRAPH else GraphMode.NONE,
    )
    prefill = StepShape(
        prefills=(PrefillChunk(chunk, max(0, context - chunk)),),
        num_sampled=1,
        num_padded_tokens=chunk,
        graph_mode=GraphMode.PIECEWISE if in_graph and chunk <= _LARGEST_GRAPH else GraphMode.NONE,
    )
    return decode, prefill


def _cost_model(scenario: Scenario) -> tuple[CostModel | None, str | None]:
    """The cost model, or why there is none."""
    if faults := simulation_faults(scenario):
        return None, "; ".join(f"{'.'.join(path)}: {text}" for path, text in faults)
    try:
        return CostModel(scenario, kernel_points(scenario.resolved_hardware)), None
    except InfeasibleError as error:
        return None, str(error).partition("; try")[0]


def _spread(num_layers: int, num_stages: int) -> Partition:
    """Deal layers out evenly, at least in number."""
    return tuple((num_layers + i) // num_stages for i in range(num_stages)) if num_stages else ()
