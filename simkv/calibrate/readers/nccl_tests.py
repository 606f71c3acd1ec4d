"""Reader of what ``nccl-tests`` prints: ``all_reduce_perf``, ``all_gather_perf``, ``sendrecv_perf`` and so on.

::

    # nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 …
    #  Rank  0 Group  0 Pid 4242 on node device  0 [0x1b] NVIDIA H100 80GB HBM3
    #                                                              out-of-place                       in-place
    #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw
    #        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
            1024           256     float     sum      -1    15.49    0.07    0.12      0    15.31    0.07    0.12

The group is as large as there are ``Rank`` lines; without them, threads × GPUs of the first line. Size is as
printed: what a rank holds before an all-reduce or a reduce-scatter, and after an all-gather. Source of the
format: github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md and src/common.cu.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from simkv.calibrate.measurements import Measurements, validate
from simkv.errors import TraceError

OPS = {
    "all_reduce_perf": "all_reduce",
    "all_gather_perf": "all_gather",
    "reduce_scatter_perf": "reduce_scatter",
    "alltoall_perf": "all_to_all",
    "sendrecv_perf": "send_recv",
}
_DTYPES = {"half": "float16", "bfloat16": "bfloat16", "float": "float32", "int8": "int8", "uint8": "uint8"}
_COLUMNS = ("size", "count", "type", "redop", "root")
_TIMES = {"out-of-place": 0, "in-place": 1}
_RANK = re.compile(r"#\s+Rank\s+\d+\b.*\bdevice\s+\S+\s+\[\S+\]\s*(?P<device>.*\S)?")
_LAYOUT = re.compile(r"#\s*nThread\s+(?P<threads>\d+)\s+nGpus\s+(?P<gpus>\d+)")
_VERSION = re.compile(r"NCCL version (?P<version>[\d.]+\d)")


def read_nccl_tests(
    path: Path,
    op: str | None = None,
    device: str | None = None,
    placement: Literal["out-of-place", "in-place"] = "out-of-place",
) -> Measurements:
    """Read a saved output; `op` and `device` default to what the text itself names.

    Raises TraceError, with file and line, where the text is not such an output or a time is not a number.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise TraceError(f"{path}: cannot be read as text: {error}") from None
    op = op or _named_op(path, lines)
    if op not in OPS.values():
        raise TraceError(f"{path}: op: wanted one of {', '.join(OPS.values())}, got {op!r}")
    world_size, named_device = _group(path, lines)
    device = device or named_device
    if device is None:
        raise TraceError(f"{path}: no line names the GPU; give the device")
    rows = _rows(path, lines, _TIMES[placement])
    version = next((match["version"] for line in lines if (match := _VERSION.search(line))), None)
    import pandas as pd

    frame = pd.DataFrame(rows, columns=["num_bytes", "dtype", "seconds"])
    frame = frame[frame["num_bytes"] > 0].assign(
        op=op,
        world_size=world_size,
        backend="nccl",
        device=device,
        engine="nccl",
        engine_version=version,
        source=f"nccl-tests {path.name} {placement}",
    )
    return validate(frame, str(path))


def _named_op(path: Path, lines: list[str]) -> str:
    """The collective, from the program's name in the text or the file's name."""
    for text in (path.name, *lines):
        for program, op in OPS.items():
            if program in text:
                return op
    for op in OPS.values():
        if op.replace("_", "") in path.name.replace("_", ""):
            return op
    raise TraceError(
        f"{path}: neither name nor text says which collective; give op: {', '.join(OPS.values())}"
    )


def _group(path: Path, lines: list[str]) -> tuple[int, str | None]:
    """The number of ranks and the GPU's name."""
    ranks = [match for line in lines if (match := _RANK.match(line))]
    if ranks:
        return len(ranks), ranks[0]["device"]
    for line in lines:
        if match := _LAYOUT.match(line):
            return int(match["threads"]) * int(match["gpus"]), None
    raise TraceError(
        f"{path}: wanted output of nccl-tests, got no '# Rank' and no '# nThread … nGpus …' line"
    )


def _rows(path: Path, lines: list[str], placement: int) -> list[tuple[int, str, float]]:
    rows: list[tuple[int, str, float]] = []
    faults: list[str] = []
    # the header names the columns before the times; each time is followed by algbw, busbw and, mostly, #wrong
    first, step = len(_COLUMNS), 4
    for number, line in enumerate(lines, 1):
        words = line.split()
        if words[:2] == ["#", "size"]:
            if "time" not in words:
                faults.append(f"{path}:{number}: no column 'time' in the header")
                break
            first = words.index("time") - 1
            step = words[first + 2 :].index("time") + 1 if words.count("time") > 1 else 4
        elif words and words[0].isdigit():
            at = first + placement * step
            try:
                num_bytes, dtype, time_us = int(words[0]), words[2], float(words[at])
                if not time_us > 0:
                    raise ValueError
            except (IndexError, ValueError):
                got = words[at] if at < len(words) else "nothing"
                faults.append(f"{path}:{number}: time: wanted microseconds in column {at + 1}, got {got!r}")
                continue
            rows.append((num_bytes, _DTYPES.get(dtype, dtype), time_us * 1e-6))
    if faults:
        raise TraceError(faults[:20])
    if not rows:
        raise TraceError(f"{path}: wanted output of nccl-tests, got no rows of numbers")
    return rows
