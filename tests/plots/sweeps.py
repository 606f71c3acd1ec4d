"""Tables of sweeps that never ran, as `points.parquet` holds them."""

import itertools

import numpy as np
import pandas as pd

TP, PP = "parallel.tensor_parallel_size", "parallel.pipeline_parallel_size"
RATE, CONCURRENCY = "workload.request_rate", "workload.max_concurrency"
CHUNK, CONTEXT, DTYPE = "engine.max_num_batched_tokens", "engine.max_model_len", "engine.kv_cache_dtype"
LATENCIES = [f"{statistic}_{name}_ms" for name in ("ttft", "tpot") for statistic in ("mean", "std", "p99")]


def layout(tp, pp):
    return f"TP{tp}" + (f"×PP{pp}" if pp > 1 else "")


def table(axes, value_of=None, status_of=None):
    """A row for each combination of values; `value_of(point)` gives metrics, `status_of(point)` a status."""
    rows = []
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        tp, pp = point.get(TP, 1), point.get(PP, 1)
        status = status_of(point) if status_of else "done"
        row = point | {"layout": layout(tp, pp), "status": status, "reason": None}
        if status == "done":
            row |= {"num_gpu_blocks": 1000 * tp, "kv_tokens": 16_000 * tp}
            row |= {"max_concurrency": 16_000 * tp / point.get(CONTEXT, 8192)}
            row |= metrics(point, tp, pp) | (value_of(point) if value_of else {})
        rows.append(row)
    frame = pd.DataFrame(rows)
    for name in ("num_gpu_blocks", "kv_tokens", "completed"):
        if name in frame:
            frame[name] = frame[name].astype("Int64")  # as the table of a sweep: NA where nothing ran
    return frame


def metrics(point, tp, pp):
    load = point.get(RATE, 1.0) * point.get(CONCURRENCY, 1)
    chunk = point.get(CHUNK, 8192) / 8192
    capacity = 3.0 * tp * pp**0.8
    served = capacity * load / (capacity + load)
    tpot = 10.0 * (1 + load / capacity) * chunk**0.3 / tp**0.5 * pp**0.2
    ttft = 400.0 * (1 + load / capacity) ** 3 * chunk**-0.2 / tp + 3 * point.get("seed", 0)
    latencies = {"mean_ttft_ms": ttft, "std_ttft_ms": ttft / 9, "p99_ttft_ms": 3 * ttft}
    latencies |= {"mean_tpot_ms": tpot, "std_tpot_ms": 0.0, "p99_tpot_ms": 2 * tpot}
    return {
        "completed": 100,
        "output_throughput": 50.0 * served,
        "mean_stage_utilization": 1 - (pp - 1) / (pp - 1 + 4 * load),
        "mean_kv_cache_usage_perc": 0.5,
    } | latencies


def fits(point):
    """Less than four GPUs do not hold the weights, more than eight are not there."""
    num_gpus = point.get(TP, 1) * point.get(PP, 1)
    return "infeasible" if num_gpus < 4 else "refused" if num_gpus > 8 else "done"


def without_metrics(frame):
    """A sweep of plans only."""
    known = ("layout", "status", "reason", "num_gpu_blocks", "kv_tokens", "max_concurrency")
    return frame[[name for name in frame if "." in name or name in known]]


LOAD = table({TP: [1, 2, 4], RATE: [0.5, 1.0, 2.0, 4.0, 8.0]})
CHUNKS = table({TP: [1, 4], CHUNK: [512, 1024, 2048, 8192, 32768]})
CONTEXTS = without_metrics(table({DTYPE: ["auto", "fp8"], CONTEXT: [8192, 32768, 131072]}))
DEPTHS = table({PP: [1, 2, 4, 8], CONCURRENCY: [1, 8, 32]})
GRID = table({TP: [1, 2, 4, 8], PP: [1, 2, 4, 8]}, status_of=fits)
SEEDS = table({RATE: [1.0, 2.0, 4.0], "seed": [0, 1, 2]})
MANY = table({TP: [1, 2, 4, 8], PP: [1, 2, 4, 8], CHUNK: [2048, 8192], RATE: [0.5, 2.0, 8.0]}, status_of=fits)
NOTHING = table({TP: [1, 2], PP: [1]}, status_of=fits)
WORDS = table({"model": ["llama-3.1-8b", "qwen3-8b"], DTYPE: ["auto", "fp8"]})
UNSERVED = table({RATE: [1.0, 2.0, 4.0]}, lambda p: dict.fromkeys(LATENCIES, 0.0) if p[RATE] > 3 else {})
FOUND = table(
    {CHUNK: [2048, 8192], DTYPE: ["auto", "fp8"]}, lambda p: {"found": p[CHUNK] ** 0.5, "fails": "x"}
)
MAPPINGS = table({"parallel": [{"tensor_parallel_size": 4}, np.array([4, 2])], CHUNK: [2048, 8192]})
SWEEPS = {
    "load": LOAD, "chunks": CHUNKS, "contexts": CONTEXTS, "depths": DEPTHS, "grid": GRID, "seeds": SEEDS,
    "many": MANY, "nothing": NOTHING, "words": WORDS, "unserved": UNSERVED, "found": FOUND, "mappings": MAPPINGS,
}  # fmt: skip
