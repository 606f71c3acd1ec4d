"""What a simulated step costs, against SimPy passing as many bare timeouts in the same run.

python benchmarks/engine.py [scenario …]
"""

import sys
import time

import simpy

import simkv
from simkv.load.scenario import find_scenario


def bare_timeouts_s(num_steps: int) -> float:
    """Seconds that SimPy needs to pass `num_steps` timeouts in one process."""

    def process(env):
        for _ in range(num_steps):
            yield env.timeout(1)

    env = simpy.Environment()
    env.process(process(env))
    start = time.perf_counter()
    env.run()
    return time.perf_counter() - start


def main(names: list[str]) -> None:
    titles = ("requests", "prompt tokens", "steps", "seconds", "µs/step", "× SimPy")
    print(f"{'scenario':<18}" + "".join(f"{title:>15}" for title in titles))
    for name in names:
        scenario = simkv.load_scenario(name)
        start = time.perf_counter()
        summary = simkv.simulate(scenario, base_dir=find_scenario(name).parent).summary
        seconds = time.perf_counter() - start
        steps = summary["num_steps"]
        print(
            f"{scenario.name:<18}{summary['num_requests']:>15,}{summary['total_input_tokens']:>15,}{steps:>15,}"
            f"{seconds:>15.2f}{seconds / steps * 1e6:>15.1f}{seconds / bare_timeouts_s(steps):>15.1f}"
        )


if __name__ == "__main__":
    main(sys.argv[1:] or ["quickstart", "one_gpu_32k", "tp4_pp2_128k", "closed_loop"])
