"""Calibrated chunks over a prefix, where they were measured but batches of chunks and decodes together were not.

That is what `simkv collect` leaves. Seconds are ``form × ratio``: the tiles of
`simkv.cost.kernels.chunked_attention`, times measured ratios over chunk, context and heads. Marks:

    measured       the shape itself is in the table: one chunk, these heads
    interpolated   inside the grid; or the form alone, fitted to this GPU, where no points are at hand
    extrapolated   beyond the grid: another head dimension or KV dtype, several chunks in one call, a GPU that took
                   the fit over

Whole prompts stay `prefill_attention`'s. That a prefix never saves time is `simkv.cost.attention`'s to see to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from simkv.cost.fitted_batch import CHUNKED, MIXED, Points, ratio_of
from simkv.cost.fitted_collectives import parameters_from
from simkv.cost.kernels import chunked_attention
from simkv.cost.kernels.chunked_attention import TileParameters
from simkv.cost.residual import Residual
from simkv.cost.tally import Kernel, Side
from simkv.spec.calibration import CalibrationSpec
from simkv.step import PrefillChunk, Provenance

ChunksTime: TypeAlias = Callable[[Sequence[PrefillChunk]], Kernel]

PREFIX_AXES = ("chunk", "context", "heads", "kv_heads")
_HEAD_DIM, _KV_BYTES = 128, 2.0  # of the measured tables


def chunk_attention(
    calibration: CalibrationSpec,
    points: Points,
    gpu: tuple[float, float, int],
    heads: int,
    kv_heads: int,
    head_dim: int,
    kv_bytes: float,
) -> ChunksTime | None:
    """Time the chunks of a batch, some of them over a prefix, on a rank of these heads; None without such a fit.

    `gpu` is (peak FLOP/s, bytes/s, SMs). Where mixed batches were measured too, `fitted_batch` times both.
    """
    if CHUNKED not in calibration.families or MIXED in calibration.families:
        return None
    parameters = parameters_from(TileParameters, calibration.families[CHUNKED].parameters)
    is_tabled = head_dim == _HEAD_DIM and kv_bytes == _KV_BYTES and not calibration.is_transferred
    columns = points.get(CHUNKED) if is_tabled else None
    residual = None
    if columns is not None:
        residual = prefix_residual(parameters, gpu, columns).fixed(heads=heads, kv_heads=kv_heads)
    alone = Provenance.INTERPOLATED if is_tabled else Provenance.EXTRAPOLATED

    def time(chunks: Sequence[PrefillChunk]) -> Kernel:
        seconds, is_memory_bound = chunked_attention.batch_timing(
            parameters, *gpu, chunks, heads, kv_heads, head_dim, kv_bytes
        )
        ratio, mark = ratio_of(residual, chunks) if residual else (1.0, alone)
        return Kernel(seconds * ratio, Side.MEMORY if is_memory_bound else Side.COMPUTE, mark)

    return time


def prefix_residual(
    parameters: TileParameters, gpu: tuple[float, float, int], columns: Mapping[str, np.ndarray]
) -> Residual:
    """Measured over physical seconds of the single chunks of a table."""
    kept = is_single_prefix(columns)
    shape = [columns[axis][kept] for axis in PREFIX_AXES]
    form = chunked_attention.seconds(parameters, *gpu, *(*shape, float(_HEAD_DIM)))
    return Residual.from_points(PREFIX_AXES, shape, columns["seconds"][kept] / form)


def is_single_prefix(columns: Any) -> Any:
    """True for single chunks over a prefix, and for the same chunks without one, from which a grid can begin.

    Chunks that were measured without a prefix only would leave holes in it. `columns` is a table or a dict of
    arrays; the answer is of the same kind.
    """
    is_single = columns["batch"] == 1
    over = is_single & (columns["context"] > 0)
    keys = list(
        zip(*(np.asarray(columns[name]).tolist() for name in ("chunk", "heads", "kv_heads")), strict=True)
    )
    known = {key for key, is_over in zip(keys, np.asarray(over).tolist(), strict=True) if is_over}
    return is_single & np.array([key in known for key in keys], bool)
