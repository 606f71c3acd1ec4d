"""Families of per-layer profiles in a calibration: chunks over a prefix, mixed and uneven batches, elementwise
kernels, the head and the sampler.

Groups are named as reports name them: ``chunked_attention/bfloat16``, ``mixed_attention/bfloat16``,
``uneven_decode/bfloat16``, ``elementwise/layernorm`` …, ``head``, ``sampler``. One fit finds the kernel that runs
chunks and mixed batches, so the parameters of the first are a part of the second's. Decodes alone are
`simkv.calibrate.families`' and are fitted before; mixed and uneven batches lean on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from simkv.calibrate.fits.attention import fit_mixed, fit_uneven, uneven_contexts
from simkv.calibrate.fits.elementwise import fit_elementwise, fit_head, fit_sampler
from simkv.calibrate.fits.solve import medians, rounded
from simkv.calibrate.group import HEAD_DIM
from simkv.calibrate.measurements import Measurements
from simkv.calibrate.report import ErrorTable, rows_of
from simkv.cost.fitted_batch import AXES, CHUNKED, DECODE, MIXED, UNEVEN, group_residual, group_seconds
from simkv.cost.kernels import batch_attention, elementwise
from simkv.cost.kernels.batch_attention import BatchParameters, GpuFigures, HeadShape
from simkv.cost.kernels.decode_attention import DecodeAttentionParameters
from simkv.cost.kernels.mixed_penalty import UnevenPenalty
from simkv.cost.residual import Residual
from simkv.spec.hardware import HardwareSpec

if TYPE_CHECKING:
    import pandas as pd

    from simkv.calibrate.fit import Calibration, Split

# group -> op of the measurements, where the name does not say it
OPS = {CHUNKED: "prefill_attention", MIXED: "mixed_attention", UNEVEN: "skewed_attention", "head": "lm_head"}
_WIDTHS = {"elementwise": "width", "sampler": "n", "head": "n"}
# by which column a group's errors are broken down, and the lower ends of the ranges
_RANGES: dict[str, tuple[str, tuple[int, ...]]] = {
    CHUNKED: ("context", (0, 1, 1025)),
    MIXED: ("batch", (1, 9, 65)),
    UNEVEN: ("batch", (1, 17, 65)),
}
_ROW_RANGES = ("tokens", (1, 65, 513))
_SHORTEST_CHUNK = 128  # that errors are counted for: shorter ones are all launch


@dataclass
class LayerCalibration:
    """Fits what a per-layer profile has beside products and decodes; attributes as in `Calibration`.

    `decode` are the parameters of decodes alone, ``decode_attention/bfloat16`` of a fit to the same table.
    """

    hardware: HardwareSpec
    split: Split | None = None
    decode: DecodeAttentionParameters | None = None
    parameters_: dict[str, Any] = field(default_factory=dict)
    residuals_: dict[tuple[str, tuple[float, ...]], Residual] = field(default_factory=dict)
    num_rows_: dict[str, int] = field(default_factory=dict)

    def fit(
        self, measurements: Measurements, kernels: Calibration, split: Split | None = None
    ) -> LayerCalibration:
        """Fit every group whose rows are there, `kernels` being the fit of the rest of the table."""
        self.split, self.decode = split, kernels.parameters_.get(DECODE)
        tables = groups_of(measurements)
        seen = {name: self._part(name, rows, False) for name, rows in tables.items()}
        for name, rows in seen.items():
            self.num_rows_[name] = len(rows)
            if name == "head":
                self.parameters_[name] = rounded(fit_head(rows, self._gpu[0], self._gpu[1]))
            elif name == "sampler":
                self.parameters_[name] = rounded(fit_sampler(rows, *self._gpu[1:]))
            elif name.startswith("elementwise/"):
                (found,) = fit_elementwise(rows, *self._gpu[1:]).values()
                self.parameters_[name] = rounded(found)
        if self.decode is not None and CHUNKED in seen and MIXED in seen:
            self._fit_batches(seen, self._part(DECODE, _decodes(measurements), False))
        for name in self.parameters_:
            if name != UNEVEN:
                self._add_residuals(name, seen[name])
        return self

    def _fit_batches(self, seen: dict[str, pd.DataFrame], decodes: pd.DataFrame) -> None:
        found = rounded(fit_mixed(seen[CHUNKED], seen[MIXED], *self._gpu))
        self.parameters_[CHUNKED], self.parameters_[MIXED] = found.tiles, found
        self._add_residuals(DECODE, decodes)
        if UNEVEN in seen:
            rows = seen[UNEVEN]
            ratio, _ = self._ratio(UNEVEN, rows)
            penalty = fit_uneven(lambda penalty: self._uneven_seconds(rows, penalty) * ratio, rows)
            self.parameters_[UNEVEN] = rounded(penalty)

    def physical(self, rows: pd.DataFrame, name: str) -> np.ndarray:
        """Seconds by the form alone."""
        peak, bandwidth, _ = self._gpu
        if name == UNEVEN:
            return self._uneven_seconds(rows, self.parameters_[UNEVEN])
        if name in AXES:
            return group_seconds(name, self._batch(UnevenPenalty(0.0)), self._gpu, _arrays(rows))
        tokens = rows["tokens"].to_numpy(float)
        width = rows[_WIDTHS[name.partition("/")[0]]].to_numpy(float)
        if name == "head":
            shape = (tokens, width, rows["k"].to_numpy(float))
            return np.asarray(elementwise.head_seconds(self.parameters_[name], peak, bandwidth, *shape))
        return np.asarray(elementwise.seconds(self.parameters_[name], bandwidth, tokens, width))

    def score(self, measurements: Measurements) -> ErrorTable:
        """Errors over the points that `fit` did not look at (over all if it looked at all)."""
        table, points = [], {}
        for name, rows in groups_of(measurements).items():
            if name not in self.parameters_:
                continue
            own = self._part(name, rows, True)
            if name == CHUNKED:
                own = own[own["chunk"] >= _SHORTEST_CHUNK]
            if own.empty:
                continue
            physical = self.physical(own, name)
            ratio, mark = self._ratio(name, own)
            points[name] = own.assign(physical=physical, residual=physical * ratio, mark=mark)
            table += rows_of(name, points[name], *_RANGES.get(name, _ROW_RANGES))
        return ErrorTable(tuple(table), points)

    @property
    def _gpu(self) -> GpuFigures:
        gpu = self.hardware.gpu
        peak, bandwidth = gpu.peak_flops_per_s["bfloat16"], gpu.hbm_bandwidth_bytes_per_s
        return GpuFigures(peak.value, bandwidth.value, int(gpu.num_sms.value))

    def _batch(self, uneven: UnevenPenalty) -> BatchParameters:
        assert self.decode is not None
        return BatchParameters(self.decode, self.parameters_[MIXED], uneven)

    def _uneven_seconds(self, rows: pd.DataFrame, penalty: UnevenPenalty) -> np.ndarray:
        shape = HeadShape(rows["heads"].to_numpy(float), rows["kv_heads"].to_numpy(float), HEAD_DIM)
        sizes = (rows["batch"].to_numpy(float), *uneven_contexts(rows))
        timing = batch_attention.decode_timing(self._batch(penalty), self._gpu, shape, *sizes)
        return np.asarray(timing.seconds, float)

    def _part(self, name: str, rows: pd.DataFrame, is_held_out: bool) -> pd.DataFrame:
        if self.split is None:
            return rows
        return rows[self.split(rows, OPS.get(name, name.partition("/")[0])) == is_held_out]

    def _add_residuals(self, name: str, rows: pd.DataFrame) -> None:
        """Fill one grid for each number of heads or width: what a run looks a rank's ratios up in."""
        for key, own in _by_shape(name, rows):
            if name in AXES:
                found = group_residual(name, self._batch(UnevenPenalty(0.0)), self._gpu, _arrays(own))
            else:
                ratios = own["seconds"].to_numpy(float) / self.physical(own, name)
                found = Residual.from_points(("tokens",), (own["tokens"].to_numpy(float),), ratios)
            self.residuals_[name, key] = found

    def _ratio(self, name: str, rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """Ratios and marks of rows; those of uneven decodes are the even ones' at their mean."""
        ratio, mark = np.ones(len(rows)), np.full(len(rows), 2, np.int8)
        group = DECODE if name == UNEVEN else name
        for key, own in _by_shape(name, rows.reset_index(drop=True)):
            if (group, key) not in self.residuals_:
                continue
            if name == UNEVEN:
                sizes = [own["batch"].to_numpy(float), uneven_contexts(own)[0]]
            else:
                sizes = [own[axis].to_numpy(float) for axis in AXES.get(name, ("tokens",))]
            ratio[own.index], mark[own.index] = self.residuals_[group, key].predict(*sizes)
        return ratio, mark


def groups_of(measurements: Measurements) -> dict[str, pd.DataFrame]:
    """Return the points of every group of a table, one row a shape."""
    found = {}
    for name, op in OPS.items():
        rows = measurements.of(op)
        if name in (CHUNKED, MIXED, UNEVEN):
            rows = _sixteen_bit(rows)
        if name == CHUNKED:
            rows = rows[rows["batch"] == 1]
        if not rows.empty:
            found[name] = medians(rows, op)
    moves = measurements.of("elementwise")
    for kernel in sorted(set(moves["kernel"]) & set(elementwise.BYTES_PER_ELEMENT)):
        found[f"elementwise/{kernel}"] = medians(moves[moves["kernel"] == kernel], "elementwise")
    if not (rows := measurements.of("sampler")).empty:
        found["sampler"] = medians(rows, "sampler")
    if MIXED not in found:  # chunks over a prefix without batches of both are not fitted yet
        found.pop(CHUNKED, None)
    return found


def _decodes(measurements: Measurements) -> pd.DataFrame:
    return medians(_sixteen_bit(measurements.of("decode_attention")), "decode_attention")


def _sixteen_bit(rows: pd.DataFrame) -> pd.DataFrame:
    own = (rows["dtype"] == "bfloat16") & (rows["kv_dtype"] == "bfloat16") & (rows["head_dim"] == HEAD_DIM)
    return rows[own]


def _by_shape(name: str, rows: pd.DataFrame) -> list[tuple[tuple[float, ...], pd.DataFrame]]:
    attends = name in AXES or name == UNEVEN
    columns = ["heads", "kv_heads"] if attends else [_WIDTHS[name.partition("/")[0]]]
    sizes = rows[columns].to_numpy(float)
    keys = sorted({tuple(map(float, size)) for size in np.unique(sizes, axis=0)})
    return [(key, rows[(sizes == key).all(axis=1)]) for key in keys]


def _arrays(rows: pd.DataFrame) -> dict[str, np.ndarray]:
    return {str(column): rows[column].to_numpy(float) for column in rows}
