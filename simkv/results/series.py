"""The log as functions of time: what the engines held, and what each pipeline stage did.

Takes columns of integers, as a `ColumnLog` or a data frame holds them, so that a loaded run and a fresh one
are drawn by the same code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simkv.results.log import ColumnLog
from simkv.units import NS_PER_S

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Columns = Mapping[str, Ints]

BUSY_PARTS = ("compute", "memory", "comm", "host")
STAGE_PARTS = (*BUSY_PARTS, "idle")


def arrays(log: ColumnLog) -> dict[str, Ints]:
    """Return the columns of a log as arrays."""
    return {name: np.array(column, dtype=np.int64) for name, column in log.columns().items()}


@dataclass(frozen=True)
class StateSeries:
    """Step functions of time, summed over replicas: value i holds from times_ns[i] until times_ns[i + 1]."""

    times_ns: Ints
    num_running: Ints
    num_waiting: Ints
    num_used_blocks: Ints

    def mean(self, values: Ints, start_ns: int, end_ns: int) -> float:
        """Return the time-weighted mean of one of the series between two times; 0 without any time."""
        if end_ns <= start_ns or not len(values):
            return 0.0
        edges = np.clip(np.append(self.times_ns, end_ns), start_ns, end_ns)
        # Python's integers: blocks times nanoseconds of a long run do not fit 64 bits
        pairs = zip(values.tolist(), np.diff(edges).tolist(), strict=True)
        total: int = sum(value * duration_ns for value, duration_ns in pairs)
        return total / (end_ns - start_ns)

    def binned_mean(self, values: Ints, edges_ns: Floats) -> Floats:
        """Return the time-weighted mean of one of the series in each bin; 0 outside the series."""
        if not len(values):
            return np.zeros(len(edges_ns) - 1)
        area = np.concatenate(([0.0], np.cumsum(values[:-1] * np.diff(self.times_ns).astype(float))))
        return np.diff(np.interp(edges_ns, self.times_ns, area)) / np.diff(edges_ns)


def state_series(steps: Columns, num_gpu_blocks: int) -> StateSeries:
    """Return how many requests ran and waited and how many blocks were held, over all replicas.

    What a step was scheduled with holds until the next one is; between the end of a replica's last step in
    flight and its next step there was nothing to do. The null block counts neither as used nor as usable.
    """
    times, states = [], []
    for replica in np.unique(steps["replica"]):
        of_replica = steps["replica"] == replica
        scheduled_ns = steps["scheduled_ns"][of_replica]
        busy_until_ns = np.maximum.accumulate(steps["end_ns"][of_replica])
        state = np.stack(
            (
                steps["num_running"][of_replica],
                steps["num_waiting"][of_replica],
                num_gpu_blocks - 1 - steps["num_free_blocks"][of_replica],
            )
        )
        is_idle = np.append(scheduled_ns[1:] > busy_until_ns[:-1], True)
        after = np.flatnonzero(is_idle) + 1
        times.append(np.insert(scheduled_ns, after, busy_until_ns[is_idle]))
        states.append(np.diff(np.insert(state, after, 0, axis=1), axis=1, prepend=0))
    if not times:
        empty = np.zeros(0, dtype=np.int64)
        return StateSeries(empty, empty, empty, empty)
    times_ns, changes = np.concatenate(times), np.concatenate(states, axis=1)
    order = np.argsort(times_ns, kind="stable")
    times_ns, totals = times_ns[order], np.cumsum(changes[:, order], axis=1)
    is_last = np.append(times_ns[1:] > times_ns[:-1], True)  # of several changes at one time
    return StateSeries(times_ns[is_last], *totals[:, is_last])


def stage_parts(
    stages: Columns, replica_of_step: Ints, edges_ns: Floats, num_stages: int, num_replicas: int
) -> dict[str, Floats]:
    """Return what each pipeline stage did in each bin of time: {part: seconds[stage, bin]}.

    The parts are `STAGE_PARTS` and sum to the width of the bin. A step's parts are spread evenly over it, and
    replicas are averaged.
    """
    widths_ns = np.diff(edges_ns)
    parts = {part: np.zeros((num_stages, len(widths_ns))) for part in STAGE_PARTS}
    replica = replica_of_step[stages["step"]]
    for stage in range(num_stages):
        for index in range(num_replicas):
            rows = np.flatnonzero((stages["stage"] == stage) & (replica == index))
            if not len(rows):
                continue
            start_ns, end_ns = stages["start_ns"][rows], stages["end_ns"][rows]
            for part in BUSY_PARTS:
                parts[part][stage] += _per_bin(start_ns, end_ns, stages[f"{part}_ns"][rows], edges_ns)
    for part in BUSY_PARTS:
        parts[part] /= num_replicas
    worked_ns = np.sum([parts[part] for part in BUSY_PARTS], axis=0)
    parts["idle"] = np.maximum(widths_ns - worked_ns, 0.0)
    return {part: nanoseconds / NS_PER_S for part, nanoseconds in parts.items()}


def _per_bin(start_ns: Ints, end_ns: Ints, amount_ns: Ints, edges_ns: Floats) -> Floats:
    """Spread amounts over their intervals, which follow each other, and sum them in bins."""
    total = np.cumsum(amount_ns)
    times = np.stack((start_ns, end_ns), axis=1).ravel()
    totals = np.stack((total - amount_ns, total), axis=1).ravel()
    return np.diff(np.interp(edges_ns, times, totals))


def busy_ns(stages: Columns, num_stages: int, start_ns: int, end_ns: int) -> list[int]:
    """Return for each pipeline stage how long it was busy between two times, summed over replicas."""
    durations = np.clip(stages["end_ns"], start_ns, end_ns) - np.clip(stages["start_ns"], start_ns, end_ns)
    return [int(durations[stages["stage"] == stage].sum()) for stage in range(num_stages)]
