"""Drawing a result folder or a sweep to files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from simkv.errors import ResultsError, did_you_mean
from simkv.plots import KINDS, SWEEP_KINDS
from simkv.plots.ledger import ledger_bars
from simkv.plots.sweep_table import is_sweep, read_points
from simkv.results.results import Results

_OPTIONS = {  # of a kind of a sweep
    "frontier": ("x", "y"),
    "curve": ("x", "y", "by"),
    "heatmap": ("x", "y", "value"),
    "bubbles": ("by",),
}
_MANY = {("curve", "y"), ("curve", "by"), ("bubbles", "by")}  # options that may be given several times


def draw(
    folder: Path,
    kind: str | None,
    output: Path | None,
    options: Mapping[str, list[str]] | None = None,
    batches: Mapping[str, int | None] | None = None,
) -> list[Path]:
    """Draw one kind, or all of them, into `output` or the folder's ``plots``; return the files.

    options   of the kinds of a sweep: ``x``, ``y``, ``by``, ``value``, each with the columns named
    batches   which ones `gantt` shows: ``first_step``, ``num_steps``, ``replica``

    Raises ResultsError for a folder that cannot be read, an unknown kind or column, or a file that cannot be
    written.
    """
    shown = {name: number for name, number in (batches or {}).items() if number is not None}
    given = {name: columns for name, columns in (options or {}).items() if columns}
    if not is_sweep(folder):
        results = Results.load(folder)
        _check_kind(kind, KINDS, "a result folder", SWEEP_KINDS)
        if given:
            raise ResultsError(f"--{next(iter(given))}: wanted the folder of a sweep, got a result folder")
        if kind is None and (shown or output is not None):
            kind = "gantt" if shown else "overview"
        if shown and kind != "gantt":
            raise ResultsError(f"{_first_option(shown)}: wanted --kind gantt, got {kind}")
        kinds = [kind] if kind else KINDS
        return [_save(name, KINDS[name], results, shown, folder, output) for name in kinds]

    if shown:
        raise ResultsError(f"{_first_option(shown)}: wanted a result folder, got the folder of a sweep")
    frame = read_points(folder)
    _check_kind(kind, SWEEP_KINDS, "a sweep", KINDS)
    if kind is None and (given or output is not None):
        kind = "heatmap" if "value" in given else "curve" if "by" in given else "frontier"
    if kind is not None:
        return [_save(kind, SWEEP_KINDS[kind], frame, _arguments(kind, given), folder, output)]
    paths, faults = [], []
    for name in SWEEP_KINDS:  # those that this sweep has the fields for
        try:
            paths.append(_save(name, SWEEP_KINDS[name], frame, {}, folder, None))
        except ResultsError as error:
            faults.append(error)
    if not paths:
        raise faults[0]
    return paths


def _first_option(given: Mapping[str, Any]) -> str:
    return f"--{next(iter(given)).replace('_', '-')}"


def _check_kind(kind: str | None, known: Mapping[str, Any], of: str, others: Mapping[str, Any]) -> None:
    if kind is None or kind in known:
        return
    hint = did_you_mean(kind, known)
    if kind in others:
        hint = f", which is for {'a result folder' if others is KINDS else 'a sweep'}"
    raise ResultsError(f"--kind: wanted one of {', '.join(known)} for {of}, got {kind!r}{hint}")


def _arguments(kind: str, given: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the options of a kind as its function takes them."""
    arguments: dict[str, Any] = {}
    for name, columns in given.items():
        if name not in _OPTIONS[kind]:
            known = ", ".join(f"--{option}" for option in _OPTIONS[kind])
            raise ResultsError(f"--{name}: wanted an option of {kind} ({known}), got one of another kind")
        if len(columns) > 1 and (kind, name) not in _MANY:
            raise ResultsError(f"--{name}: wanted one column for {kind}, got {', '.join(columns)}")
        arguments[name] = columns if (kind, name) in _MANY else columns[0]
    return arguments


def draw_ledger(answer: Mapping[str, Any], output: Path) -> None:
    """Draw the memory ledger of a plan (`Plan.as_dict`); raise ResultsError if the file cannot be written."""
    import matplotlib

    matplotlib.use("Agg")
    write_figure(ledger_bars(answer).figure, output)


def _save(
    kind: str,
    draw_kind: Callable[..., Any],
    data: Any,
    arguments: Mapping[str, Any],
    folder: Path,
    output: Path | None,
) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    path = output or folder / "plots" / f"{kind}.png"
    drawn = draw_kind(data, **arguments)
    write_figure(drawn if isinstance(drawn, Figure) else drawn.figure, path)
    return path


def write_figure(figure: Any, path: Path) -> None:
    """Write a figure whole or not at all, and close it."""
    from matplotlib.pyplot import close

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.stem}.part{path.suffix}")
        figure.savefig(temporary, dpi=150)
        temporary.replace(path)
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: cannot be written: {error}") from None
    finally:
        close(figure)
