"""``simkv validate kernels``: how far calibrated kernels are from measured points that no fit has seen.

Two ways to hold out: three points in ten, drawn by their shapes (`held_out`), and whole weight matrices of
matrix products (`held_out_weights`), because real models sit off a table's grid of n and k. A third question is
how a calibration does on the kernels of another engine version: `transfer_kernels`.

The points of a shipped calibration are shipped with it; other versions are read from the installed tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from simkv.calibrate import layer_profile
from simkv.calibrate.families import GROUPS
from simkv.calibrate.fit import Calibration
from simkv.calibrate.layer_profile import has_layers
from simkv.calibrate.measurements import Measurements, held_out, held_out_weights, read_measurements
from simkv.calibrate.profile import held_out_errors, reduced
from simkv.calibrate.readers.silicon import read_silicon
from simkv.calibrate.report import ErrorTable
from simkv.calibrate.tables import points_file, shipped_points
from simkv.errors import InputError, TraceError
from simkv.load.calibration import find_calibration, shipped_calibrations
from simkv.load.hardware import find_hardware, shipped_hardware
from simkv.spec.calibration import CalibrationSpec
from simkv.spec.hardware import HardwareSpec

if TYPE_CHECKING:
    import pandas as pd

_ENGINE = "vllm"
_MARKS = ("measured", "interpolated", "extrapolated")


class KernelErrors(NamedTuple):
    """Errors over the points that were compared, and over products whose whole weight matrix was held out."""

    title: str
    points: ErrorTable
    weights: ErrorTable | None = None

    def as_dict(self, with_points: bool = False) -> dict[str, Any]:
        """Plain data, for JSON; `rows` has every point that was compared if asked for."""
        return {
            "title": self.title,
            "rows": _points_of(self.points) if with_points else [],
            "groups": _groups_of(self.points),
            "held_out_weights": [] if self.weights is None else _groups_of(self.weights),
        }

    def to_text(self, with_points: bool = False) -> str:
        """The tables, errors in percent."""
        parts = [self.title, self.points.to_text()]
        if self.weights is not None:
            parts += ["", "Held out: three weight matrices (n, k) in ten", self.weights.to_text()]
        if with_points:
            parts += ["", *(f"{name}\n{_marked(frame)}" for name, frame in self.points.points.items())]
        return "\n".join(parts)


def compare_kernels(
    system: str, engine: str | None = None, version: str | None = None, root: Path | None = None
) -> KernelErrors:
    """Fit seven points in ten of `system` and compare with the rest.

    engine, version   None = those of the calibration that is shipped for the system
    root              folder of unpacked tables instead of shipped points, as in `read_silicon`

    Raises InputError or TraceError for a system or version that is neither shipped nor in the tables.
    """
    hardware = find_hardware(system, with_calibration=False)
    points, said = _points(hardware, engine, version, root)
    if has_layers(points):
        errors = layer_profile.held_out_errors(hardware, points, held_out)
        return KernelErrors(f"{said}; held out: three points in ten", errors)
    errors = held_out_errors(hardware, points, held_out)
    gemms = tuple(group for group in GROUPS if group.op == "gemm")
    products = Measurements(points.frame[points.frame["op"] == "gemm"])
    weights = None
    if len(products.frame):
        by_weights = Calibration(hardware, gemms)
        by_weights.fit(products, split=lambda rows, _: held_out_weights(rows))
        weights = by_weights.score(products)
    return KernelErrors(f"{said}; held out: three points in ten", errors, weights)


def transfer_kernels(
    calibration: str,
    system: str,
    engine: str | None = None,
    version: str | None = None,
    root: Path | None = None,
) -> KernelErrors:
    """Compare a calibration (a shipped one, or a ``.yaml`` file) with all points of another version.

    Nothing is fitted. Of groups that both have, all reported points count, but not those of a library in the same
    version, such as NCCL; arguments as for `compare_kernels`.
    """
    hardware = find_hardware(system, with_calibration=False)
    spec = find_calibration(calibration, Path(), "--calibration")
    if spec.device != hardware.name and spec.device in shipped_hardware():
        raise InputError(f"--calibration: wanted one of {hardware.name}, got {calibration} of {spec.device}")
    own = _own_points(spec)
    points, said = _points(hardware, engine, version, root)
    points = _without(points, own)
    errors = Calibration.of(spec, own, hardware).score(points)
    if not errors.rows:
        raise InputError(f"--calibration: {spec.title} has none of the kernels of {said}")
    return KernelErrors(f"{spec.title}, as it is, on all points of {said}", errors)


def _own_points(spec: CalibrationSpec) -> Measurements:
    if spec.points is None:
        raise InputError(f"--calibration: {spec.title} names no points, from which ratios are made")
    return read_measurements(points_file(spec.points))


def _without(points: Measurements, own: Measurements) -> Measurements:
    """Leave out what was measured with the same engine (vLLM, NCCL) in the same version."""
    versions = set(own.frame[["engine", "engine_version"]].itertuples(index=False, name=None))
    found = points.frame[["engine", "engine_version"]].itertuples(index=False, name=None)
    return Measurements(points.frame[[version not in versions for version in found]])


def _points(
    hardware: HardwareSpec, engine: str | None, version: str | None, root: Path | None
) -> tuple[Measurements, str]:
    """Return measured points of a system, one a shape, and what they are: shipped ones, or the tables' own."""
    shipped = _shipped_for(hardware.name)
    own = shipped.get(hardware.name)
    engine = engine or (own and own.engine) or _ENGINE
    if version is None:
        version = own.engine_version if own is not None and own.engine == engine else None
    if version is None:
        raise InputError(f"--version: missing ({_what_is_shipped(hardware.name, shipped)})")
    for name, spec in shipped.items() if root is None else ():
        if (spec.engine, spec.engine_version) == (engine, version):
            return shipped_points(name), spec.title
    try:
        tables = read_silicon(hardware.name, version, engine, root)
    except TraceError as error:
        if root is not None:
            raise
        what = _what_is_shipped(hardware.name, shipped)
        raise TraceError([f"{fault} ({what})" for fault in error.faults]) from None
    return reduced(hardware, tables.joined()), f"{hardware.name} {engine} {version}"


def _shipped_for(system: str) -> dict[str, CalibrationSpec]:
    """The shipped calibrations of a system by name, one a version."""
    found = {
        name: find_calibration(name, Path()) for name in shipped_calibrations() if name.startswith(system)
    }
    return {name: spec for name, spec in found.items() if spec.device == system}


def _what_is_shipped(system: str, shipped: dict[str, CalibrationSpec]) -> str:
    found = [f"{spec.engine} {spec.engine_version}" for spec in shipped.values() if spec.engine_version]
    if found:
        return f"shipped for {system}: {', '.join(found)}"
    devices = {find_calibration(name, Path()).device for name in shipped_calibrations()}
    return f"nothing is shipped for {system}, only for {', '.join(sorted(devices))}"


def _groups_of(table: ErrorTable) -> list[dict[str, Any]]:
    return [
        {
            "group": row.group,
            "metric": row.metric,
            "n": row.num_points,
            "mape": row.mape,
            "median": row.median,
            "p90": row.p90,
        }
        for row in table.rows
        if row.range == "all"
    ]


def _points_of(table: ErrorTable) -> list[dict[str, Any]]:
    return [
        {"group": name, **{str(key): value for key, value in row.items()}, "mark": _MARKS[row["mark"]]}
        for name, frame in table.points.items()
        for row in frame.to_dict("records")
    ]


def _marked(frame: pd.DataFrame) -> str:
    return str(frame.assign(mark=[_MARKS[mark] for mark in frame["mark"]]).to_string(index=False))
