"""Calibrated kernels: ``calibration: NAME`` of a hardware profile → `CalibrationSpec`, and its measured points.

NAME is a shipped calibration (``simkv/data/kernels/NAME.yaml``) or a ``.yaml`` file, looked up beside the
profile. The points are read only for a run: `simkv plan` needs none.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from simkv.errors import ScenarioError, did_you_mean
from simkv.load.document import read_document
from simkv.load.faults import faults_of
from simkv.load.shipped import shipped_dir
from simkv.spec.calibration import CalibrationSpec
from simkv.spec.hardware import HardwareSpec

if TYPE_CHECKING:
    import numpy as np

_SUFFIXES = (".yaml", ".yml")
_SHAPES = (
    *("m", "n", "k", "batch", "chunk", "context", "decode_context", "num_long", "skew", "heads", "kv_heads"),
    *("tokens", "width", "world_size", "num_bytes"),
)
_COLUMNS = (*_SHAPES, "op", "dtype", "kv_dtype", "backend", "kernel", "seconds")


def shipped_calibrations() -> list[str]:
    """Return the names of the shipped calibrations, sorted."""
    return sorted(path.stem for path in shipped_dir("kernels").glob("*.yaml"))


def find_calibration(name: str, directory: Path, place: str = "calibration") -> CalibrationSpec:
    """Return a shipped calibration by name, or the one in a file, relative to `directory`."""
    if name.endswith(_SUFFIXES):
        return read_calibration(directory / name)
    known = shipped_calibrations()
    if name not in known:
        hint = did_you_mean(name, known)
        raise ScenarioError(f"{place}: no {name!r}{hint}; known: {', '.join(known)}, or a .yaml file")
    return read_calibration(shipped_dir("kernels") / f"{name}.yaml").replace(points=name)


def read_calibration(path: Path) -> CalibrationSpec:
    """Read a file that `simkv calibrate` wrote; raise ScenarioError with a line a fault."""
    document = read_document(path)
    try:
        spec = CalibrationSpec.model_validate(document.value)
    except ValidationError as error:
        raise ScenarioError(faults_of(error, CalibrationSpec, (), document.where)) from None
    return spec if spec.points is None else spec.replace(points=str(path.parent / spec.points))


def calibration_text(calibration: CalibrationSpec, comment: str) -> str:
    """Return a calibration as the text of its file."""
    fields: dict[str, Any] = calibration.model_dump(exclude_defaults=True)
    lines = "".join(f"# {line}\n" for line in comment.splitlines())
    return lines + yaml.safe_dump(fields, sort_keys=False, width=110)


def kernel_points(hardware: HardwareSpec) -> dict[str, dict[str, np.ndarray]]:
    """Return the measured points of a profile by group: a column for each size, and ``seconds``.

    Empty for a profile without a calibration of its own. Groups are named as in `simkv.calibrate`.
    """
    calibration = hardware.calibration
    if calibration is None or calibration.points is None or calibration.is_transferred:
        return {}
    name = calibration.points
    path = Path(name) if name.endswith(".parquet") else shipped_dir("kernels") / f"{name}.parquet"
    return read_points(path)


def read_points(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """Read a reduced table of `simkv calibrate`, group by group."""
    import numpy as np
    import pyarrow
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as opened:
            file = pq.ParquetFile(opened)  # `read_table` does the same after half a second of imports
            table = file.read(columns=[name for name in file.schema_arrow.names if name in _COLUMNS])
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise ScenarioError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if missing := {"op", "seconds"} - set(table.column_names):
        raise ScenarioError(f"{path}: wanted points of calibrate, got no {' and no '.join(sorted(missing))}")
    columns = {name: np.array(table[name].to_numpy(zero_copy_only=False)) for name in table.column_names}
    op, nothing = columns["op"], np.full(len(columns["op"]), None)
    dtype, kv_dtype, backend, kernel = (
        columns.get(name, nothing) for name in ("dtype", "kv_dtype", "backend", "kernel")
    )
    variant = np.where(op == "gemm", dtype, np.where(backend != None, backend, kv_dtype))  # noqa: E711
    variant = np.where(op == "elementwise", kernel, variant)
    variant = np.where((op == "lm_head") | (op == "sampler"), "", variant)
    points: dict[str, dict[str, np.ndarray]] = {}
    for kind, which in sorted({(str(a), str(b)) for a, b in zip(op, variant, strict=True)}):
        own = (op == kind) & (variant == which)
        sizes = {name: columns[name][own].astype(float) for name in (*_SHAPES, "seconds") if name in columns}
        group = {name: v for name, v in sizes.items() if not np.isnan(v).any()}
        points |= _prefills(which, group) if kind == "prefill_attention" else {_name(kind, which): group}
    return points


def _name(op: str, variant: str) -> str:
    """The group of an op and its dtype, backend or kernel, as `simkv.calibrate` names it."""
    names = {"skewed_attention": f"uneven_decode/{variant}", "lm_head": "head", "sampler": "sampler"}
    return names.get(op, f"{op}/{variant}")


def _prefills(variant: str, points: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """Whole prompts, and single chunks if some are over a prefix: those are another family."""
    whole, single = points["context"] == 0, points["batch"] == 1
    groups = {f"prefill_attention/{variant}": whole}
    if not whole.all():
        groups[f"chunked_attention/{variant}"] = single
    return {
        group: {name: values[own] for name, values in points.items()}
        for group, own in groups.items()
        if own.any()
    }
