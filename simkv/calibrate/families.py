"""The kernel families that are fitted to a table point by point: which rows, which form, from where to start.

A group is one family and dtype, named as reports name it: ``gemm/fp8``, ``decode_attention/bfloat16`` (there
the KV cache's dtype; queries are in 16 bits), or one of the kernels that move bytes, an engine's or
the collector's: ``elementwise/act_fn``, ``elementwise/rms_norm``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from simkv.calibrate.group import HEAD_DIM, Bounds, Group
from simkv.cost.fitted_batch import CHUNKED
from simkv.cost.fitted_chunks import PREFIX_AXES, is_single_prefix
from simkv.cost.kernels import (
    chunked_attention,
    decode_attention,
    elementwise,
    gemm,
    prefill_attention,
    scaled_gemm,
)
from simkv.cost.kernels.chunked_attention import TileParameters
from simkv.cost.kernels.decode_attention import DecodeAttentionParameters
from simkv.cost.kernels.elementwise import BYTES_PER_ELEMENT, ElementwiseParameters
from simkv.cost.kernels.gemm import GemmParameters
from simkv.cost.kernels.prefill_attention import PrefillAttentionParameters
from simkv.cost.kernels.scaled_gemm import ScaledGemmParameters
from simkv.cost.stand_ins import STAND_INS

if TYPE_CHECKING:
    import pandas as pd

_TIME = (1e-8, 1e-3)
_SHARE = (0.02, 1.0)
_EFFICIENCY = (0.1, 1.0)
_SHARPNESS = (1.0, 8.0)

_GEMM = GemmParameters(
    launch_s=3.4e-6,
    memory_efficiency=0.85,
    small_tile_efficiency=0.75,
    large_tile_efficiency=0.8,
    wave_quantisation=0.2,
    lone_wave=0.5,
    tile_s=1e-6,
    split_traffic=2.0,
    sharpness=4.0,
)
_GEMM_BOUNDS: Bounds = {
    "launch_s": _TIME,
    "memory_efficiency": _EFFICIENCY,
    "small_tile_efficiency": _EFFICIENCY,
    "large_tile_efficiency": _EFFICIENCY,
    "wave_quantisation": _SHARE,
    "lone_wave": _SHARE,
    "tile_s": _TIME,
    "split_traffic": (0.2, 50.0),
    "sharpness": _SHARPNESS,
}
_SCALED_GEMM = ScaledGemmParameters(
    launch_s=5e-6,
    row_s=6.5e-9,
    element_s=2.1e-12,
    memory_efficiency=0.83,
    few_rows_efficiency=0.4,
    some_rows_efficiency=0.45,
    many_rows_efficiency=0.6,
    huge_efficiency=0.75,
    wave_quantisation=0.5,
    sharpness=3.0,
)
_SCALED_GEMM_BOUNDS: Bounds = {
    "launch_s": _TIME,
    "row_s": (1e-10, 1e-6),
    "element_s": (1e-13, 1e-10),
    "memory_efficiency": _EFFICIENCY,
    "few_rows_efficiency": _EFFICIENCY,
    "some_rows_efficiency": _EFFICIENCY,
    "many_rows_efficiency": _EFFICIENCY,
    "huge_efficiency": _EFFICIENCY,
    "wave_quantisation": _SHARE,
    "sharpness": _SHARPNESS,
}
_DECODE = DecodeAttentionParameters(
    launch_s=1e-5,
    block_s=3e-6,
    row_s=1e-8,
    token_s=9e-9,
    wave_quantisation=0.5,
    memory_efficiency=0.9,
    cache_speedup=1.3,
    cache_bytes=3.3e7,
    memory_s=5e-6,
    combine_s=5e-7,
    sharpness=3.0,
)
_DECODE_BOUNDS: Bounds = {
    "launch_s": _TIME,
    "block_s": _TIME,
    "row_s": (1e-10, 1e-6),
    "token_s": (1e-10, 1e-6),
    "wave_quantisation": _SHARE,
    "memory_efficiency": _EFFICIENCY,
    "cache_speedup": (1.0, 4.0),
    "cache_bytes": (4e6, 1.2e8),
    "memory_s": _TIME,
    "combine_s": (1e-9, 1e-5),
    "sharpness": _SHARPNESS,
}
_PREFILL = PrefillAttentionParameters(
    launch_s=1e-5,
    efficiency=0.65,
    block_s=1e-6,
    sharpness=2.0,
    memory_efficiency=0.8,
    kv_write_s=4e-9,
    kv_write_growth=1.2,
)
_PREFILL_BOUNDS: Bounds = {
    "launch_s": _TIME,
    "efficiency": _EFFICIENCY,
    "block_s": (1e-9, 1e-4),
    "sharpness": _SHARPNESS,
    "memory_efficiency": (0.1, 1.2),  # reads of K and V partly hit the cache
    "kv_write_s": (1e-11, 1e-7),
    "kv_write_growth": (0.3, 4.0),
}
_TILES = TileParameters(floor_s=6e-6, tile_s=4e-6, efficiency=0.6)
_TILES_BOUNDS: Bounds = {"floor_s": _TIME, "tile_s": (1e-9, 4e-5), "efficiency": (0.1, 1.2)}
# FlashAttention 2 tiles 64 rows on consumer cards and 128 on A100 and H100, FlashAttention 3 tiles 128; whether a
# call splits the keys depends on who calls it. The start that fits best is kept.
_TILINGS = tuple(
    replace(_TILES, tile_rows=rows, max_num_splits=splits) for rows in (64, 128) for splits in (1, 32)
)
_MOVES = ElementwiseParameters(
    floor_s=2e-6,
    cached_bytes_per_s=5e12,
    cache_bytes=5e7,
    memory_efficiency=0.85,
    sharpness=4.0,
    bytes_per_element=4.0,
)
# sampling is several kernels, which move more bytes than the form counts
_SEVERAL = replace(_MOVES, cached_bytes_per_s=2e12, cache_bytes=1e7, memory_efficiency=0.3)
_ENGINE_MOVES = ("layernorm", "final_layernorm", "rotary_emb", "act_fn", "embedding")
_MOVES_BOUNDS: Bounds = {
    "floor_s": _TIME,
    "cached_bytes_per_s": (1e11, 1e14),
    "cache_bytes": (1e5, 1e9),
    "memory_efficiency": (0.1, 1.1),
}


def _with_head_dim(form: Callable[..., Any]) -> Callable[..., Any]:
    """Leave the head dimension out of a form's shape: a table of one value has no such axis."""
    return lambda *arguments: form(*arguments, float(HEAD_DIM))


def _wide(frame: pd.DataFrame) -> pd.Series:
    return (frame["n"] >= 512) & (frame["k"] >= 512)


def _blocks(frame: pd.DataFrame) -> pd.Series:
    return (frame["chunk"] >= prefill_attention.BLOCK_TOKENS) & (frame["context"] == 0)


def _attention(op: str, kv_dtype: str, *starts: Any, **options: Any) -> Group:
    kv_bytes = 1.0 if kv_dtype == "fp8" else 2.0
    return Group(
        name=f"{op}/{kv_dtype}",
        variant={"dtype": "bfloat16", "kv_dtype": kv_dtype},
        dtype="bfloat16",
        starts=tuple(replace(start, kv_bytes=kv_bytes) for start in starts),
        **options,
    )


def _decode(kv_dtype: str) -> Group:
    return _attention(
        "decode_attention",
        kv_dtype,
        _DECODE,
        replace(_DECODE, splits_equal_heads=False),
        axes=("batch", "context", "heads", "kv_heads"),
        seconds=_with_head_dim(decode_attention.seconds),
        bounds=_DECODE_BOUNDS,
        kept=lambda frame: frame["context"] >= 1,
        seen=lambda frame: frame["batch"] * frame["context"] >= 512,
        reported=lambda frame: frame["batch"] * frame["context"] >= 4096,
    )


def _prefill(kv_dtype: str) -> Group:
    return _attention(
        "prefill_attention",
        kv_dtype,
        _PREFILL,
        axes=("batch", "chunk", "heads", "kv_heads"),
        seconds=_with_head_dim(prefill_attention.seconds),
        bounds=_PREFILL_BOUNDS,
        kept=_blocks,
        seen=_blocks,
        reported=lambda frame: frame["chunk"] >= 512,
    )


def _chunked() -> Group:
    """Chunks over a prefix; those without are there for the grid to begin at, and are reported as prefill."""
    return Group(
        name=CHUNKED,
        variant={"dtype": "bfloat16", "kv_dtype": "bfloat16"},
        dtype="bfloat16",
        axes=PREFIX_AXES,
        seconds=_with_head_dim(chunked_attention.seconds),
        starts=_TILINGS,
        bounds=_TILES_BOUNDS,
        kept=is_single_prefix,
        seen=lambda frame: frame["context"] > 0,
        reported=lambda frame: frame["context"] > 0,
    )


def _moves(name: str, width: str, bytes_per_element: float, **variant: str) -> Group:
    """A kernel that moves bytes, `width` being the column with the elements of a row."""

    def seconds(parameters: Any, _: float, bandwidth: float, __: int, tokens: Any, columns: Any) -> Any:
        return elementwise.seconds(parameters, bandwidth, tokens, columns)

    return Group(
        name=name,
        variant={"dtype": "bfloat16", **variant},
        dtype="bfloat16",
        axes=("tokens", width),
        seconds=seconds,
        starts=tuple(replace(start, bytes_per_element=bytes_per_element) for start in (_MOVES, _SEVERAL)),
        bounds=_MOVES_BOUNDS,
        kept=_all,
        seen=_all,
        reported=_all,
    )


def _all(frame: pd.DataFrame) -> pd.Series:
    return frame["tokens"] >= 1


GROUPS = (
    Group(
        name="gemm/bfloat16",
        variant={"dtype": "bfloat16"},
        dtype="bfloat16",
        axes=("m", "n", "k"),
        seconds=gemm.seconds,
        starts=(_GEMM, replace(_GEMM, wave_quantisation=0.8, sharpness=2.5)),
        bounds=_GEMM_BOUNDS,
        kept=lambda frame: (frame["n"] >= 128) & (frame["k"] >= 128),
        seen=_wide,
        reported=_wide,
    ),
    Group(
        name="gemm/fp8",
        variant={"dtype": "fp8"},
        dtype="fp8",
        axes=("m", "n", "k"),
        seconds=scaled_gemm.seconds,
        starts=(_SCALED_GEMM,),
        bounds=_SCALED_GEMM_BOUNDS,
        kept=lambda frame: (frame["n"] >= 128) & (frame["k"] >= 128),
        seen=_wide,
        reported=_wide,
    ),
    _decode("bfloat16"),
    _decode("fp8"),
    _prefill("bfloat16"),
    _prefill("fp8"),
    _chunked(),
    *(
        _moves(f"elementwise/{kernel}", "width", BYTES_PER_ELEMENT[kernel], kernel=kernel)
        for kernel in (*_ENGINE_MOVES, *dict.fromkeys(STAND_INS.values()))
    ),
    _moves("sampler", "n", BYTES_PER_ELEMENT["sampler"]),
)
