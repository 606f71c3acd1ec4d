"""Whole runs of real servers beside `simkv run`: ``python -m tests.whole_runs`` prints the tables of the docs."""

from pathlib import Path

import yaml

import simkv

DATA = Path(__file__).parent / "data"
ROWS = yaml.safe_load((DATA / "whole_runs.yaml").read_text())
HEADERS = {
    "closed_loop": "| TP | prompt / output | at a time | TTFT, measured | simulated | TPOT, measured | simulated "
    "| preemptions |",
    "trace": "| card | TTFT, measured | simulated | TPOT, measured | simulated | preemptions |",
}
CLOSED_LOOP = """
model: nvidia/Llama-3.3-70B-Instruct-FP8
hardware: h100_sxm_x8
parallel: {{tensor_parallel_size: {tensor_parallel_size}}}
engine:
  vllm_version: 0.10.2
  async_scheduling: true
  kv_cache_dtype: auto
  max_model_len: 32768
  max_num_seqs: {max_concurrency}
  max_num_batched_tokens: 8192
  gpu_memory_utilization: 0.9
  enable_prefix_caching: false
workload:
  max_concurrency: {max_concurrency}
  num_prompts: {num_prompts}
  prompt_len: {{uniform: {{min: {least_input}, max: {isl}}}}}
  output_len: {{uniform: {{min: {least_output}, max: {osl}}}}}
"""
TRACE = """
model: meta-llama/Llama-3.1-8B
hardware: {hardware}
engine:
  vllm_version: 0.19.0
  max_model_len: {max_model_len}
  max_num_seqs: {max_num_seqs}
  max_num_batched_tokens: 2048
  gpu_memory_utilization: 0.9
workload: {{dataset_name: azure, dataset_path: whole_run_{hardware}.csv}}
"""


def simulate(kind, row):
    """The summary of a row's run."""
    if kind == "trace":
        text = TRACE.format(**row)
    else:
        least = {"least_input": int(0.8 * row["isl"]), "least_output": int(0.8 * row["osl"])}
        text = CLOSED_LOOP.format(**row, **least, num_prompts=10 * row["max_concurrency"])
    return simkv.simulate(simkv.parse_scenario(text), base_dir=DATA).summary


def errors(row, summary):
    """Relative errors of TTFT and TPOT."""
    return tuple(summary[key] / row[key] - 1 for key in ("mean_ttft_ms", "mean_tpot_ms"))


def line_of(kind, row, summary):
    ttft, tpot = errors(row, summary)
    if kind == "closed_loop":
        lengths = f"{row['isl']:,} / {row['osl']:,}"
        which = f"| {row['tensor_parallel_size']} | {lengths} | {row['max_concurrency']} "
    else:
        which = f"| {row['hardware']} "
    return (
        f"{which}| {row['mean_ttft_ms']:,.0f} ms | {summary['mean_ttft_ms']:,.0f} ms, {100 * ttft:+.0f} % "
        f"| {row['mean_tpot_ms']:.1f} ms | {summary['mean_tpot_ms']:.1f} ms, {100 * tpot:+.0f} % "
        f"| {summary['num_preemptions']:,} |"
    )


if __name__ == "__main__":
    for each, rows in ROWS.items():
        print(HEADERS[each], "|---" * HEADERS[each].count(" | ") + "|---|", sep="\n")
        for one in rows:
            print(line_of(each, one, simulate(each, one)), flush=True)
