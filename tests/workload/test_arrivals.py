import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.spec.workload import WorkloadSpec
from simkv.units import to_ns
from simkv.workload import arrival_times_ns, stream


def workload(**fields) -> WorkloadSpec:
    return WorkloadSpec.model_validate({"prompt_len": 100, "output_len": 10, **fields})


PROCESSES = st.sampled_from([{"arrival": "poisson"}, {"arrival": "constant"}, {}]) | st.floats(0.05, 50).map(
    lambda burstiness: {"arrival": "gamma", "burstiness": burstiness}
)


@given(PROCESSES, st.floats(1e-3, 1e4), st.integers(1, 200), st.integers(0, 2**32))
def test_arrivals_are_in_order_and_take_n_over_rate_in_total(process, rate, n, seed):
    times = arrival_times_ns(workload(request_rate=rate, **process), n, stream(seed, "arrivals"))
    assert len(times) == n
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] == to_ns(n / rate)


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 100), st.floats(0.1, 20), st.integers(1, 50))
def test_equal_to_vllm_bench_serve(seed, rate, burstiness, n):
    np.random.seed(seed)  # recomputed as vLLM does it, one draw at a time from the global generator
    delays = [np.random.gamma(shape=burstiness, scale=1 / (rate * burstiness)) for _ in range(n)]
    for i in range(1, n):
        delays[i] += delays[i - 1]
    expected = [to_ns(delay * (n / rate / delays[-1])) for delay in delays]
    spec = workload(arrival="gamma", request_rate=rate, burstiness=burstiness)
    got = arrival_times_ns(spec, n, np.random.RandomState(seed))
    assert got[:-1] == expected[:-1]
    assert abs(got[-1] - expected[-1]) <= 1


def test_constant_sends_the_first_request_after_one_interval():
    assert arrival_times_ns(workload(arrival="constant", request_rate=4.0), 3, stream(0, "arrivals")) == [
        250_000_000,
        500_000_000,
        750_000_000,
    ]


@pytest.mark.parametrize("fields", [{}, {"arrival": "inf"}])
def test_inf_sends_everything_at_once_and_draws_nothing(fields):
    rng, untouched = stream(0, "arrivals"), stream(0, "arrivals")
    assert arrival_times_ns(workload(**fields), 3, rng) == [0, 0, 0]
    assert rng.random() == untouched.random()


def test_poisson_is_gamma_with_burstiness_1():
    poisson = workload(arrival="poisson", request_rate=3.0)
    gamma = workload(arrival="gamma", request_rate=3.0)
    assert arrival_times_ns(poisson, 20, stream(1, "arrivals")) == arrival_times_ns(
        gamma, 20, stream(1, "arrivals")
    )


def test_without_an_arrival_process_burstiness_decides_as_in_vllm():
    assert workload(request_rate=3.0).resolved_arrival == "poisson"
    assert workload(request_rate=3.0, burstiness=0.5).resolved_arrival == "gamma"
    assert workload(burstiness=0.5).resolved_arrival == "inf"


def test_burstiness_beside_another_process_is_refused():
    with pytest.raises(
        ValueError, match="burstiness: only arrival: gamma has it; remove it or arrival: poisson"
    ):
        workload(arrival="poisson", request_rate=3.0, burstiness=0.5)


def test_low_burstiness_clumps():
    def spread(burstiness: float) -> float:
        spec = workload(arrival="gamma", request_rate=1.0, burstiness=burstiness)
        return float(np.std(np.diff(arrival_times_ns(spec, 5000, stream(0, "arrivals")))))

    assert spread(0.25) == pytest.approx(2e9, rel=0.1)  # the coefficient of variation is 1 / sqrt(burstiness)
    assert spread(4.0) == pytest.approx(0.5e9, rel=0.1)


def test_intervals_too_small_for_a_float_all_arrive_at_0():
    spec = workload(arrival="gamma", request_rate=1.0, burstiness=1e-6)
    assert arrival_times_ns(spec, 1, stream(0, "arrivals")) == [0]


def test_no_requests():
    assert arrival_times_ns(workload(request_rate=1.0), 0, stream(0, "arrivals")) == []
