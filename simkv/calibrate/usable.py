"""What of a table can be calibrated, and what is left out: said in notes, a line each."""

from __future__ import annotations

from simkv.calibrate.collectives import OPS, groups_of
from simkv.calibrate.families import GROUPS
from simkv.calibrate.group import Group
from simkv.calibrate.measurements import BACKENDS, Measurements, held_out
from simkv.calibrate.readers.silicon import split_tables
from simkv.errors import TraceError
from simkv.spec.hardware import HardwareSpec

_WHY_NOT = "of a dtype or shape that no family takes"
_WHY = {"prefill_attention": "of a dtype, length or batch over a context that no family takes"}


def usable(hardware: HardwareSpec, table: Measurements) -> tuple[tuple[Group, ...], list[str]]:
    """Return the groups that have enough points, and what is wrong with those that have some.

    Raises TraceError if nothing is left, collectives neither.
    """
    kernels, between = split_tables(table)
    found, notes = [], []
    for group in GROUPS:
        rows = group.rows(kernels)
        if rows.empty:
            continue
        seen = rows[group.seen(rows) & ~held_out(rows, group.op)]
        if group.dtype not in hardware.gpu.peak_flops_per_s:
            notes.append(f"{group.name}: left out, {hardware.name} has no peak_flops_per_s in {group.dtype}")
        elif len(seen) < 2 * len(group.bounds):
            notes.append(
                f"{group.name}: left out, {len(seen)} points are too few for {len(group.bounds)} parameters"
            )
        else:
            found.append(group)
    if not found and not groups_of(between):
        raise TraceError(["measurements: nothing to calibrate", *notes, *left_out(table)])
    return tuple(found), notes


def left_out(table: Measurements) -> list[str]:
    """Say how many rows of each op no family takes."""
    kernels = split_tables(table).kernels
    taken = {index for group in GROUPS for index in group.taken(kernels).index}
    notes = []
    for op, rows in table.frame.groupby("op", sort=True):
        if str(op) in OPS:
            unused = sum(backend not in BACKENDS for backend in rows["backend"])
        else:
            unused = len(rows.index.difference(list(taken)))
        if unused == len(rows):
            notes.append(f"{op}: left out, no family is fitted to its {unused} rows")
        elif unused:
            notes.append(f"{op}: {unused} of {len(rows)} rows left out, {_WHY.get(str(op), _WHY_NOT)}")
    return notes
