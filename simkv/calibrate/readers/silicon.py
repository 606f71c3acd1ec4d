"""Everything of ``aiconfigurator-core`` that a calibration uses for one system: kernels and collectives."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from simkv.calibrate.measurements import Measurements, validate
from simkv.calibrate.readers.aiconfigurator import (
    DATA,
    PACKAGE,
    find_root,
    is_older,
    read_aiconfigurator,
    source_of,
)
from simkv.calibrate.readers.collectives import read_custom_all_reduce, read_nccl

_NUM_RANKS = (2, 4, 8)  # of one node
_CUSTOM = "custom_allreduce_perf.parquet"


class Tables(NamedTuple):
    """Kernels of one GPU, and collectives between GPUs of one node; these may be empty."""

    kernels: Measurements
    collectives: Measurements

    def joined(self) -> Measurements:
        """Both as one table."""
        import pandas as pd

        parts = [table.frame for table in self if not table.frame.empty]
        if not parts:
            return self.kernels
        return Measurements(pd.concat(parts, ignore_index=True))


def read_silicon(system: str, version: str, engine: str = "vllm", root: Path | None = None) -> Tables:
    """Read one system and engine version; `root` is the package's folder, None = where it is installed.

    Collectives are those of the same version or the newest before it, and of the newest NCCL; beside the folder
    of an older package those of the installed one, which measured them anew: an H100 node of the older took up
    to twice as long from 256 KiB over eight GPUs as every other. Some versions have the all-reduce of vLLM alone.
    """
    root = root or find_root()
    kernels = (
        _nothing()
        if _has_only_collectives(root, system, version, engine)
        else (read_aiconfigurator(system, version, engine, root))
    )
    if is_older(root, system) and find_spec(PACKAGE):
        root = find_root()
    comm = root / DATA / system if is_older(root, system) else root / DATA / system / "comm"
    package, found = source_of(root, system), []
    file = _newest(comm / engine, _CUSTOM, version) if engine == "vllm" else None
    if file is not None:
        found.append(read_custom_all_reduce(file, system, package))
    if file := _newest(comm / "nccl", "nccl_perf.parquet"):
        nccl = read_nccl(file, system, package).frame
        found.append(Measurements(nccl[nccl["dtype"] == "float16"]))
    return Tables(kernels, _joined([table.frame for table in found], f"collectives of {system}"))


def split_tables(measurements: Measurements) -> Tables:
    """Divide one table into kernels and collectives."""
    frame = measurements.frame
    between_gpus = frame["world_size"].notna()
    return Tables(Measurements(frame[~between_gpus]), Measurements(frame[between_gpus]))


def _has_only_collectives(root: Path, system: str, version: str, engine: str) -> bool:
    data = root / DATA / system
    if is_older(root, system) or any(data.glob(f"*/{engine}/{version}/g*_perf.parquet")):
        return False
    return engine == "vllm" and (data / "comm" / engine / version / _CUSTOM).exists()


def _nothing() -> Measurements:
    import pandas as pd

    return validate(pd.DataFrame(columns=["op", "seconds", "device"]), "nothing")


def _joined(frames: list, source: str) -> Measurements:  # type: ignore[type-arg]
    import pandas as pd

    if not frames:
        return _nothing()
    frame = pd.concat([frame.dropna(axis="columns", how="all") for frame in frames], ignore_index=True)
    return validate(frame[frame["world_size"].isin(_NUM_RANKS)].reset_index(drop=True), source)


def _newest(folder: Path, name: str, version: str | None = None) -> Path | None:
    """The file in the folder of `version`, or of the newest one up to it."""
    limit = (float("inf"),) if version is None else _numbers(version)
    files = [file for file in folder.glob(f"*/{name}") if _numbers(file.parent.name) <= limit]
    return max(files, key=lambda file: _numbers(file.parent.name), default=None)


def _numbers(version: str) -> tuple[float, ...]:
    return tuple(float(part) if part.isdigit() else 0.0 for part in version.split("."))
