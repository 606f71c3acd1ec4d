"""Rules between the parts of a scenario: what a layout, a model and an engine allow each other.

Each fault is (path of the field at fault, message); a loader adds file and line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simkv.spec.base import Spec
from simkv.spec.context import SIZE, context_parallel_faults, context_parallel_warnings, one_of
from simkv.spec.hardware import Quantity
from simkv.spec.scenario import Scenario

Fault = tuple[tuple[str, ...], str]

# Bounds against slips of the keyboard and lost units. Far inside them lies all that exists; beyond them a
# run would fill the memory, last for days without a word, or count more nanoseconds than 64 bits hold.
_MOST = 10**12  # any count
_MOST_OF: dict[str, int] = {
    "num_hidden_layers": 10_000,  # the ledger walks over them; the deepest models have 126
    "data_parallel_size": 1_024,  # each replica has a scheduler and a block pool of its own
    "num_nodes": 10_000,
}
_RANGES: tuple[tuple[str, float, float, str], ...] = (  # ending of the name, least, most, how to write it
    ("memory_bytes", 1e9, 1e13, "'80 GB'"),
    ("_bytes_per_s", 1e6, 1e16, "'3.35 TB/s'"),
    ("_flops_per_s", 1e9, 1e19, "'989 TFLOP/s'"),
    ("_s", 0.0, 1.0, "'5.6 us'"),
    ("_efficiency", 1e-3, 2.0, "0.8"),  # above 1 where a datasheet rounds down
    ("", 1.0, 1e6, "128"),
)


def scenario_faults(scenario: Scenario) -> list[Fault]:
    """Return every rule that the scenario breaks, as vLLM would refuse it at start-up."""
    # the rules would compute with slips
    return list(_slips(scenario)) or rule_faults(scenario)


def rule_faults(scenario: Scenario) -> list[Fault]:
    """Return the rules that a scenario without slips of the keyboard breaks: a tenth of the work."""
    return [
        *_tensor_parallel(scenario),
        *_pipeline(scenario),
        *_gpus(scenario),
        *_engine(scenario),
        *context_parallel_faults(scenario),
    ]


def model_faults(scenario: Scenario) -> list[Fault]:
    """Return the rules that a layout breaks however many GPUs there are."""
    return [*_tensor_parallel(scenario), *_pipeline(scenario)]


def simulation_faults(scenario: Scenario) -> list[Fault]:
    """Return what a lawful scenario may say and `simkv plan` answers, and a run does not simulate."""
    size = scenario.parallel.decode_context_parallel_size
    if size == 1:
        return []
    text = f"the step time of context parallelism is not simulated yet; wanted 1, got {size}"
    return [(SIZE, f"{text} ('simkv plan' answers for its memory)")]


def scenario_warnings(scenario: Scenario) -> list[str]:
    """Return what is allowed but probably not meant, or only by rules that are not vLLM's."""
    warnings = list(context_parallel_warnings(scenario))
    num_gpus, used = scenario.hardware.num_gpus, scenario.parallel.num_gpus
    if num_gpus is not None and used < num_gpus:
        idle = num_gpus - used
        warnings.append(f"{idle} of {num_gpus} GPUs idle: the layout {layout(scenario)} uses {used}")
    return warnings


def layout(scenario: Scenario) -> str:
    """Return the layout in the field's shorthand.

    TP4×PP2, with ×DCP2 for decode context parallelism within TP, and ×DP2 if there are replicas.
    """
    parallel = scenario.parallel
    parts = [f"TP{parallel.tensor_parallel_size}"]
    if parallel.pipeline_parallel_size > 1:
        parts.append(f"PP{parallel.pipeline_parallel_size}")
    if parallel.decode_context_parallel_size > 1:
        parts.append(f"DCP{parallel.decode_context_parallel_size}")
    if parallel.prefill_context_parallel_size > 1:
        parts.append(f"PCP{parallel.prefill_context_parallel_size}")
    if parallel.data_parallel_size > 1:
        parts.append(f"DP{parallel.data_parallel_size}")
    return "×".join(parts)


def _slips(scenario: Scenario) -> Iterator[Fault]:
    """Numbers beyond all that exists."""
    for name in ("model", "hardware", "parallel", "engine"):
        yield from _slips_in(getattr(scenario, name), (name,), name)


def _slips_in(value: Any, path: tuple[str, ...], field: str) -> Iterator[Fault]:
    if isinstance(value, Quantity):
        least, most, example = next(row[1:] for row in _RANGES if field.endswith(row[0]))
        if not least <= value.value <= most:
            yield (
                (*path, "value"),
                f"wanted a number between {least:g} and {most:g}, such as {example}, got {value.value:g}",
            )
    elif isinstance(value, Spec):
        for name, part in value:
            yield from _slips_in(part, (*path, name), name)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _slips_in(part, (*path, str(key)), field)
    elif isinstance(value, int) and value > (most_of := _MOST_OF.get(field, _MOST)):
        yield path, f"wanted a number at most {most_of:,}, got {value}"


def _tensor_parallel(scenario: Scenario) -> Iterator[Fault]:
    tp, model = scenario.parallel.tensor_parallel_size, scenario.model
    heads, kv_heads = model.num_attention_heads, model.num_key_value_heads
    path = ("parallel", "tensor_parallel_size")

    def fits(size: int) -> bool:
        return heads % size == 0 and (model.is_mla or kv_heads % size == 0 or size % kv_heads == 0)

    if not fits(tp):
        sizes = [size for size in range(1, min(heads, 64) + 1) if fits(size)]
        what = f"{heads} attention heads" if heads % tp else f"{kv_heads} KV heads"
        yield path, f"{tp} does not divide {what}; use {one_of(sizes)}"


def _pipeline(scenario: Scenario) -> Iterator[Fault]:
    parallel, num_layers = scenario.parallel, scenario.model.num_hidden_layers
    pp, partition = parallel.pipeline_parallel_size, parallel.pipeline_layer_partition
    if pp > num_layers:
        yield (
            ("parallel", "pipeline_parallel_size"),
            f"{pp} stages for {num_layers} layers; use at most {num_layers}",
        )
    if partition is None:
        return
    path = ("parallel", "pipeline_layer_partition")
    if len(partition) != pp:
        yield path, f"wanted {pp} numbers, one a stage, got {len(partition)}"
    elif sum(partition) != num_layers:
        yield path, f"wanted {num_layers} layers in sum, got {sum(partition)}"


def _gpus(scenario: Scenario) -> Iterator[Fault]:
    hardware, used = scenario.hardware, scenario.parallel.num_gpus
    per_node, most = hardware.num_gpus_per_node, hardware.node.max_num_gpus
    if per_node is not None and per_node > most:
        yield (
            ("hardware", "num_gpus_per_node"),
            f"wanted at most {most} GPUs in such a node, got {per_node}; use more nodes",
        )
    elif per_node is None and hardware.num_nodes > 1:
        yield (
            ("hardware", "num_nodes"),
            f"wanted num_gpus_per_node beside {hardware.num_nodes} nodes, at most {most}, got nothing",
        )
    elif hardware.num_gpus is not None and used > hardware.num_gpus:
        yield (
            ("parallel",),
            f"the layout {layout(scenario)} needs {used} GPUs, {hardware.name} has {hardware.num_gpus}; "
            "use smaller sizes or a larger box",
        )
    elif hardware.num_gpus is None and used > most:
        nodes = -(-used // most)
        yield (
            ("parallel",),
            f"the layout {layout(scenario)} needs {used} GPUs, a node of {hardware.name} holds {most}; "
            f"use hardware {hardware.name}_{nodes}x{most}",
        )


def _engine(scenario: Scenario) -> Iterator[Fault]:
    engine, model = scenario.resolved_engine, scenario.model
    num_gpus = scenario.parallel.num_gpus_per_replica
    if engine.distributed_executor_backend == "uniproc" and num_gpus > 1:
        yield (
            ("engine", "distributed_executor_backend"),
            f"uniproc runs one GPU, the layout {layout(scenario)} has {num_gpus} a replica; use mp or ray",
        )
    if engine.max_model_len > model.max_position_embeddings:
        yield (
            ("engine", "max_model_len"),
            f"{engine.max_model_len} is beyond the {model.max_position_embeddings} positions of {model.name}",
        )
    if not engine.enable_chunked_prefill and engine.max_num_batched_tokens < engine.max_model_len:
        yield (
            ("engine", "max_num_batched_tokens"),
            f"{engine.max_num_batched_tokens} is below max_model_len {engine.max_model_len}, which needs "
            "enable_chunked_prefill: true",
        )
    if engine.max_num_batched_tokens < engine.max_num_seqs:
        yield (
            ("engine", "max_num_batched_tokens"),
            f"{engine.max_num_batched_tokens} is below max_num_seqs {engine.max_num_seqs}; "
            "raise it or lower max_num_seqs",
        )
