"""Reader of Vidur's network profiles: all-reduce between GPUs, and the hand-off from one to another.

Columns ``time_stats.<collective>.median`` (ms), ``size`` (bytes), ``num_workers`` and ``devices_per_node``. A
hand-off with one device a node crosses nodes: backend ``nccl_network``; all others are ``nccl``. Source: Vidur
(MIT), data/profiling/network. Its pair profiles of A100 and H100 hand-offs are the same file twice.
"""

from __future__ import annotations

from pathlib import Path

from simkv.calibrate.measurements import Measurements, validate
from simkv.calibrate.readers.tables import read_csv
from simkv.errors import TraceError

_COLLECTIVES = ("all_reduce", "send_recv")


def read_vidur(path: Path, device: str) -> Measurements:
    """Read one network profile measured on `device`; raise TraceError if it is none."""
    names = read_csv(path, ("collective",), text=("collective",))["collective"].map(str)
    ops = sorted(set(names))
    if len(ops) != 1 or ops[0] not in _COLLECTIVES:
        raise TraceError(
            f"{path}: collective: wanted one of {', '.join(_COLLECTIVES)}, got {', '.join(ops) or 'no rows'}"
        )
    op = ops[0]
    time = f"time_stats.{op}.median"
    rows = read_csv(path, (time, "num_workers", "size", "devices_per_node"))
    crosses = rows["devices_per_node"] < rows["num_workers"]
    frame = rows.rename(columns={"num_workers": "world_size", "size": "num_bytes"})
    frame["seconds"] = frame.pop(time) * 1e-3
    frame["backend"] = crosses.map({True: "nccl_network", False: "nccl"})
    frame = frame.drop(columns="devices_per_node")
    frame["op"], frame["device"], frame["source"] = op, device, f"Vidur profile {path.name}"
    return validate(frame[frame["seconds"] > 0], str(path))
