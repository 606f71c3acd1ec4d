"""Rules between the parts of a scenario: what a layout, a model and an engine allow each other.

Each fault is (path of the field at fault, message); a loader adds file and line.
"""

from __future__ import annotations

from collections.abc import Iterator

from simkv.spec.scenario import Scenario

Fault = tuple[tuple[str, ...], str]


def scenario_faults(scenario: Scenario) -> list[Fault]:
    """Return every rule that the scenario breaks, as vLLM would refuse it at start-up."""
    return [
        *_tensor_parallel(scenario),
        *_pipeline(scenario),
        *_gpus(scenario),
        *_engine(scenario),
        *_later(scenario),
    ]


def scenario_warnings(scenario: Scenario) -> list[str]:
    """Return what is allowed but probably not meant."""
    num_gpus, used = scenario.hardware.num_gpus, scenario.parallel.num_gpus
    if num_gpus is not None and used < num_gpus:
        idle = num_gpus - used
        return [f"{idle} of {num_gpus} GPUs idle: the layout {layout(scenario)} uses {used}"]
    return []


def layout(scenario: Scenario) -> str:
    """Return the layout in the field's shorthand.

    TP4×PP2, and ×DP2 if there are replicas.
    """
    parallel = scenario.parallel
    parts = [f"TP{parallel.tensor_parallel_size}"]
    if parallel.pipeline_parallel_size > 1:
        parts.append(f"PP{parallel.pipeline_parallel_size}")
    if parallel.data_parallel_size > 1:
        parts.append(f"DP{parallel.data_parallel_size}")
    return "×".join(parts)


def _tensor_parallel(scenario: Scenario) -> Iterator[Fault]:
    tp, model = scenario.parallel.tensor_parallel_size, scenario.model
    heads, kv_heads = model.num_attention_heads, model.num_key_value_heads
    path = ("parallel", "tensor_parallel_size")

    def fits(size: int) -> bool:
        return heads % size == 0 and (model.is_mla or kv_heads % size == 0 or size % kv_heads == 0)

    if not fits(tp):
        sizes = [size for size in range(1, min(heads, 64) + 1) if fits(size)]
        what = f"{heads} attention heads" if heads % tp else f"{kv_heads} KV heads"
        yield path, f"{tp} does not divide {what}; use {_one_of(sizes)}"


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
    if hardware.num_gpus is not None and used > hardware.num_gpus:
        yield (
            ("parallel",),
            f"the layout {layout(scenario)} needs {used} GPUs, {hardware.name} has {hardware.num_gpus}; "
            "use smaller sizes or a larger box",
        )
    elif hardware.num_gpus is None and used > hardware.node.max_num_gpus:
        most = hardware.node.max_num_gpus
        nodes = -(-used // most)
        yield (
            ("parallel",),
            f"the layout {layout(scenario)} needs {used} GPUs, a node of {hardware.name} holds {most}; "
            f"use hardware {hardware.name}_{nodes}x{most}",
        )


def _engine(scenario: Scenario) -> Iterator[Fault]:
    engine, model = scenario.resolved_engine, scenario.model
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


def _later(scenario: Scenario) -> Iterator[Fault]:
    """What a scenario may say and this version of simkv does not simulate."""
    if scenario.engine.async_scheduling:
        yield (
            ("engine", "async_scheduling"),
            "asynchronous scheduling is not simulated yet; set it to false (vLLM: --no-async-scheduling)",
        )
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        size = getattr(scenario.parallel, name)
        if size > 1:
            yield ("parallel", name), f"context parallelism is not simulated yet; wanted 1, got {size}"


def _one_of(sizes: list[int]) -> str:
    head, last = sizes[:-1], sizes[-1]
    return f"{', '.join(map(str, head))} or {last}" if head else str(last)
