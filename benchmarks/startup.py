"""How long the command line takes to start, against a bare interpreter in the same run.

python benchmarks/startup.py [runs]
"""

import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "simkv --help": [sys.executable, "-m", "simkv", "--help"],
    "simkv plan quickstart": [sys.executable, "-m", "simkv", "plan", "quickstart"],
}


def main(num_runs: int) -> None:
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(num_runs + 1):  # the first round warms the disk cache
        for name, command in COMMANDS.items():  # in turn, so that a slow moment hits all alike
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            seconds[name].append(time.perf_counter() - start)
    baseline = statistics.median(seconds["python -c pass"][1:])
    for name, times in seconds.items():
        median = statistics.median(times[1:])
        print(f"{name:<24} {median * 1e3:7.0f} ms   {median / baseline:5.1f} × a bare interpreter")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
