"""Fits of kernels point by point: the parameters of one group, and which rows of a table mislead.

Rules on the data, applied before anything is fitted:

- several rows for one point are one: their median;
- a product that beats the datasheet's bandwidth read its weights from the level-2 cache, because the benchmark
  kept them there; a server does not. Memory-bound rows with weights of up to that size are left out (L40S, whose
  cache holds 96 MB; no row of A100, H100 or H200). See `served_from_cache`;
- spikes (`simkv.cost.residual.spikes`) are left out of the residual's grid; the fit of the parameters is robust
  (errors beyond 5 % count linearly) and needs no filter. Errors are counted over all held-out points, spikes too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from simkv.calibrate.fits.solve import Unknown, rounded, solve
from simkv.calibrate.group import Gpu, Group
from simkv.errors import TraceError

if TYPE_CHECKING:
    import pandas as pd

_MAX_ROWS = 5000  # of a fit: more do not move the parameters, and take longer
_OUTLIER = 0.05
_CACHE_FACTOR = 1.05  # over the datasheet's bandwidth: beyond clock tolerance


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
            lambda values, start=start: seconds_of(group, gpu, replace(start, **values), rows),  # type: ignore[misc]
            measured,
            unknowns,
        )
        parameters = rounded(replace(start, **found))
        errors = np.log(seconds_of(group, gpu, parameters, rows) / measured) / _OUTLIER
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


def seconds_of(group: Group, gpu: Gpu, parameters: Any, frame: pd.DataFrame) -> np.ndarray:
    """Seconds by a group's form, for a frame with its shape columns."""
    figures = (gpu.peak_flops_per_s, gpu.bandwidth_bytes_per_s, gpu.num_sms)
    return np.asarray(group.seconds(parameters, *figures, *group.shape(frame)), dtype=float)
