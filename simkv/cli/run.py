"""``simkv run``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simkv.cli.options import (
    AsJson,
    BenchCommand,
    Hardware,
    MaybeScenarioFile,
    Overrides,
    SaveTo,
    ServeCommand,
    check_output_files,
    read_scenario,
    write_text,
)
from simkv.cli.progress import show_progress

if TYPE_CHECKING:
    from simkv.results.results import Results


def run(
    file: MaybeScenarioFile = None,
    overrides: Overrides = None,
    vllm: ServeCommand = None,
    bench: BenchCommand = None,
    hardware: Hardware = None,
    save: SaveTo = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Result folder; default: results/NAME, or the next free."),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Replace an existing result folder, and the files of --prometheus and --trace."
        ),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Audit block and request conservation at every step.")
    ] = False,
    prometheus: Annotated[
        Path | None,
        typer.Option("--prometheus", help="Write vLLM's /metrics at the end to a new file.", metavar="FILE"),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", help="Write a timeline for the Perfetto UI to a new file.", metavar="FILE"),
    ] = None,
    physical: Annotated[
        bool, typer.Option("--physical", help="Kernels by fitted forms alone, without measured residuals.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Simulate a scenario: latency, throughput, and where the time goes."""
    from simkv.results.export import check_target
    from simkv.run import simulate

    check_output_files({"--save": save, "--prometheus": prometheus, "--trace": trace}, force, output)
    scenario, base_dir = read_scenario(file, overrides, vllm, bench, hardware, save)
    folder = output or _next_free(Path("results") / scenario.name)
    check_target(folder, overwrite=force)
    with show_progress() as progress:
        results = simulate(
            scenario, base_dir=base_dir, check=check, progress=progress, physical_only=physical
        )
    results.save(folder, overwrite=force)
    if prometheus is not None:
        from simkv.results.prometheus import exposition

        write_text(
            prometheus, exposition(results), "--force to replace it or another --prometheus", overwrite=force
        )
    if trace is not None:
        from simkv.results.trace import write_trace

        write_trace(results, trace)
    print(json.dumps(results.summary, indent=2) if as_json else _report(results))
    print(f"saved in {folder}; draw it with: simkv plot {folder}", file=sys.stderr)
    if not results.summary["is_complete"]:
        print("stopped early: the result holds what was served until then", file=sys.stderr)
        raise typer.Exit(130)


def _report(results: Results) -> str:
    from simkv.planning import format_ledger
    from simkv.results.bubbles import format_bubbles
    from simkv.results.table import format_bench_table, format_breakdown, format_stages

    summary = results.summary
    parts = [
        format_bench_table(summary),
        "\n".join(format_ledger(results.ledger)) if results.ledger else "",
        format_breakdown(summary),
        format_stages(summary),
        format_bubbles(summary),
    ]
    return "\n\n".join(part.strip("\n") for part in parts)


def _next_free(folder: Path) -> Path:
    """A new run never overwrites an old one: quickstart, quickstart-2, quickstart-3, …"""
    candidate, number = folder, 2
    while candidate.exists():
        candidate = folder.with_name(f"{folder.name}-{number}")
        number += 1
    return candidate
