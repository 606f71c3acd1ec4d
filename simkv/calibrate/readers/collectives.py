"""Reader of the communication tables of ``aiconfigurator-core``: vLLM's custom all-reduce and NCCL.

``message_size`` counts elements of the dtype in both. Rows of several measurements of one point stay: fits take
medians. Source: PyPI package aiconfigurator-core 0.12.0 or aiconfigurator 0.10.0 (both Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from simkv.calibrate.measurements import Measurements, validate
from simkv.calibrate.readers.aiconfigurator import SOURCE
from simkv.errors import TraceError

if TYPE_CHECKING:
    import pandas as pd

_OPS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
_DTYPES = {
    "half": ("float16", 2),
    "float16": ("float16", 2),
    "bfloat16": ("bfloat16", 2),
    "int8": ("int8", 1),
}
_BACKENDS = {"vllm_graph": "custom_graph", "vllm_eager": "custom_eager"}


def read_custom_all_reduce(path: Path, device: str, package: str = SOURCE) -> Measurements:
    """Read a ``comm/vllm/<version>/custom_allreduce_perf.parquet`` measured on `device`."""
    columns = ("version", "op_name", "allreduce_dtype", "num_gpus", "message_size", "latency", "backend")
    rows = _read(path, columns)
    _check(path, rows, "backend", _BACKENDS)
    frame = _in_schema(path, rows, "allreduce_dtype", device, package)
    return validate(frame.assign(backend=rows["backend"].map(_BACKENDS), engine="vllm"), str(path))


def read_nccl(path: Path, device: str, package: str = SOURCE) -> Measurements:
    """Read a ``comm/nccl/<version>/nccl_perf.parquet`` measured on `device`; the engine is NCCL itself.

    The version is that of the folder: the column of some tables names another one.
    """
    rows = _read(path, ("op_name", "nccl_dtype", "num_gpus", "message_size", "latency"))
    frame = _in_schema(path, rows.assign(version=path.parent.name), "nccl_dtype", device, package)
    return validate(frame.assign(backend="nccl", engine="nccl"), str(path))


def _in_schema(path: Path, rows: pd.DataFrame, dtype: str, device: str, package: str) -> pd.DataFrame:
    import pandas as pd

    _check(path, rows, "op_name", _OPS)
    _check(path, rows, dtype, _DTYPES)
    return pd.DataFrame(
        {
            "op": rows["op_name"].map(_OPS),
            "world_size": rows["num_gpus"],
            "num_bytes": rows["message_size"] * rows[dtype].map(lambda name: _DTYPES[name][1]),
            "dtype": rows[dtype].map(lambda name: _DTYPES[name][0]),
            "seconds": rows["latency"] * 1e-3,
            "device": device,
            "engine_version": rows["version"],
            "source": f"{package.split(maxsplit=1)[0]} {'/'.join(path.parts[-5:])}",
        }
    )


def _read(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    import pandas as pd

    try:
        rows = pd.read_parquet(path)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception as error:  # what pyarrow raises on broken files has no common base
        raise TraceError(f"{path}: wanted a table in Parquet: {error}") from None
    missing = [f"{path}: column {column!r} is missing" for column in columns if column not in rows]
    if missing:
        raise TraceError(missing)
    return rows


def _check(path: Path, rows: pd.DataFrame, column: str, known: Mapping[str, object]) -> None:
    unknown = sorted({str(value) for value in rows[column]} - set(known))
    if unknown:
        raise TraceError(f"{path}: {column}: wanted one of {', '.join(known)}, got {', '.join(unknown)}")
