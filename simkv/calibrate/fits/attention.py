"""Fits of chunked prefill attention and of batches with chunks and decodes together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from simkv.calibrate.fits.solve import Unknown, medians, solve
from simkv.cost.kernels import mixed
from simkv.cost.kernels.chunked_attention import TileParameters
from simkv.cost.kernels.mixed import MixedParameters
from simkv.cost.kernels.mixed_penalty import UnevenPenalty

if TYPE_CHECKING:
    import pandas as pd

_TILE = {
    "floor_s": Unknown(6e-6, 1e-6, 4e-5),
    "tile_s": Unknown(4e-6, 1e-7, 4e-5),
    "efficiency": Unknown(0.6, 0.1, 1.2),
}
_MAX_MIXED = 6000  # rows that a fit looks at: every k-th of the table
_CHUNK_WEIGHT = 12  # chunks alone are few among the mixed batches; their law must not give way to those
# wave edges and cache edges make errors of 10 %, which are of the form and not of the measurement
_OUTLIER = 0.1


def fit_mixed(
    chunks: pd.DataFrame,
    both: pd.DataFrame,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    num_sms: int,
    cache_bytes: float = 6e7,
    tile_rows: int = 64,
) -> MixedParameters:
    """Fit one kernel to chunks alone and to mixed batches (rows of ``prefill_attention``, ``mixed_attention``).

    `cache_bytes` is the GPU's L2 cache, where the search begins. Rows of one device in 16-bit KV.
    """
    alone = medians(chunks, "prefill_attention")
    alone = alone[alone["batch"] == 1].assign(batch=0, decode_context=0)
    rows = medians(both, "mixed_attention")
    rows = rows.iloc[:: max(1, len(rows) // _MAX_MIXED)]
    names = ("chunk", "context", "batch", "decode_context", "heads", "kv_heads", "head_dim")
    shape = [
        np.concatenate([np.tile(first, _CHUNK_WEIGHT), second])
        for first, second in zip(_columns(alone, names), _columns(rows, names), strict=True)
    ]
    measured = np.concatenate(
        [np.tile(alone["seconds"].to_numpy(float), _CHUNK_WEIGHT), rows["seconds"].to_numpy(float)]
    )

    def parameters(values: dict[str, float]) -> MixedParameters:
        own = {name: value for name, value in values.items() if name not in _TILE}
        return MixedParameters(_tile(values, tile_rows), **own)

    def predict(values: dict[str, float]) -> np.ndarray:
        chunk, context, batch, decode_context, heads, kv_heads, head_dim = shape
        return np.asarray(
            mixed.seconds(
                parameters(values), peak_flops_per_s, bandwidth_bytes_per_s, num_sms,
                chunk, context, batch, decode_context, heads, kv_heads, head_dim,
            )
        )  # fmt: skip

    unknowns = _TILE | {
        "tail": Unknown(0.5, 0.01, 1.2, log=False),
        "idle_block_s": Unknown(4e-7, 1e-8, 4e-6),
        "memory_efficiency": Unknown(0.95, 0.5, 1.1),
        "concurrency": Unknown(0.7, 0.2, 3.0),
        "cache_bytes": Unknown(cache_bytes, cache_bytes / 3, cache_bytes * 3),
    }
    return parameters(solve(predict, measured, unknowns, outlier=_OUTLIER))


def fit_uneven(predict: Callable[[UnevenPenalty], np.ndarray], rows: pd.DataFrame) -> UnevenPenalty:
    """Fit what long contexts cost among short ones (rows of op ``skewed_attention``).

    `predict` gives the seconds of the rows for a penalty, by forms and residuals that are known by then.
    """
    found = solve(
        lambda values: predict(UnevenPenalty(values["tile_share"])),
        rows["seconds"].to_numpy(float),
        {"tile_share": Unknown(1.0, 1e-3, 10.0)},
    )
    return UnevenPenalty(found["tile_share"])


def uneven_contexts(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Mean and longest context of rows of op ``skewed_attention``."""
    batch, short, num_long, skew = _columns(rows, ("batch", "context", "num_long", "skew"))
    return short * (1.0 + (skew - 1.0) * num_long / batch), short * skew


def _tile(values: dict[str, float], tile_rows: int) -> TileParameters:
    return TileParameters(values["floor_s"], values["tile_s"], values["efficiency"], tile_rows)


def _columns(rows: pd.DataFrame, names: tuple[str, ...]) -> list[np.ndarray]:
    return [rows[name].to_numpy(float) for name in names]
