"""Drawing a result folder to files."""

from __future__ import annotations

from pathlib import Path

from simkv.errors import ResultsError, did_you_mean
from simkv.results.results import Results


def draw(results: Results, folder: Path, kind: str | None, output: Path | None) -> list[Path]:
    """Draw one kind, or all of them, into `output` or the folder's ``plots``; return the files.

    Raises ResultsError for an unknown kind or a file that cannot be written.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure
    from matplotlib.pyplot import close

    from simkv.plots import KINDS

    if kind is not None and kind not in KINDS:
        raise ResultsError(
            f"--kind: wanted one of {', '.join(KINDS)}, got {kind!r}{did_you_mean(kind, KINDS)}"
        )
    if output is not None and kind is None:
        kind = "overview"
    paths = []
    for name in [kind] if kind is not None else KINDS:
        path = output or folder / "plots" / f"{name}.png"
        drawn = KINDS[name](results)
        figure = drawn if isinstance(drawn, Figure) else drawn.figure
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.stem}.part{path.suffix}")
            figure.savefig(temporary, dpi=150)
            temporary.replace(path)
        except (OSError, ValueError) as error:
            raise ResultsError(f"{path}: cannot be written: {error}") from None
        finally:
            close(figure)
        paths.append(path)
    return paths
