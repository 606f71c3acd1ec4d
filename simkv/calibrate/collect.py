"""What the collector measures, in which order, and how it survives interruptions.

The plan is a list of points in the schema of `simkv.calibrate.measurements`. A backend times them; the table is
saved every few seconds, so a run that is stopped goes on where it was when started again with the same file.
First comes what nobody has published: attention of a chunk over a long cached prefix.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from simkv.calibrate.measurements import SHAPE_COLUMNS, Measurements, read_measurements, validate

if TYPE_CHECKING:
    import pandas as pd

Scale = Literal["full", "quick", "tiny"]

_SAVE_EVERY_S = 20.0
_MAX_SAMPLED = 512  # rows of the head: one for each sequence of a batch
_KV_MAX_BYTES = 8 * 1024**3  # a decode batch beyond this much KV teaches nothing new
_HEAD_DIM = 128
VOCABULARY = 128_256  # of Llama 3.1: words of the head, the embedding and the sampler


class Dimensions(NamedTuple):
    """A model on one rank: its heads, the products of its layers as (n, k), that of the vocabulary."""

    heads: int
    kv_heads: int
    products: tuple[tuple[int, int], ...]
    head: tuple[int, int]


@dataclass(frozen=True)
class Point:
    """One kernel at one shape; `shape` has a value for each of the op's shape columns."""

    op: str
    shape: tuple[int | str, ...]
    dtype: str = "bfloat16"
    backend: str | None = None

    @property
    def row(self) -> dict[str, int | str | None]:
        """The columns of the schema that say what is measured."""
        named = dict(zip(SHAPE_COLUMNS[self.op], self.shape, strict=True))
        kv_dtype = self.dtype if self.op.endswith("attention") else None
        return {"op": self.op, **named, "dtype": self.dtype, "kv_dtype": kv_dtype, "backend": self.backend}


class Backend(Protocol):
    """Something that times points: PyTorch on a GPU, or a fake in tests."""

    device: str  # the GPU's name
    engine: str
    engine_version: str
    num_gpus: int

    def measure(self, points: Sequence[Point]) -> Iterator[tuple[Point, float | None]]:
        """Yield each point with its median seconds, or None if it cannot run here (memory)."""
        ...


class Outcome(NamedTuple):
    """The table, and how many points were measured now, skipped as known, impossible here, and left."""

    measurements: Measurements
    num_measured: int
    num_known: int
    num_impossible: int
    num_left: int


def dimensions(hidden: int, intermediate: int, heads: int, kv_heads: int, tp: int) -> Dimensions:
    """Shard a Llama over `tp` ranks: QKV, output, gate-up and down products."""
    q_size, kv_size = heads // tp * _HEAD_DIM, kv_heads // tp * _HEAD_DIM
    mlp = intermediate // tp
    products = ((q_size + 2 * kv_size, hidden), (hidden, q_size), (2 * mlp, hidden), (hidden, mlp))
    return Dimensions(heads // tp, kv_heads // tp, products, (VOCABULARY // tp, hidden))


def plan(scale: Scale, num_gpus: int = 1) -> list[Point]:
    """Return the points to measure.

    ``full``    Llama 8B and 70B at TP 1, 2, 4, 8; chunks to 16,384 over prefixes to 262,144
    ``quick``   a subset of under three minutes
    ``tiny``    a few small shapes, to try the command on a CPU
    """
    ranks = [
        dimensions(*model, tp)
        for model in ((4096, 14336, 32, 8), (8192, 28672, 64, 8))
        for tp in (1, 2, 4, 8)
    ]
    if scale == "full":
        points = _attention(ranks, _doubling(64, 16384), (0, *_doubling(512, 262144)))
        points += _gemms(ranks, _doubling(1, 16384))
        points += _decodes(ranks, (1, 2, 4, 8, 16, 32, 64, 128, 256), _doubling(512, 131072))
        points += _elementwise(ranks, _doubling(1, 16384)) + _samplers(_doubling(1, 512))
        points += _collectives(num_gpus, _doubling(1024, 512 * 1024**2))
    elif scale == "quick":
        few = [ranks[0], ranks[7]]  # 8B at TP 1, 70B at TP 8
        more = [*few, ranks[1], ranks[2], ranks[6]]  # and 8B at TP 2 and 4, 70B at TP 4
        chunks, contexts = (128, *_doubling(512, 8192)), (2048, 8192, 32768, 131072, 262144)
        points = _attention(more, chunks, contexts)
        points += _attention([*more, ranks[4]], _doubling(128, 16384), (0,))
        points += _gemms(few, (1, 16, 64, 256, 1024, 4096, 8192))
        points += _decodes(few, (1, 4, 16, 64, 256), (512, 2048, 8192, 32768, 131072))
        points += _elementwise(few, _doubling(1, 8192)) + _samplers(_doubling(1, 256))
        points += _collectives(num_gpus, [4096 * 4**i for i in range(9)])
    else:
        small = [Dimensions(2, 1, ((64, 32),), (96, 32))]
        points = _attention(small, (16, 32), (0, 64)) + _gemms(small, (1, 8))
        points += _decodes(small, (1, 2), (64,)) + _elementwise(small, (1, 8)) + _samplers((1, 8), (96,))
        points += [Point(op, (num_gpus, 4096), backend="gloo") for op in ("all_reduce",) if num_gpus > 1]
    return list(dict.fromkeys(points))


def _doubling(first: int, last: int) -> tuple[int, ...]:
    return tuple(itertools.takewhile(lambda n: n <= last, (first << i for i in itertools.count())))


def _attention(ranks: Sequence[Dimensions], chunks: Sequence[int], contexts: Sequence[int]) -> list[Point]:
    return [
        Point("prefill_attention", (1, chunk, context, rank.heads, rank.kv_heads, _HEAD_DIM))
        for rank, chunk, context in itertools.product(ranks, chunks, contexts)
    ]


def _gemms(ranks: Sequence[Dimensions], rows: Sequence[int]) -> list[Point]:
    products = [Point("gemm", (m, n, k)) for rank in ranks for n, k in rank.products for m in rows]
    heads = [Point("gemm", (m, *rank.head)) for rank in ranks for m in rows if m <= _MAX_SAMPLED]
    return products + heads


def _decodes(ranks: Sequence[Dimensions], batches: Sequence[int], contexts: Sequence[int]) -> list[Point]:
    return [
        Point("decode_attention", (batch, context, rank.heads, rank.kv_heads, _HEAD_DIM))
        for rank, batch, context in itertools.product(ranks, batches, contexts)
        if batch * context * rank.kv_heads * _HEAD_DIM * 4 <= _KV_MAX_BYTES
    ]


def _elementwise(ranks: Sequence[Dimensions], tokens: Sequence[int]) -> list[Point]:
    """What stands for vLLM's kernels that move bytes (`simkv.cost.stand_ins`), as wide as a model has them."""
    found = []
    for rank in ranks:
        hidden, inner = rank.products[0][1], rank.products[-1][1]
        rotated = (rank.heads + rank.kv_heads) * _HEAD_DIM
        widths = {"rms_norm": hidden, "glu": inner, "copy": rotated, "gather": hidden}
        found += [Point("elementwise", (name, m, width)) for name, width in widths.items() for m in tokens]
    return found


def _samplers(rows: Sequence[int], vocabularies: Sequence[int] = (32_000, VOCABULARY)) -> list[Point]:
    return [Point("sampler", (m, n)) for n in vocabularies for m in rows]


def _collectives(num_gpus: int, sizes: Sequence[int]) -> list[Point]:
    ops = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    groups = [size for size in (2, 4, 8) if size <= num_gpus]
    points = [Point(op, (n, size), backend="nccl") for n in groups for op in ops for size in sizes]
    pairs = [Point("send_recv", (2, size), backend="nccl") for size in sizes]
    return points + pairs if groups else []


def collect(
    points: Sequence[Point],
    backend: Backend,
    output: Path,
    budget_s: float = float("inf"),
    progress: Callable[[Point, float | None], None] = lambda point, seconds: None,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Measure the points that `output` does not have yet for this device, and save the table there.

    Stops after `budget_s`, and on Ctrl-C or any error once what is measured is saved.
    """
    known = read_measurements(output).frame if output.exists() else None
    done = _keys(known, backend.device, backend.engine)
    todo = [point for point in points if _key(point.row) not in done]
    rows: list[dict[str, object]] = []
    num_done = num_impossible = 0
    start = saved = clock()
    try:
        for point, seconds in backend.measure(todo) if todo else ():
            num_done += 1
            num_impossible += seconds is None
            if seconds is not None:
                rows.append({**point.row, "seconds": seconds, **_provenance(backend)})
            progress(point, seconds)
            if clock() - saved > _SAVE_EVERY_S:
                _save(output, known, rows)
                saved = clock()
            if clock() - start > budget_s:
                break
    finally:
        table = _save(output, known, rows)
    num_left = len(todo) - num_done
    return Outcome(table, len(rows), len(points) - len(todo), num_impossible, num_left)


def _provenance(backend: Backend) -> dict[str, str]:
    return {
        "device": backend.device,
        "engine": backend.engine,
        "engine_version": backend.engine_version,
        "source": f"simkv collect, {time.strftime('%Y-%m-%d')}",
    }


def _key(row: Mapping[str, object]) -> tuple[object, ...]:
    """What makes a point: numbers that came back as floats are the integers they were, NaN is None."""
    op = str(row["op"])
    values = (row[column] for column in (*SHAPE_COLUMNS[op], "dtype", "backend"))
    plain = (int(value) if isinstance(value, float) and isfinite(value) else value for value in values)
    return (op, *(value if isinstance(value, int | str) else None for value in plain))


def _keys(known: pd.DataFrame | None, device: str, engine: str) -> set[tuple[object, ...]]:
    if known is None:
        return set()
    rows = known[(known["device"] == device) & (known["engine"] == engine)].to_dict("records")
    return {_key({str(name): value for name, value in row.items()}) for row in rows}


def _save(output: Path, known: pd.DataFrame | None, rows: list[dict[str, object]]) -> Measurements:
    """Write old and new rows; a crash while writing leaves the old file."""
    import pandas as pd

    new = pd.DataFrame(rows, columns=["op", "seconds", "device"] if not rows else None)
    new = validate(new, str(output)).frame
    frame = new if known is None or known.empty else known if new.empty else pd.concat([known, new])
    frame = frame.reset_index(drop=True)
    partial = output.with_name(f".{output.name}.partial")
    frame.to_parquet(partial, index=False)
    partial.replace(output)
    return Measurements(frame)
