"""When requests want to be sent: the arrival process of ``vllm bench serve``."""

from __future__ import annotations

import numpy as np

from simkv.spec.workload import WorkloadSpec
from simkv.units import to_ns


def arrival_times_ns(
    workload: WorkloadSpec, n: int, rng: np.random.Generator | np.random.RandomState
) -> list[int]:
    """Return `n` arrival times in nanoseconds from the start of the run, in order.

    Mirrors ``get_request`` of vLLM's ``vllm/benchmarks/serve.py``: the interval before every request, the
    first one's too, is drawn from a gamma distribution with shape ``burstiness`` and scale
    ``1 / (request_rate · burstiness)``; the running sum is then stretched so that the last request comes at
    exactly ``n / request_rate``. ``poisson`` is burstiness 1, ``constant`` is vLLM's infinite burstiness (the
    first request comes after one interval, not at 0), ``inf`` sends everything at 0 and draws nothing.
    """
    if workload.resolved_arrival == "inf":
        return [0] * n
    rate = workload.request_rate
    assert rate is not None, "WorkloadSpec wants a rate for every arrival process but inf"
    times_s = np.cumsum(_intervals_s(workload, rate, n, rng))
    if n == 0 or times_s[-1] == 0:  # burstiness so small that every draw underflows: vLLM does not stretch it
        return [0] * n
    total_s = n / rate
    total_ns = to_ns(total_s)
    times_s *= total_s / times_s[-1]
    # Stretching may miss the total by one unit in the last place; the last arrival is put there exactly.
    return [min(to_ns(time_s), total_ns) for time_s in times_s[:-1].tolist()] + [total_ns]


def _intervals_s(
    workload: WorkloadSpec, rate: float, n: int, rng: np.random.Generator | np.random.RandomState
) -> np.ndarray:
    if workload.resolved_arrival == "constant":
        return np.full(n, 1.0 / rate)
    burstiness = workload.burstiness if workload.resolved_arrival == "gamma" else 1.0
    return rng.gamma(burstiness, 1.0 / (rate * burstiness), size=n)
