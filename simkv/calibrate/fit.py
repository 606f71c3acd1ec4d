"""`Calibration`: measured kernels of one GPU and engine version in, parameters and residuals out.

The verbs are scikit-learn's; what is learnt ends in an underscore. A table of one's own comes from `simkv collect`
or from a reader; here it is what the shipped calibration of an A100 was made of, its collectives only:

    >>> from simkv.calibrate.fit import Calibration
    >>> from simkv.calibrate.measurements import Measurements, held_out
    >>> from simkv.calibrate.tables import shipped_points
    >>> from simkv.load.hardware import find_hardware
    >>> points = shipped_points("a100_sxm").frame
    >>> table = Measurements(points[points["op"] == "all_reduce"])

    >>> calibration = Calibration().fit(table, split=held_out)  # the profile that the table names as its device
    >>> sorted(calibration.parameters_)
    ['all_reduce/custom', 'all_reduce/nccl']
    >>> calibration.predict({"world_size": [8], "num_bytes": [20_000]}, "all_reduce_nccl").round(6)
    array([2.3e-05])
    >>> calibration.score(table).row("all_reduce_nccl", "physical").num_points  # of those that were held out
    16

`apply` puts it into a profile, whose scenarios then run on it:

    >>> hardware = calibration.apply(find_hardware("a100_sxm"))
    >>> hardware.calibration.families["all_reduce/nccl"].num_points
    47
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from simkv.calibrate.collectives import GROUP_NAMES, CollectiveCalibration
from simkv.calibrate.families import GROUPS
from simkv.calibrate.fits.pointwise import fit_group, seconds_of, served_from_cache
from simkv.calibrate.group import Gpu, Group
from simkv.calibrate.measurements import Measurements
from simkv.calibrate.readers.silicon import split_tables
from simkv.cost.message_residual import GroupResidual
from simkv.cost.residual import Residual
from simkv.errors import TraceError
from simkv.load.hardware import find_hardware
from simkv.spec.calibration import CalibrationSpec
from simkv.spec.hardware import HardwareSpec

if TYPE_CHECKING:
    import pandas as pd

    from simkv.calibrate.report import ErrorTable

Split: TypeAlias = "Callable[[pd.DataFrame, str], pd.Series]"
Shapes: TypeAlias = "pd.DataFrame | Mapping[str, object]"


class Calibration:
    """Fits every group of `groups` that a table has, and its collectives.

    hardware   the profile that was measured, whose peak, bandwidth and SMs the forms take; its name is enough.
               None = the shipped profile that the table names as its device

    After `fit`, by name: `parameters_`, `num_rows_` (points that a fit looked at), `residuals_`. Groups of
    collectives have names of their own (``all_reduce_custom_graph``) and may share parameters
    (``all_reduce/custom``): see `simkv.calibrate.collectives`.
    """

    def __init__(self, hardware: HardwareSpec | str | None = None, groups: tuple[Group, ...] = GROUPS):
        self._hardware = (
            find_hardware(hardware, with_calibration=False) if isinstance(hardware, str) else hardware
        )
        self.groups = {group.name: group for group in groups}
        self.split: Split | None = None
        self.measurements_: Measurements | None = None
        self.parameters_: dict[str, Any] = {}
        self.residuals_: dict[str, Residual | GroupResidual] = {}
        self.num_rows_: dict[str, int] = {}

    @property
    def hardware(self) -> HardwareSpec:
        """The profile that was measured."""
        if self._hardware is None:
            raise TraceError("Calibration: wanted a hardware profile, or `fit` with a table that names one")
        return self._hardware

    def fit(self, measurements: Measurements, split: Split | None = None) -> Calibration:
        """Fit parameters and residuals; rows for which `split(rows, op)` is True are not looked at.

        Raises TraceError if the table mixes devices or engine versions, or has none of the groups.
        """
        self._begin(measurements, split)
        kernels, between = split_tables(measurements)
        for name, group in self.groups.items():
            rows = self.rows(kernels, name)
            if rows.empty:
                continue
            if split is not None:
                rows = rows[~split(rows, group.op)]
            self.parameters_[name] = fit_group(group, self.gpu(name), rows)
            self.residuals_[name] = self.residual(name, rows)
            self.num_rows_[name] = len(rows)
        self._take_over(self.collectives_.fit(between, split))
        if not self.parameters_:
            wanted = ", ".join((*self.groups, "collectives"))
            faults = [f"measurements: wanted rows of one of {wanted}; got none, or too few"]
            raise TraceError(faults + self.collectives_.notes_)
        return self

    @classmethod
    def of(cls, spec: CalibrationSpec, points: Measurements, hardware: HardwareSpec) -> Calibration:
        """Return one that was fitted before: its parameters, and residuals of its measured points."""
        from simkv.calibrate.profile import parameters_of

        made = cls(hardware)
        made._begin(points, None)
        kernels, between = split_tables(points)
        known = parameters_of(spec)
        for name in [name for name in made.groups if name in known]:
            rows = made.rows(kernels, name)
            made.parameters_[name] = known[name]
            if not rows.empty:
                made.residuals_[name] = made.residual(name, rows)
        octaves = {name: fit.residual_octaves for name, fit in spec.families.items()}
        made._take_over(made.collectives_.take(known, octaves, between))
        return made

    def gpu(self, name: str) -> Gpu:
        """The figures of the GPU that a group's form takes."""
        gpu, dtype = self.hardware.gpu, self.groups[name].dtype
        if dtype not in gpu.peak_flops_per_s:
            raise TraceError(f"{name}: {self.hardware.name} has no peak_flops_per_s in {dtype}")
        peak = gpu.peak_flops_per_s[dtype].value
        return Gpu(peak, gpu.hbm_bandwidth_bytes_per_s.value, int(gpu.num_sms.value))

    def rows(self, measurements: Measurements, name: str) -> pd.DataFrame:
        """Return a group's usable rows: shape columns and seconds, one row a point."""
        rows = self.groups[name].rows(measurements)
        if rows.empty or self.groups[name].op != "gemm":
            return rows
        return rows[~served_from_cache(rows, self.gpu(name), 1.0 if name == "gemm/fp8" else 2.0)]

    def physical(self, shapes: Shapes, name: str) -> np.ndarray:
        """Seconds by the form alone, for a table with a group's shape columns."""
        frame = _frame(shapes)
        if name in GROUP_NAMES:
            return self.collectives_.physical(frame, name)
        return seconds_of(self.groups[name], self.gpu(name), self.parameters_[name], frame)

    def residual(self, name: str, rows: pd.DataFrame) -> Residual:
        """Measured over physical time of `rows`, as a grid; needs the group's parameters."""
        group = self.groups[name]
        ratios = rows["seconds"].to_numpy(dtype=float) / self.physical(rows, name)
        return Residual.from_points(group.axes, group.shape(rows), ratios)

    def ratios(self, shapes: Shapes, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The residual's ratios and marks (indices into `simkv.cost.residual.PROVENANCES`)."""
        frame = _frame(shapes)
        axes = ("world_size", "num_bytes") if name in GROUP_NAMES else self.groups[name].axes
        return self.residuals_[name].predict(*(frame[axis].to_numpy(dtype=float) for axis in axes))

    def predict(self, shapes: Shapes, name: str, with_residual: bool = True) -> np.ndarray:
        """Seconds for a table (or a dict of columns) with a group's shape columns."""
        frame = _frame(shapes)
        seconds = self.physical(frame, name)
        return seconds * self.ratios(frame, name)[0] if with_residual else seconds

    def score(self, measurements: Measurements) -> ErrorTable:
        """Errors over the points that `fit` did not look at (over all if it looked at all)."""
        from simkv.calibrate.report import error_table

        return error_table(self, measurements)

    def apply(self, profile: HardwareSpec, points: Path | str | None = None) -> HardwareSpec:
        """Return `profile` with this calibration, for `load_scenario` and `simulate`.

        points   a Parquet file to write the measured points to, which runs read for the residuals; without one they
                 run on the forms alone

        A profile of another GPU takes over forms, but no residuals and no all-reduce.
        """
        from simkv.calibrate.profile import applied

        return applied(self, profile, None if points is None else Path(points))

    def _begin(self, measurements: Measurements, split: Split | None) -> None:
        _refuse_mixed(split_tables(measurements).kernels)
        if self._hardware is None:
            self._hardware = _named_by(measurements)
        self.split, self.measurements_ = split, measurements
        self.parameters_, self.residuals_, self.num_rows_ = {}, {}, {}
        self.collectives_ = CollectiveCalibration(has_switch=self.hardware.node.fabric == "nvswitch")

    def _take_over(self, collectives: CollectiveCalibration) -> None:
        self.parameters_ |= collectives.parameters_
        self.residuals_ |= collectives.residuals_
        self.num_rows_ |= collectives.num_rows_


def _frame(shapes: Shapes) -> pd.DataFrame:
    import pandas as pd

    return shapes if isinstance(shapes, pd.DataFrame) else pd.DataFrame(dict(shapes))


def _named_by(measurements: Measurements) -> HardwareSpec:
    """Return the shipped profile that a table names as its device."""
    from simkv.load.hardware import shipped_hardware

    devices = [str(device) for device in measurements.frame["device"].dropna().unique()]
    if len(devices) != 1 or devices[0] not in shipped_hardware():
        raise TraceError(
            f"measurements: device: wanted one shipped profile ({', '.join(shipped_hardware())}), got "
            f"{', '.join(devices) or 'none'}; say which: Calibration(hardware)"
        )
    return find_hardware(devices[0], with_calibration=False)


def _refuse_mixed(measurements: Measurements) -> None:
    frame = measurements.frame
    for column in ("device", "engine", "engine_version"):
        found = [str(value) for value in frame[column].dropna().unique()]
        if len(found) > 1:
            raise TraceError(
                f"measurements: wanted one {column}, got {', '.join(found)}; filter the table first"
            )
