"""``simkv collect``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from simkv.calibrate.collect import Point, Scale

_QUICK_BUDGET_S = 150.0  # of measuring; starting PyTorch comes on top


def collect(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Table to write or to complete, in Parquet.")
    ],
    quick: Annotated[bool, typer.Option("--quick", help="A subset that takes under three minutes.")] = False,
    device: Annotated[
        str, typer.Option("--device", help="cuda, or cpu to try the command on tiny shapes.")
    ] = "cuda",
    budget_s: Annotated[
        float | None, typer.Option("--budget", help="Stop after so many seconds; run again to go on.", min=0)
    ] = None,
) -> None:
    """Measure kernels on this machine's GPUs: products, attention, norms, sampling, collectives."""
    from simkv.calibrate.collect import collect as measure
    from simkv.calibrate.collect import plan
    from simkv.calibrate.torch_backend import TorchBackend
    from simkv.errors import InputError

    if device not in ("cuda", "cpu"):
        raise InputError(f"--device: wanted cuda or cpu, got {device!r}")
    if output.suffix != ".parquet":
        raise InputError(f"--output: wanted a file that ends in .parquet, got {output}")
    backend = TorchBackend(device)
    scale: Scale = "tiny" if device == "cpu" else "quick" if quick else "full"
    points = plan(scale, backend.num_gpus)
    budget_s = budget_s if budget_s is not None else _QUICK_BUDGET_S if quick else float("inf")
    print(f"{backend.device}: {len(points)} points, saved in {output}", file=sys.stderr)
    try:
        done = measure(points, backend, output, budget_s, _report)
    except KeyboardInterrupt:
        print(f"stopped; {output} has what was measured, run again to go on", file=sys.stderr)
        raise typer.Exit(130) from None
    counts = [f"{done.num_measured} measured", f"{done.num_known} known already"]
    counts += [f"{done.num_impossible} too large for this GPU"] if done.num_impossible else []
    counts += [f"{done.num_left} left: run again to go on"] if done.num_left else []
    print(f"{output}: {', '.join(counts)}")


def _report(point: Point, seconds: float | None) -> None:
    shape = ",".join(str(value) for value in point.shape)
    took = "does not fit" if seconds is None else f"{seconds * 1e6:.1f} us"
    print(f"{point.op} {shape}: {took}", file=sys.stderr)
