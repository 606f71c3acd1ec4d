"""Calibrated kernels of whole batches: attention of chunks, decodes or both, elementwise kernels, the head.

For GPUs whose tables have chunks over a prefix and mixed batches (RTX 4090, RTX PRO 6000). A kernel's seconds
are ``form × ratio`` as in `simkv.cost.fitted`, with the same marks:

    measured       the shape itself is in the table: one chunk, decodes of equal contexts, these heads
    interpolated   between shapes of the table, or decodes of uneven contexts; or the form alone, fitted to this
                   GPU, where no points are at hand
    extrapolated   beyond the table: heads, head dimension, KV dtype or width that were not measured, several
                   chunks in one batch, a GPU that took the fit over

Points are those of `simkv.load.calibration`, by group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeAlias

import numpy as np

from simkv.cost.kernels import batch_attention as forms
from simkv.cost.kernels import elementwise as moves
from simkv.cost.kernels.batch_attention import BatchParameters, GpuFigures, HeadShape
from simkv.cost.kernels.chunked_attention import TileParameters
from simkv.cost.kernels.decode_attention import DecodeAttentionParameters
from simkv.cost.kernels.elementwise import ElementwiseParameters, HeadParameters
from simkv.cost.kernels.mixed import MixedParameters
from simkv.cost.kernels.mixed_penalty import UnevenPenalty
from simkv.cost.residual import Residual
from simkv.cost.tally import Kernel, Side
from simkv.spec.calibration import CalibrationSpec
from simkv.step import PrefillChunk, Provenance

Points: TypeAlias = Mapping[str, Mapping[str, np.ndarray]]  # by group: a column for each size, and seconds
# of chunks, decodes, their tokens in sum, the longest of them: one layer on one rank
BatchTime: TypeAlias = Callable[[Sequence[PrefillChunk], int, int, int], Kernel]
RowsTime: TypeAlias = Callable[[int], Kernel]  # of a number of rows

DECODE, CHUNKED, MIXED = (f"{op}_attention/bfloat16" for op in ("decode", "chunked", "mixed"))
UNEVEN = "uneven_decode/bfloat16"
# the axes of each group's residual, beside the heads
AXES = {
    DECODE: ("batch", "context"),
    CHUNKED: ("chunk", "context"),
    MIXED: ("chunk", "context", "batch", "decode_context"),
}
_HEAD_DIM, _KV_BYTES = 128, 2.0  # of the measured tables
_TILE_ROWS = 64
# A few short decodes take longer alone than beside a short chunk, whose kernel is launched faster (RTX PRO 6000:
# 12 against 7 µs); in a run time falls by no more than this as a chunk is added.
_MAX_DIP, _NEAR = 0.8, 1.2


def batch_attention(
    calibration: CalibrationSpec,
    points: Points,
    gpu: Sequence[float],
    heads: int,
    kv_heads: int,
    head_dim: int,
    kv_bytes: float,
) -> BatchTime | None:
    """Time batches of one layer on a rank of `heads` query and `kv_heads` KV heads; None without such a fit.

    `gpu` is (peak FLOP/s, bytes/s, SMs). Physical seconds never fall when a chunk or decode is added or
    lengthened; with residuals they fall by a quarter at most.
    """
    parameters = batch_parameters(calibration, kv_bytes)
    if parameters is None:
        return None
    figures, shape = GpuFigures(gpu[0], gpu[1], int(gpu[2])), HeadShape(heads, kv_heads, head_dim)
    is_tabled = head_dim == _HEAD_DIM and kv_bytes == _KV_BYTES and not calibration.is_transferred
    own = {
        name: columns
        for name in AXES
        if is_tabled and (columns := _of_heads(points.get(name), heads, kv_heads)) is not None
    }
    of_decodes, of_chunks, of_both = (
        group_residual(name, parameters, figures, own[name]) if name in own else None for name in AXES
    )
    alone = Provenance.INTERPOLATED if is_tabled and not points else Provenance.EXTRAPOLATED

    def time(chunks: Sequence[PrefillChunk], num_decodes: int, kv_tokens: int, longest: int) -> Kernel:
        seconds, is_memory_bound, alone_s = forms.timing(
            parameters, figures, shape, chunks, num_decodes, kv_tokens, longest
        )
        ratio, mark = 1.0, alone
        if num_decodes == 0:
            if of_chunks is not None:
                ratio, mark = ratio_of(of_chunks, chunks)
        elif not chunks:
            if of_decodes is not None:
                ratio, mark = of_decodes(num_decodes, kv_tokens / num_decodes)
        elif of_both is not None:
            context = kv_tokens / num_decodes
            ratio, mark = ratio_of(of_both, chunks, num_decodes, context)
            if ratio < 1.0:  # a gain of evenly filled waves, which a longer context takes away
                ratio += (1.0 - ratio) * (1.0 - context / longest)
            if of_decodes is not None and seconds * ratio < _NEAR * alone_s:
                ratio = max(ratio, _MAX_DIP * alone_s * of_decodes(num_decodes, context)[0] / seconds)
        if mark is Provenance.MEASURED and longest * num_decodes != kv_tokens:
            mark = Provenance.INTERPOLATED
        return Kernel(seconds * ratio, Side.MEMORY if is_memory_bound else Side.COMPUTE, mark)

    return time


def elementwise(
    calibration: CalibrationSpec, points: Points, gpu: Sequence[float], name: str, width: int
) -> RowsTime | None:
    """Time a kernel that moves bytes, by rows: layernorm, rotary_emb, act_fn, embedding, final_layernorm, sampler.

    `width` is the number of elements of a row on this rank: the hidden size, query and key elements
    (rotary_emb), the MLP's inner size (act_fn), the whole vocabulary (sampler).
    """
    family = name if name == "sampler" else f"elementwise/{name}"
    parameters = _parameters(calibration, family, ElementwiseParameters)
    if parameters is None:
        return None
    bandwidth = gpu[1]
    columns = points.get(family)
    widths = None if columns is None else columns["n" if name == "sampler" else "width"]

    def form(rows: Any) -> Any:
        return moves.seconds(parameters, bandwidth, rows, width)

    residual, alone = _by_rows(calibration, columns, form, None if widths is None else widths == width)

    def time(num_rows: int) -> Kernel:
        ratio, mark = residual(num_rows) if residual else (1.0, alone)
        return Kernel(form(num_rows) * ratio, Side.MEMORY, mark)

    return time


def head(
    calibration: CalibrationSpec, points: Points, gpu: Sequence[float], n: int, k: int
) -> RowsTime | None:
    """Time the product with a rank's `n` words of the vocabulary, hidden size `k`, by rows."""
    parameters = _parameters(calibration, "head", HeadParameters)
    if parameters is None:
        return None
    peak, bandwidth = gpu[0], gpu[1]
    columns = points.get("head")

    def form(rows: Any) -> Any:
        return moves.head_timing(parameters, peak, bandwidth, rows, n, k).seconds

    chosen = None if columns is None else (columns["n"] == n) & (columns["k"] == k)
    residual, alone = _by_rows(calibration, columns, form, chosen)

    def time(num_rows: int) -> Kernel:
        seconds, is_memory_bound = moves.head_timing(parameters, peak, bandwidth, num_rows, n, k)
        ratio, mark = residual(num_rows) if residual else (1.0, alone)
        return Kernel(seconds * ratio, Side.MEMORY if is_memory_bound else Side.COMPUTE, mark)

    return time


def batch_parameters(calibration: CalibrationSpec, kv_bytes: float = _KV_BYTES) -> BatchParameters | None:
    """Return what a calibration says about whole batches, None if it lacks a family."""
    mixed = calibration.families.get(MIXED)
    decode = _parameters(calibration, DECODE, DecodeAttentionParameters)
    if mixed is None or decode is None:
        return None
    values: dict[str, Any] = dict(mixed.parameters)
    tiles = TileParameters(**values.pop("tiles"))
    uneven = _parameters(calibration, UNEVEN, UnevenPenalty) or UnevenPenalty()
    return BatchParameters(replace(decode, kv_bytes=kv_bytes), MixedParameters(tiles, **values), uneven)


def group_seconds(
    name: str, parameters: BatchParameters, gpu: GpuFigures, columns: Mapping[str, Any]
) -> np.ndarray:
    """Seconds of a group's points by the forms, as arrays of sizes."""
    shape = HeadShape(columns["heads"], columns["kv_heads"], _HEAD_DIM)
    sizes = [columns[axis] for axis in AXES[name]]
    if name == DECODE:
        batch, context = sizes
        return np.asarray(forms.decode_timing(parameters, gpu, shape, batch, context, context).seconds, float)
    if name == CHUNKED:
        return np.asarray(forms.chunk_seconds(parameters, gpu, shape, *sizes), float)
    return np.asarray(forms.both_seconds(parameters, gpu, shape, *sizes), float)


def group_residual(
    name: str, parameters: BatchParameters, gpu: GpuFigures, columns: Mapping[str, np.ndarray]
) -> Residual:
    """Measured over physical seconds of a group's points, all of the same heads."""
    ratios = columns["seconds"] / group_seconds(name, parameters, gpu, columns)
    return Residual.from_points(AXES[name], [columns[axis] for axis in AXES[name]], ratios)


def ratio_of(residual: Residual, chunks: Sequence[PrefillChunk], *decodes: float) -> tuple[float, Provenance]:
    """The ratio of a batch: its chunks' own, weighted by the tiles and keys of each.

    Of several chunks gains count half: a single chunk's come from waves that it happens to fill evenly.
    """
    if len(chunks) == 1:
        return residual(*chunks[0], *decodes)
    total = ratios = 0.0
    for tokens, context in chunks:
        work = -(-tokens // _TILE_ROWS) * (context + tokens / 2.0 + _TILE_ROWS)
        total += work
        ratios += work * residual(tokens, context, *decodes)[0]
    ratio = ratios / total
    return ratio if ratio > 1.0 else (1.0 + ratio) / 2.0, Provenance.EXTRAPOLATED


def _of_heads(
    columns: Mapping[str, np.ndarray] | None, heads: int, kv_heads: int
) -> dict[str, np.ndarray] | None:
    """The points of one number of heads, None if there are none."""
    if columns is None:
        return None
    own = (columns["heads"] == heads) & (columns["kv_heads"] == kv_heads)
    return {name: column[own] for name, column in columns.items()} if own.any() else None


def _by_rows(
    calibration: CalibrationSpec,
    columns: Mapping[str, np.ndarray] | None,
    form: Callable[[Any], Any],
    chosen: np.ndarray | None,
) -> tuple[Residual | None, Provenance]:
    """The residual over rows of the `chosen` points, and what an answer without one rests on."""
    if calibration.is_transferred:
        return None, Provenance.EXTRAPOLATED
    if columns is None or chosen is None:
        return None, Provenance.INTERPOLATED
    if not chosen.any():
        return None, Provenance.EXTRAPOLATED
    rows = columns["tokens"][chosen]
    return Residual.from_points(
        ("tokens",), (rows,), columns["seconds"][chosen] / form(rows)
    ), Provenance.INTERPOLATED


def _parameters(calibration: CalibrationSpec, family: str, parameters_class: Any) -> Any:
    """The parameters of a family, None if the calibration lacks it; fields that the class lacks are passed over."""
    fit = calibration.families.get(family)
    if fit is None:
        return None
    known = {each.name for each in fields(parameters_class)}
    return parameters_class(**{name: value for name, value in fit.parameters.items() if name in known})
