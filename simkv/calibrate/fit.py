"""`Calibration`: measured kernels of one GPU and engine version in, parameters and residuals out.

    >>> calibration = Calibration(hardware)                    # doctest: +SKIP
    >>> calibration.fit(measurements, split=held_out)          # doctest: +SKIP
    >>> calibration.parameters_["gemm/bfloat16"]               # doctest: +SKIP
    >>> calibration.predict(frame, "gemm/bfloat16")            # doctest: +SKIP
    >>> calibration.score(measurements)                        # doctest: +SKIP

Rules on the data, applied before anything is fitted:

- several rows for one point are one: their median;
- a product that beats the datasheet's bandwidth read its weights from the level-2 cache, because the benchmark
  kept them there; a server does not. Memory-bound rows with weights of up to that size are left out (L40S, whose
  cache holds 96 MB; no row of A100, H100 or H200). See `served_from_cache`;
- spikes (`simkv.cost.residual.spikes`) are left out of the residual's grid; the fit of the parameters is robust
  (errors beyond 5 % count linearly) and needs no filter. Errors are counted over all held-out points, spikes too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from simkv.calibrate.families import GROUPS, Gpu, Group
from simkv.calibrate.fits.solve import Unknown, solve
from simkv.calibrate.measurements import Measurements
from simkv.cost.residual import Residual
from simkv.errors import TraceError
from simkv.spec.hardware import HardwareSpec

if TYPE_CHECKING:
    import pandas as pd

    from simkv.calibrate.report import ErrorTable

Split: TypeAlias = "Callable[[pd.DataFrame, str], pd.Series]"

_MAX_ROWS = 5000  # of a fit: more do not move the parameters, and take longer
_SIGNIFICANT_DIGITS = 4  # of a parameter: below the noise, above the differences between machines
_OUTLIER = 0.05
_CACHE_FACTOR = 1.05  # over the datasheet's bandwidth: beyond clock tolerance


class Calibration:
    """Fits every group of `GROUPS` that a table has.

    After `fit`: `parameters_`, `residuals_` and `num_rows_`, by group name.
    """

    def __init__(self, hardware: HardwareSpec, groups: tuple[Group, ...] = GROUPS):
        self.hardware = hardware
        self.groups = {group.name: group for group in groups}
        self.split: Split | None = None
        self.parameters_: dict[str, Any] = {}
        self.residuals_: dict[str, Residual] = {}
        self.num_rows_: dict[str, int] = {}

    def fit(self, measurements: Measurements, split: Split | None = None) -> Calibration:
        """Fit parameters and residuals; rows for which `split(rows, op)` is True are not looked at.

        Raises TraceError if the table mixes devices or engine versions, or has none of the groups.
        """
        _refuse_mixed(measurements)
        self.split = split
        self.parameters_, self.residuals_, self.num_rows_ = {}, {}, {}
        for name, group in self.groups.items():
            rows = self.rows(measurements, name)
            if rows.empty:
                continue
            if split is not None:
                rows = rows[~split(rows, group.op)]
            self.parameters_[name] = fit_group(group, self.gpu(name), rows)
            self.residuals_[name] = self.residual(name, rows)
            self.num_rows_[name] = len(rows)
        if not self.parameters_:
            raise TraceError(f"measurements: wanted rows of one of {', '.join(self.groups)}; got none")
        return self

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

    def physical(self, frame: pd.DataFrame, name: str) -> np.ndarray:
        """Seconds by the physical form alone, for a frame with a group's shape columns."""
        return _seconds(self.groups[name], self.gpu(name), self.parameters_[name], frame)

    def residual(self, name: str, rows: pd.DataFrame) -> Residual:
        """Measured over physical time of `rows`, as a grid; needs the group's parameters."""
        group = self.groups[name]
        ratios = rows["seconds"].to_numpy(dtype=float) / self.physical(rows, name)
        return Residual.from_points(group.axes, group.shape(rows), ratios)

    def predict(self, frame: pd.DataFrame, name: str, with_residual: bool = True) -> np.ndarray:
        """Seconds for a frame with a group's shape columns."""
        seconds = self.physical(frame, name)
        if with_residual:
            seconds = seconds * self.residuals_[name].predict(*self.groups[name].shape(frame))[0]
        return seconds

    def score(self, measurements: Measurements) -> ErrorTable:
        """Errors over the points that `fit` did not look at (over all if it looked at all)."""
        from simkv.calibrate.report import error_table

        return error_table(self, measurements)


def fit_group(group: Group, gpu: Gpu, rows: pd.DataFrame) -> Any:
    """Fit one group's parameters to rows of shape columns and seconds."""
    rows = rows[group.seen(rows)]
    if len(rows) < 2 * len(group.bounds):
        raise TraceError(
            f"{group.name}: {len(rows)} usable points are too few for {len(group.bounds)} parameters"
        )
    if len(rows) > _MAX_ROWS:
        rows = rows.iloc[np.random.default_rng(0).permutation(len(rows))[:_MAX_ROWS]]
    measured = rows["seconds"].to_numpy(dtype=float)
    best, best_cost = None, np.inf
    for start in group.starts:
        unknowns = {
            field: Unknown(getattr(start, field), low, high) for field, (low, high) in group.bounds.items()
        }
        found = solve(
            lambda values, start=start: _seconds(group, gpu, _with(start, values), rows),  # type: ignore[misc]
            measured,
            unknowns,
        )
        rounded = {field: float(f"{value:.{_SIGNIFICANT_DIGITS}g}") for field, value in found.items()}
        parameters = _with(start, rounded)
        errors = np.log(_seconds(group, gpu, parameters, rows) / measured) / _OUTLIER
        cost = float(np.sum(np.sqrt(1.0 + errors**2)))
        if cost < best_cost:
            best, best_cost = parameters, cost
    return best


def served_from_cache(rows: pd.DataFrame, gpu: Gpu, weight_bytes: float) -> np.ndarray:
    """True for memory-bound products whose weights the level-2 cache may have held.

    That is up to the largest weights of any row which moved its bytes faster than memory can.
    """
    m, n, k, seconds = (rows[column].to_numpy(dtype=float) for column in ("m", "n", "k", "seconds"))
    weights = weight_bytes * n * k
    too_fast = weights / seconds > _CACHE_FACTOR * gpu.bandwidth_bytes_per_s
    if not too_fast.any():
        return np.zeros(len(rows), bool)
    is_memory_bound = weights / gpu.bandwidth_bytes_per_s > 2.0 * m * n * k / gpu.peak_flops_per_s
    served: np.ndarray = is_memory_bound & (weights <= weights[too_fast].max())
    return served


def _seconds(group: Group, gpu: Gpu, parameters: Any, frame: pd.DataFrame) -> np.ndarray:
    figures = (gpu.peak_flops_per_s, gpu.bandwidth_bytes_per_s, gpu.num_sms)
    return np.asarray(group.seconds(parameters, *figures, *group.shape(frame)), dtype=float)


def _with(start: Any, values: dict[str, float]) -> Any:
    from dataclasses import replace

    return replace(start, **values)


def _refuse_mixed(measurements: Measurements) -> None:
    frame = measurements.frame
    for column in ("device", "engine", "engine_version"):
        found = [str(value) for value in frame[column].dropna().unique()]
        if len(found) > 1:
            raise TraceError(
                f"measurements: wanted one {column}, got {', '.join(found)}; filter the table first"
            )
