"""What a vLLM server's start-up log says: the options it ran with, and the memory it measured.

Wordings of V0 and of V1 up to 0.32; lines that are not known are passed over. Figures are in GiB, which older
versions called GB, or counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from simkv.errors import TraceError
from simkv.load.command_line import FieldPath, Flag, Left, WrongValueError
from simkv.load.startup_wordings import (
    BEGINS,
    CACHED,
    FEWEST,
    GPU,
    HAS_OPTIONS,
    NOT_TAKEN,
    OOM,
    OPTIONS,
    PATTERNS,
    RANK,
    REFUSED,
    SIGNS,
    STAGE,
    STARTED,
)
from simkv.load.vllm_flags import serve_flags
from simkv.units import GIB

MAX_LOG_BYTES = 200_000_000  # a start-up log has kilobytes; beyond this it is another file


class Stated(NamedTuple):
    """A value of the log and the line, from 1, that states it."""

    value: Any
    line: int


@dataclass
class StartupLog:
    """What one log says.

    settings   options and the GPU's memory, by the path of their field
    figures    what was measured, by name and pipeline stage; logs of one rank have stage 0
    outcome    ``started``, ``refused``, ``oom``, or None if the log ends before it is known
    error      the line that tells why it did not start
    gpu        the GPU's name, which vLLM prints where it looks for a tuned kernel; empty if it does not
    warnings   what the log says and a prediction does not take in
    """

    path: str
    settings: dict[FieldPath, Stated] = field(default_factory=dict)
    figures: dict[str, dict[int, Stated]] = field(default_factory=dict)
    outcome: str | None = None
    error: str = ""
    gpu: str = ""
    warnings: list[str] = field(default_factory=list)

    def figure(self, name: str, stage: int = 0) -> float | None:
        """A figure of a stage, None where the log does not show it."""
        stated = self.figures.get(name, {}).get(stage)
        return None if stated is None else stated.value


def read_startup_log(path: Path) -> StartupLog:
    """Read a log; raise TraceError if it cannot be read or has none of vLLM's memory lines."""
    try:
        if path.stat().st_size > MAX_LOG_BYTES:
            raise TraceError(f"{path}: wanted a start-up log, got more than {MAX_LOG_BYTES:,} bytes")
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_startup_log(text, str(path))


def parse_startup_log(text: str, source: str = "log") -> StartupLog:
    """Return what the lines of a log state; of several the first holds, a stage each, of blocks the fewest.

    Of several servers in a file the first is read.

    >>> log = parse_startup_log("INFO ... Model loading took 14.99 GiB and 6.1 seconds")
    >>> log.figure("weights"), log.figure("kv")
    (14.99, None)

    Raises TraceError if there is none of vLLM's memory lines.
    """
    log = StartupLog(source)
    flags = serve_flags()
    ranks: list[tuple[str, int, Stated]] = []  # figures of a rank: its stage is known at the end
    for number, line in enumerate(text.splitlines(), start=1):
        lowered = line.lower()
        if BEGINS.search(line) and (log.error or set(FEWEST) & set(log.figures)):
            log.warnings.append(f"line {number} begins another server: only the first is read")
            break
        if not any(sign in lowered for sign in SIGNS):
            continue
        if HAS_OPTIONS.search(line):
            _read_options(line, number, flags, log)
        for name, value in _values(line):
            _note(name, Stated(value, number), line, log, ranks)
        _judge(line, log)
        if not log.gpu and (match := GPU.search(line)):
            log.gpu = (match[1] or match[2]).replace("_", " ").strip()
    tp = log.settings.get(("parallel", "tensor_parallel_size"), Stated(1, 0)).value
    for name, rank, stated in ranks:
        _keep(log.figures.setdefault(name, {}), name, rank // tp, stated)
    _peak_to_activation(log)
    if ("engine", "vllm_version") not in log.settings:
        log.warnings.append("the log does not state vLLM's version")
    if not log.figures and not log.error:
        raise TraceError(
            f"{source}: wanted a vLLM start-up log, with a line such as 'Model loading took 14.99 GiB' or "
            "'GPU KV cache size: 399,024 tokens', got none"
        )
    return log


def _values(line: str) -> Iterator[tuple[str, float | str]]:
    for pattern, names in PATTERNS:
        for match in pattern.finditer(line):
            for name, text in zip(names, match.groups(), strict=True):
                if name == "engine.vllm_version":
                    yield name, text
                elif name != "-":
                    yield name, float(text.replace(",", ""))


def _note(
    name: str, stated: Stated, line: str, log: StartupLog, ranks: list[tuple[str, int, Stated]]
) -> None:
    section, dot, option = name.partition(".")
    if dot:
        value = stated.value
        if isinstance(value, float) and value.is_integer() and option != "gpu_memory_utilization":
            value = int(value)
        log.settings.setdefault((section, option), stated._replace(value=value))
    elif name == "total":
        quantity = {"value": stated.value * GIB, "source": f"{log.path}:{stated.line}"}
        log.settings.setdefault(("hardware", "gpu", "memory_bytes"), stated._replace(value=quantity))
        log.figures.setdefault(name, {}).setdefault(0, stated)
    elif match := RANK.search(line):
        ranks.append((name, int(match[1]), stated))
    else:
        stage = int(match[1]) if (match := STAGE.search(line)) else 0
        _keep(log.figures.setdefault(name, {}), name, stage, stated)


def _keep(by_stage: dict[int, Stated], name: str, stage: int, stated: Stated) -> None:
    """Keep the first figure of a stage; of graphs the last, since from 0.21 on the first is an estimate's.

    Every worker prints its own blocks and tokens in some versions: the fewest decide.
    """
    known = by_stage.get(stage)
    is_fewer = name in FEWEST and known is not None and stated.value < known.value
    if known is None or name == "graphs" or is_fewer:
        by_stage[stage] = stated


def _peak_to_activation(log: StartupLog) -> None:
    """V0 from 0.6.4 on states the peak with the weights in it."""
    weights = log.figures.get("weights", {})
    for stage, peak in log.figures.get("peak", {}).items():
        if stage in weights:
            activation = peak._replace(value=round(peak.value - weights[stage].value, 2))
            log.figures.setdefault("activation", {}).setdefault(stage, activation)


def _read_options(line: str, number: int, flags: dict[str, Flag], log: StartupLog) -> None:
    """Take the options of a line such as ``non-default args: {'max_model_len': 8192}``."""
    for pattern, what in NOT_TAKEN:
        if pattern.search(line) and what not in log.warnings:
            log.warnings.append(what)
    for option, name in OPTIONS.items():
        match = re.search(rf"\b{option}'?\s*[=:]\s*(?:'([^']*)'|\"([^\"]*)\"|([^\s,)}}\]]+))", line)
        text = next((group for group in match.groups() if group), "") if match else ""
        if text in ("", "None", "auto"):
            continue
        if cached := CACHED.search(text):
            text = f"{cached[1]}/{cached[2]}"
        flag = flags["--" + name.replace("_", "-")]
        assert flag.path is not None
        try:
            value = text == "True" if flag.takes == "switch" else flag.parse(text.removeprefix("torch."))
        except WrongValueError:
            continue  # a form of the option that is not known
        if value is not None and not isinstance(value, Left):
            log.settings.setdefault(flag.path, Stated(value, number))


def _judge(line: str, log: StartupLog) -> None:
    """Note what became of the start-up."""
    if any(phrase in line for phrase in REFUSED):
        outcome = "refused"
    elif OOM.search(line):
        outcome = "oom"
    elif STARTED.search(line) and log.outcome is None:
        log.outcome = "started"
        return
    else:
        return
    if not log.error:
        log.outcome, log.error = outcome, line.strip()
