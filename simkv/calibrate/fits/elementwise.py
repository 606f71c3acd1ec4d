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


def fit_elementwise(
    frame: pd.DataFrame, bandwidth_bytes_per_s: float, num_sms: int
) -> dict[str, ElementwiseParameters]:
    """Fit every kernel of `frame` (rows of op ``elementwise``), by name."""
    rows = medians(frame, "elementwise")
    gpu = (bandwidth_bytes_per_s, num_sms)
    return {
        str(kernel): _fit(str(kernel), own["tokens"], own["width"], own["seconds"], *gpu)
        for kernel, own in rows.groupby("kernel", sort=True)
    }


def fit_sampler(frame: pd.DataFrame, bandwidth_bytes_per_s: float, num_sms: int) -> ElementwiseParameters:
    """Fit the sampler (rows of op ``sampler``): a kernel as wide as the vocabulary."""
    rows = medians(frame, "sampler")
    return _fit("sampler", rows["tokens"], rows["n"], rows["seconds"], bandwidth_bytes_per_s, num_sms)


def _fit(
    kernel: str, tokens: pd.Series, width: pd.Series, measured: pd.Series, bandwidth: float, num_sms: int
) -> ElementwiseParameters:
    tokens_, width_ = tokens.to_numpy(float), width.to_numpy(float)
    floor_s = float(measured.min())
    bytes_per_element = BYTES_PER_ELEMENT[kernel]
    largest = float((tokens_ * width_).max()) * bytes_per_element
    fixed = {"bytes_per_element": bytes_per_element, "wave_rows": num_sms}
    unknowns = {
        "floor_s": Unknown(floor_s, floor_s / 5, floor_s * 2),
        "wave_s": Unknown(floor_s / 10, floor_s / 1000, floor_s),
        "cached_bytes_per_s": Unknown(4 * bandwidth, bandwidth, 20 * bandwidth),
        "cache_bytes": Unknown(largest / 2, 1e5, 3 * largest),
        "memory_efficiency": Unknown(0.9, 0.5, 1.1),
        "sharpness": Unknown(4.0, 2.0, 12.0),
    }
    if len(np.unique(width_)) > 1:  # of one width it is a part of the floor
        element_s = floor_s / float(width_.max())
        unknowns["element_s"] = Unknown(element_s / 5, element_s / 1000, element_s)
    found = solve(
        lambda values: seconds(ElementwiseParameters(**values, **fixed), bandwidth, tokens_, width_),  # type: ignore[arg-type]
        measured.to_numpy(float),
        unknowns,
        [{"cache_bytes": share * largest} for share in (0.1, 0.3, 0.6, 1.0)],
    )
    return ElementwiseParameters(**found, **fixed)  # type: ignore[arg-type]


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
