"""Reader of Vidur's compute profiles: ``mlp.csv`` (a layer's kernels by tokens) and ``attention.csv``.

Columns ``time_stats.<kernel>.median`` (ms), the model's own sizes (``n_embd``, ``n_expanded_embd``, ``n_head`` or
``n_q_head``, ``n_kv_head``) and ``num_tensor_parallel_workers``, over which a row is sharded. A gated MLP's up
product holds the gate too. Norms are left out, as they come without the residual that vLLM adds in the same
kernel, and so is ``add``. A time of 0 or none was not measured. Kernels are FlashAttention's or FlashInfer's and
cuBLAS's in 16 bits, whatever ``dtype`` says which. Source: Vidur (MIT), data/profiling/compute and
vidur/profiling.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simkv.calibrate.measurements import Measurements, validate
from simkv.calibrate.readers.tables import read_csv
from simkv.errors import TraceError

if TYPE_CHECKING:
    import pandas as pd

MLP_COLUMNS = ("n_embd", "n_expanded_embd", "n_head", "n_kv_head", "num_tokens")
ATTENTION_COLUMNS = ("n_embd", "n_q_head", "n_kv_head", "batch_size", "prefill_chunk_size", "kv_cache_size")
_SHARDS = "num_tensor_parallel_workers"
_DTYPE = "bfloat16"  # float16 in truth: tensor cores and memory treat both alike


def read_vidur_mlp(path: Path, device: str) -> Measurements:
    """Read products, rotary embedding and activation of one model measured on `device`."""
    import pandas as pd

    rows = read_csv(path, (*MLP_COLUMNS, "use_gated_mlp", _SHARDS), text=("use_gated_mlp",))
    hidden, shards, tokens = rows["n_embd"], rows[_SHARDS], rows["num_tokens"]
    head_dim = hidden // rows["n_head"]
    q_size, kv_size = _shard(rows["n_head"], shards) * head_dim, _shard(rows["n_kv_head"], shards) * head_dim
    mlp_size = rows["n_expanded_embd"] // shards
    is_gated = rows["use_gated_mlp"].astype(str).str.lower() == "true"
    products = {  # n, k
        "attn_pre_proj": (q_size + 2 * kv_size, hidden),
        "attn_post_proj": (hidden, q_size),
        "mlp_up_proj": (mlp_size.where(~is_gated, 2 * mlp_size), hidden),
        "mlp_down_proj": (hidden, mlp_size),
    }
    moves = {"attn_rope": ("rotary_emb", q_size + kv_size), "mlp_act": ("act_fn", mlp_size)}
    seconds = _seconds(path, (*products, *moves))
    parts = [
        pd.DataFrame({"op": "gemm", "m": tokens, "n": n, "k": k, "seconds": seconds[name]})
        for name, (n, k) in products.items()
    ]
    parts += [
        pd.DataFrame(
            {"op": "elementwise", "tokens": tokens, "width": width, "seconds": seconds[name]}
        ).assign(kernel=kernel)
        for name, (kernel, width) in moves.items()
    ]
    return _measured(pd.concat(parts, ignore_index=True), path, device)


def read_vidur_attention(path: Path, device: str) -> Measurements:
    """Read chunks over their prefixes, and decodes, of one model measured on `device`."""
    import pandas as pd

    rows = read_csv(path, (*ATTENTION_COLUMNS, _SHARDS))
    shape = {
        "heads": _shard(rows["n_q_head"], rows[_SHARDS]),
        "kv_heads": _shard(rows["n_kv_head"], rows[_SHARDS]),
        "head_dim": rows["n_embd"] // rows["n_q_head"],
        "kv_dtype": _DTYPE,
    }
    sizes = {"batch": rows["batch_size"], "context": rows["kv_cache_size"], **shape}
    is_chunk = rows["prefill_chunk_size"] > 0
    chunks = pd.DataFrame({"op": "prefill_attention", "chunk": rows["prefill_chunk_size"], **sizes})
    decodes = pd.DataFrame({"op": "decode_attention", **sizes})
    seconds = _seconds(path, ("attn_prefill", "attn_decode"))
    parts = [
        chunks.assign(seconds=seconds["attn_prefill"])[is_chunk],
        decodes.assign(seconds=seconds["attn_decode"])[~is_chunk],
    ]
    return _measured(pd.concat(parts, ignore_index=True), path, device)


def _shard(heads: pd.Series, shards: pd.Series) -> pd.Series:
    """Heads of a rank; those that are fewer than ranks are copied."""
    return (heads // shards).clip(lower=1)


def _seconds(path: Path, kernels: Sequence[str]) -> dict[str, pd.Series]:
    """The medians of some kernels; not a number where one was not measured."""
    import pandas as pd

    table = pd.read_csv(path)
    columns = {name: f"time_stats.{name}.median" for name in kernels}
    missing = [column for column in columns.values() if column not in table]
    if missing:
        raise TraceError([f"{path}:1: column {column!r} is missing" for column in missing])
    return {name: pd.to_numeric(table[column], errors="coerce") * 1e-3 for name, column in columns.items()}


def _measured(frame: pd.DataFrame, path: Path, device: str) -> Measurements:
    frame = frame[frame["seconds"] > 0].reset_index(drop=True)
    if frame.empty:
        raise TraceError(f"{path}: wanted times in milliseconds, got none above 0")
    return validate(
        frame.assign(dtype=_DTYPE, device=device, engine="vidur", source=f"Vidur profile {path.name}"),
        str(path),
    )
