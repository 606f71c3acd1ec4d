"""Reader of the kernel tables of the PyPI package ``aiconfigurator-core`` (Apache-2.0), a system at a time.

Only its data files are read: ``systems/data/<system>/<op>/<engine>/<version>/*.parquet``; in the folder of an
unpacked ``aiconfigurator`` up to 0.10, which has older engine versions, there is no folder by op. Latencies are
in milliseconds. Attention tables have whole prompts (`step` is 0 in every row) and decodes whose context is
`step` + `isl`; rows with a sliding window are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from simkv.calibrate.measurements import Measurements, validate
from simkv.errors import TraceError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

PACKAGE = "aiconfigurator_core"
SOURCE = "aiconfigurator-core 0.12.0"
OLDER_SOURCE = "aiconfigurator 0.10.0"
DATA = Path("systems") / "data"
_TABLES = {
    "gemm": ("gemm", "gemm_perf"),
    "prefill_attention": ("attention", "context_attention_perf"),
    "decode_attention": ("attention", "generation_attention_perf"),
}
_MILLISECOND = 1e-3


def find_root() -> Path:
    """Return the folder of the installed package; raise TraceError if it is not installed."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise TraceError(
            "source aiconfigurator: the measured tables are not installed; pip install 'simkv[silicon]', "
            f"or give the folder of an unpacked {PACKAGE}"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def is_older(root: Path, system: str) -> bool:
    """True for the layout of ``aiconfigurator`` up to 0.10: no folders by op."""
    return not (root / DATA / system / "gemm").is_dir()


def source_of(root: Path, system: str) -> str:
    """Return the package and version whose layout a folder has."""
    return OLDER_SOURCE if is_older(root, system) else SOURCE


def table_file(root: Path, system: str, folder: str, engine: str, version: str, name: str) -> Path:
    """Return where a table of a system lies, in either layout."""
    data = root / DATA / system
    owner = data / engine if is_older(root, system) else data / folder / engine
    return owner / version / f"{name}.parquet"


def read_aiconfigurator(
    system: str, version: str, engine: str = "vllm", root: Path | None = None
) -> Measurements:
    """Read matrix products and attention of one system and engine version.

    `root` is the package's folder (the one with ``systems`` in it), None = where it is installed. Raises
    TraceError if system, engine or version are not there, naming those that are.
    """
    import pandas as pd

    root = root or find_root()
    data = root / DATA
    if not data.is_dir():
        raise TraceError(f"{data}: is not a folder of {SOURCE}")
    _choose("system", system, (path.name for path in data.iterdir() if path.is_dir()))
    # not every version has every table
    names = {name for _, name in _TABLES.values()}
    pattern = "*/*/*.parquet" if is_older(root, system) else "*/*/*/*.parquet"
    known = [path.parts[-3:-1] for path in (data / system).glob(pattern) if path.stem in names]
    _choose("engine", engine, (found for found, _ in known))
    _choose("version", version, (found for owner, found in known if owner == engine))
    source = source_of(root, system)
    frames = []
    for op, (folder, name) in _TABLES.items():
        file = table_file(root, system, folder, engine, version, name)
        if file.exists():
            frame = _READERS[op](_read(file)).assign(op=op)
            frames.append(frame.assign(device=system, engine=engine, engine_version=version, source=source))
    return validate(pd.concat(frames, ignore_index=True), f"{source} {system} {engine} {version}")


def _choose(kind: str, name: str, known: Iterable[str]) -> None:
    found = sorted(set(known))
    if name not in found:
        raise TraceError(f"{kind}: wanted one of {', '.join(found)}, got {name!r}{did_you_mean(name, found)}")


def _read(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except Exception as error:  # what pandas and pyarrow raise on broken files has no common base
        raise TraceError(f"{path}: wanted a Parquet table: {error}") from None


def _gemm(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[["m", "n", "k"]].assign(dtype=frame["gemm_dtype"], seconds=frame["latency"] * _MILLISECOND)


def _prefill(frame: pd.DataFrame) -> pd.DataFrame:
    frame = _without_window(frame)
    frame = frame[frame["step"] == 0] if "step" in frame else frame
    return _heads(frame).assign(chunk=frame["isl"], context=0)


def _decode(frame: pd.DataFrame) -> pd.DataFrame:
    frame = _without_window(frame)
    return _heads(frame).assign(context=frame["step"] + frame["isl"])


def _without_window(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["window_size"] == 0] if "window_size" in frame else frame


def _heads(frame: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(
        {
            "batch": frame["batch_size"],
            "heads": frame["num_heads"],
            "kv_heads": frame["num_key_value_heads"],
            "head_dim": frame["head_dim"],
            "dtype": frame["attn_dtype"],
            "kv_dtype": frame["kv_cache_dtype"],
            "seconds": frame["latency"] * _MILLISECOND,
        }
    )


_READERS = {"gemm": _gemm, "prefill_attention": _prefill, "decode_attention": _decode}
