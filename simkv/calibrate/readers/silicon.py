"""Everything of ``aiconfigurator-core`` that a calibration uses for one system: kernels and collectives."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from simkv.calibrate.measurements import Measurements, validate
from simkv.calibrate.readers.aiconfigurator import find_root, read_aiconfigurator
from simkv.calibrate.readers.collectives import read_custom_all_reduce, read_nccl

_DATA = Path("systems") / "data"
_NUM_RANKS = (2, 4, 8)  # of one node


class Tables(NamedTuple):
    """Kernels of one GPU, and collectives between GPUs of one node; these may be empty."""

    kernels: Measurements
    collectives: Measurements


def read_silicon(system: str, version: str, engine: str = "vllm", root: Path | None = None) -> Tables:
    """Read one system and engine version; `root` is the package's folder, None = where it is installed.

    Collectives are those of the same version or the newest before it, and of the newest NCCL.
    """
    root = root or find_root()
    kernels = read_aiconfigurator(system, version, engine, root)
    comm = root / _DATA / system / "comm"
    found = []
    if file := _newest(comm / engine, "custom_allreduce_perf.parquet", version):
        found.append(read_custom_all_reduce(file, system))
    if file := _newest(comm / "nccl", "nccl_perf.parquet"):
        nccl = read_nccl(file, system).frame
        found.append(Measurements(nccl[nccl["dtype"] == "float16"]))
    return Tables(kernels, _joined([table.frame for table in found], f"collectives of {system}"))


def split_tables(measurements: Measurements) -> Tables:
    """Divide one table into kernels and collectives."""
    frame = measurements.frame
    between_gpus = frame["world_size"].notna()
    return Tables(Measurements(frame[~between_gpus]), Measurements(frame[between_gpus]))


def _joined(frames: list, source: str) -> Measurements:  # type: ignore[type-arg]
    import pandas as pd

    if not frames:
        return validate(pd.DataFrame(columns=["op", "seconds", "device"]), source)
    frame = pd.concat([frame.dropna(axis="columns", how="all") for frame in frames], ignore_index=True)
    return validate(frame[frame["world_size"].isin(_NUM_RANKS)].reset_index(drop=True), source)


def _newest(folder: Path, name: str, version: str | None = None) -> Path | None:
    """The file in the folder of `version`, or of the newest one up to it."""
    limit = (float("inf"),) if version is None else _numbers(version)
    files = [file for file in folder.glob(f"*/{name}") if _numbers(file.parent.name) <= limit]
    return max(files, key=lambda file: _numbers(file.parent.name), default=None)


def _numbers(version: str) -> tuple[float, ...]:
    return tuple(float(part) if part.isdigit() else 0.0 for part in version.split("."))
