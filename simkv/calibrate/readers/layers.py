"""Reader of per-layer profiles in the format of LLMServingSim: one layer of a model under vLLM, times in µs.

``*_attention.csv`` (one call with a chunk, decodes or both), ``*_dense.csv`` (layers by tokens),
``*_per_sequence.csv`` (head and sampler by sequences), ``*_skew.csv`` (decodes of uneven contexts). Source:
LLMServingSim profiles (MIT), vLLM 0.19.

The times of ``*_skew.csv`` are those of three calls: with equal contexts they are 3.00 times the attention
file's at all 26,012 shapes that two published pairs share (5th to 95th percentile 2.98 to 3.06). Its rows with a
prefill chunk beside the decodes have no place in the schema and are left out.

A folder of profiles has a card's files as ``CARD_MODEL_tpN_KIND.csv``, the card being the system's name without
underscores (``rtx4090`` for rtx_4090) and the model a shipped one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from simkv.calibrate.measurements import Measurements, validate
from simkv.calibrate.readers.tables import read_csv
from simkv.errors import TraceError
from simkv.load.model import find_model
from simkv.spec.model import ModelSpec
from simkv.units import ceil_div

if TYPE_CHECKING:
    import pandas as pd

SOURCE = "LLMServingSim profiles (MIT)"
_SKEW_CALLS = 3
# kernels that move bytes, with the elements of a token that each puts out
ELEMENTWISE = ("embedding", "layernorm", "rotary_emb", "act_fn", "final_layernorm")
GEMMS = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")


def read_profiles(
    root: Path, system: str, engine: str = "vllm", engine_version: str = "0.19"
) -> Measurements:
    """Read every file of a system's card in a folder; raise TraceError if there is none."""
    import pandas as pd

    card = system.replace("_", "")
    pattern = re.compile(rf"{re.escape(card)}_(.+)_tp(\d+)_[a-z_]+\.csv")
    found = [(path, named) for path in sorted(root.glob("*.csv")) if (named := pattern.fullmatch(path.name))]
    if not found:
        raise TraceError(f"{root}: wanted per-layer profiles {card}_MODEL_tpN_KIND.csv; found none")
    tables = [
        read_layers(path, system, find_model(named[1]), int(named[2]), engine, engine_version).frame
        for path, named in found
    ]
    frame = pd.concat([table.dropna(axis="columns", how="all") for table in tables], ignore_index=True)
    return validate(frame, str(root))


def read_layers(
    path: Path,
    device: str,
    model: ModelSpec,
    tensor_parallel_size: int = 1,
    engine: str = "vllm",
    engine_version: str = "0.19",
) -> Measurements:
    """Read one file of a profile of `model` on `device`, sharded over `tensor_parallel_size`.

    Which of the four it is says the end of its name. Raises TraceError if it is none of them or is malformed.
    """
    found = next((read for ending, read in _READERS.items() if path.name.endswith(ending)), None)
    if found is None:
        raise TraceError(f"{path}: wanted a name ending in {', '.join(_READERS)}")
    frame = found(path, model, tensor_parallel_size)
    frame["dtype"] = model.dtype
    frame["device"] = device
    frame["engine"], frame["engine_version"] = engine, engine_version
    frame["source"] = f"LLMServingSim profile {path.name}"
    return validate(frame, str(path))


def _heads(frame: pd.DataFrame, model: ModelSpec, tp: int) -> pd.DataFrame:
    return frame.assign(
        heads=model.num_attention_heads // tp,
        kv_heads=max(1, model.num_key_value_heads // tp),
        head_dim=model.head_dim,
        kv_dtype=model.dtype,
    )


def _read_attention(path: Path, model: ModelSpec, tp: int) -> pd.DataFrame:
    import pandas as pd

    rows = read_csv(path, ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"))
    rows["seconds"] = rows.pop("time_us") * 1e-6
    has_chunk, has_decodes = rows["prefill_chunk"] > 0, rows["n_decode"] > 0
    names = {"prefill_chunk": "chunk", "kv_prefill": "context"}
    chunks = rows[has_chunk & ~has_decodes].drop(columns=["n_decode", "kv_decode"]).rename(columns=names)
    decodes = rows[has_decodes & ~has_chunk].drop(columns=["prefill_chunk", "kv_prefill"])
    mixed = rows[has_chunk & has_decodes].rename(
        columns={**names, "n_decode": "batch", "kv_decode": "decode_context"}
    )
    return _heads(
        pd.concat(
            [
                chunks.assign(op="prefill_attention", batch=1),
                decodes.rename(columns={"n_decode": "batch", "kv_decode": "context"}).assign(
                    op="decode_attention"
                ),
                mixed.assign(op="mixed_attention"),
            ],
            ignore_index=True,
        ),
        model,
        tp,
    )


def _read_dense(path: Path, model: ModelSpec, tp: int) -> pd.DataFrame:
    rows = read_csv(path, ("layer", "tokens", "time_us"), text=("layer",))
    q_size = model.num_attention_heads // tp * model.head_dim
    kv_size = max(1, model.num_key_value_heads // tp) * model.head_dim
    mlp_size, hidden = ceil_div(model.intermediate_size, tp), model.hidden_size
    widths = {
        "embedding": hidden,
        "layernorm": hidden,
        "final_layernorm": hidden,
        "rotary_emb": q_size + kv_size,
        "act_fn": mlp_size,
    }
    products = {  # n, k
        "qkv_proj": (q_size + 2 * kv_size, hidden),
        "o_proj": (hidden, q_size),
        "gate_up_proj": (2 * mlp_size, hidden),
        "down_proj": (hidden, mlp_size),
    }
    _check_layers(path, rows, (*ELEMENTWISE, *GEMMS))
    rows["seconds"] = rows.pop("time_us") * 1e-6
    is_gemm = rows["layer"].isin(GEMMS)
    rows["op"] = is_gemm.map({True: "gemm", False: "elementwise"})
    rows["kernel"] = rows["layer"].where(~is_gemm)
    rows["width"] = rows["layer"].map(widths)
    rows["m"] = rows["tokens"].where(is_gemm)
    rows["n"] = rows["layer"].map({layer: n for layer, (n, _) in products.items()})
    rows["k"] = rows["layer"].map({layer: k for layer, (_, k) in products.items()})
    return rows.drop(columns="layer")


def _read_per_sequence(path: Path, model: ModelSpec, tp: int) -> pd.DataFrame:
    rows = read_csv(path, ("layer", "sequences", "time_us"), text=("layer",))
    _check_layers(path, rows, ("lm_head", "sampler"))
    rows["seconds"] = rows.pop("time_us") * 1e-6
    is_head = rows["layer"] == "lm_head"
    rows["n"] = is_head.map({True: ceil_div(model.vocab_size, tp), False: model.vocab_size})
    rows["k"] = is_head.map({True: model.hidden_size, False: None})
    return rows.rename(columns={"layer": "op", "sequences": "tokens"})


def _read_skew(path: Path, model: ModelSpec, tp: int) -> pd.DataFrame:
    rows = read_csv(path, ("n", "nb", "skew", "pc", "kvs", "t_skew_us"))
    rows = rows[rows["pc"] == 0].drop(columns="pc")
    rows["seconds"] = rows.pop("t_skew_us") * 1e-6 / _SKEW_CALLS
    names = {"n": "batch", "nb": "num_long", "kvs": "context"}  # context of the short ones
    return _heads(rows.rename(columns=names).assign(op="skewed_attention"), model, tp)


def _check_layers(path: Path, rows: pd.DataFrame, known: tuple[str, ...]) -> None:
    unknown = sorted({str(layer) for layer in rows["layer"]} - set(known))
    if unknown:
        raise TraceError(f"{path}: layer: wanted one of {', '.join(known)}, got {', '.join(unknown)}")


_READERS: dict[str, Callable[[Path, ModelSpec, int], pd.DataFrame]] = {
    "_attention.csv": _read_attention,
    "_dense.csv": _read_dense,
    "_per_sequence.csv": _read_per_sequence,
    "_skew.csv": _read_skew,
}
