"""Fits of the kernels that move bytes, by tokens or sequences, and of the head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simkv.calibrate.fits.solve import Unknown, medians, solve
from simkv.cost.kernels.elementwise import (
    BYTES_PER_ELEMENT,
    ElementwiseParameters,
    HeadParameters,
    head_seconds,
    seconds,
)

if TYPE_CHECKING:
    import pandas as pd


def fit_elementwise(frame: pd.DataFrame, bandwidth_bytes_per_s: float) -> dict[str, ElementwiseParameters]:
    """Fit every kernel of `frame` (rows of op ``elementwise``), by name."""
    rows = medians(frame, "elementwise")
    return {
        str(kernel): _fit(str(kernel), own["tokens"], own["width"], own["seconds"], bandwidth_bytes_per_s)
        for kernel, own in rows.groupby("kernel", sort=True)
    }


def fit_sampler(frame: pd.DataFrame, bandwidth_bytes_per_s: float) -> ElementwiseParameters:
    """Fit the sampler (rows of op ``sampler``): a kernel as wide as the vocabulary."""
    rows = medians(frame, "sampler")
    return _fit("sampler", rows["tokens"], rows["n"], rows["seconds"], bandwidth_bytes_per_s)


def _fit(
    kernel: str, tokens: pd.Series, width: pd.Series, measured: pd.Series, bandwidth: float
) -> ElementwiseParameters:
    tokens_, width_ = tokens.to_numpy(float), width.to_numpy(float)
    floor_s = float(measured.min())
    bytes_per_element = BYTES_PER_ELEMENT[kernel]
    largest = float((tokens_ * width_).max()) * bytes_per_element
    unknowns = {
        "floor_s": Unknown(floor_s, floor_s / 5, floor_s * 2),
        "cached_bytes_per_s": Unknown(4 * bandwidth, bandwidth, 20 * bandwidth),
        "cache_bytes": Unknown(largest / 2, 1e5, 3 * largest),
        "memory_efficiency": Unknown(0.9, 0.5, 1.1),
        "sharpness": Unknown(4.0, 2.0, 12.0),
    }
    found = solve(
        lambda values: seconds(
            ElementwiseParameters(**values, bytes_per_element=bytes_per_element), bandwidth, tokens_, width_
        ),
        measured.to_numpy(float),
        unknowns,
        [{"cache_bytes": share * largest} for share in (0.1, 0.3, 0.6, 1.0)],
    )
    return ElementwiseParameters(**found, bytes_per_element=bytes_per_element)


def fit_head(frame: pd.DataFrame, peak_flops_per_s: float, bandwidth_bytes_per_s: float) -> HeadParameters:
    """Fit the head (rows of op ``lm_head``)."""
    rows = medians(frame, "lm_head")
    tokens, n, k = (rows[column].to_numpy(float) for column in ("tokens", "n", "k"))

    def predict(values: dict[str, float]) -> np.ndarray:
        return np.asarray(
            head_seconds(HeadParameters(**values), peak_flops_per_s, bandwidth_bytes_per_s, tokens, n, k)
        )

    unknowns = {
        "floor_s": Unknown(3e-6, 1e-7, 1e-4),
        "memory_efficiency": Unknown(0.85, 0.3, 1.1),
        "efficiency": Unknown(0.8, 0.2, 1.2),
    }
    return HeadParameters(**solve(predict, rows["seconds"].to_numpy(float), unknowns))
