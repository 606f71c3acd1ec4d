"""``simkv run``: a scenario in, `Results` out."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from simkv.cost import CostModel
from simkv.engine.chunks import profile_chunks
from simkv.engine.simulation import Progress, Simulation
from simkv.errors import ScenarioError
from simkv.load.calibration import kernel_points
from simkv.planning import plan, require_simulated
from simkv.results.log import RunLog
from simkv.results.results import Results
from simkv.scheduler.scheduler import build_scheduler
from simkv.spec.scenario import Scenario
from simkv.units import to_ns
from simkv.workload.generate import generate


def simulate(
    scenario: Scenario,
    *,
    base_dir: Path | None = None,
    check: bool = False,
    progress: Progress | None = None,
    physical_only: bool = False,
) -> Results:
    """Serve the scenario's workload to the end and return what happened.

    base_dir   the folder from which a relative trace path is looked up
    check      audit block and request conservation at every step
    progress   called with (requests done, requests, simulated ns)
    physical_only   time kernels by their fitted forms alone, without the residuals of measured points

    Raises ScenarioError for a scenario that vLLM or simkv refuses, InfeasibleError if the server would not
    start, TraceError for a faulty trace.
    """
    log = run_log(scenario, base_dir=base_dir, check=check, progress=progress, physical_only=physical_only)
    return Results(
        log,
        scenario=resolved_mapping(scenario),
        ledger=plan(scenario, base_dir).as_dict(),
        slo=scenario.slo.model_dump(exclude_none=True),
    )


def run_log(
    scenario: Scenario,
    *,
    base_dir: Path | None = None,
    check: bool = False,
    progress: Progress | None = None,
    physical_only: bool = False,
) -> RunLog:
    """Serve the scenario's workload to the end and return the bare log; arguments as for `simulate`."""
    workload = scenario.workload
    if workload is None:
        raise ScenarioError("workload: missing; 'simkv run' needs one ('simkv plan' does not)")
    require_simulated(scenario)
    answer = plan(scenario)
    answer.require()
    engine, parallel = scenario.resolved_engine, scenario.parallel
    requests = generate(workload, scenario.model.vocab_size, scenario.seed, base_dir)
    cost = CostModel(scenario, {} if physical_only else kernel_points(scenario.resolved_hardware))
    chunk_rule = None
    if engine.dynamic_chunking:
        chunk_rule = profile_chunks(cost, engine.max_num_batched_tokens, engine.max_model_len)
    simulation = Simulation(
        requests,
        requests.num_requests,
        partial(
            build_scheduler,
            engine,
            answer.ledger.num_gpu_blocks,
            parallel.pipeline_parallel_size,
            scenario.hardware.gpu.compute_capability,
            chunk_rule,
        ),
        cost,
        num_gpu_blocks=answer.ledger.num_gpu_blocks,
        num_stages=parallel.pipeline_parallel_size,
        num_replicas=parallel.data_parallel_size,
        max_concurrency=workload.max_concurrency,
        router=parallel.data_parallel_router,
        round_trip_ns=to_ns(scenario.hardware.host.client_round_trip_s.value),
        ignore_eos=workload.ignore_eos,
        broadcast_wait=engine.broadcast_wait,
        check=check,
        progress=progress,
    )
    return simulation.run()


def resolved_mapping(scenario: Scenario) -> dict[str, object]:
    """Return the scenario as plain data with every default filled in, for the result folder."""
    resolved: dict[str, object] = scenario.model_dump(mode="json", exclude_none=True)
    options = scenario.resolved_engine.model_dump(mode="json", exclude_none=True)
    resolved["engine"] = options
    resolved["hardware"] = scenario.resolved_hardware.model_dump(mode="json", exclude_none=True)
    return resolved
