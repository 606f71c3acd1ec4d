"""Real command lines of vLLM as fields of a scenario: the server's, the clients', or both."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from simkv.errors import ScenarioError
from simkv.load.command_line import FieldPath, Ignored, Reading
from simkv.load.vllm_bench import read_bench
from simkv.load.vllm_serve import read_serve


@dataclass(frozen=True)
class Commands:
    """What command lines say of a scenario.

    settings   values by path, such as ``("engine", "block_size"): 32``
    said_by    for a path, the option and the flag to name where its value is wrong
    ignored    what sets no field, and why
    """

    settings: dict[FieldPath, Any] = field(default_factory=dict)
    said_by: dict[FieldPath, str] = field(default_factory=dict)
    ignored: tuple[Ignored, ...] = ()

    @property
    def name(self) -> str:
        """What to call a scenario made of command lines alone: the model, without its organisation."""
        model = self.settings.get(("model",))
        return str(model).rstrip("/").rpartition("/")[2] if model else "vllm"

    def without(self, paths: Collection[FieldPath]) -> Commands:
        """Return what is left when others set these fields."""

        def is_left(path: FieldPath) -> bool:
            return not any(path[: len(other)] == other for other in paths)

        return Commands(
            {path: value for path, value in self.settings.items() if is_left(path)},
            {path: said for path, said in self.said_by.items() if is_left(path)},
            self.ignored,
        )

    def notes(self) -> Iterator[str]:
        """Yield what was ignored, a line for each reason."""
        groups: dict[tuple[str, str], list[str]] = {}
        for source, name, why in self.ignored:
            names = groups.setdefault((source, why), [])
            if name not in names:
                names.append(name)
        for (source, why), names in groups.items():
            yield f"{source}: {', '.join(names)}: {why}"


def read_commands(
    serve: str | None = None, bench: str | None = None, hardware: str | None = None
) -> Commands:
    """Return what a server's and a benchmark's command line say, and the GPUs, which neither does.

    Raises ScenarioError with a line for each fault.

    >>> commands = read_commands("vllm serve llama-3.1-8b -tp 2 --port 80", hardware="h100_sxm")
    >>> commands.settings[("parallel", "tensor_parallel_size")], list(commands.notes())
    (2, ['--vllm: --port: no effect on the simulation'])
    """
    readings = [read(text) for text, read in ((serve, read_serve), (bench, read_bench)) if text is not None]
    if hardware is not None:
        readings.append(Reading("--hardware", {("hardware",): hardware}, {("hardware",): "--hardware"}))
    faults = [fault for reading in readings for fault in reading.faults]
    if faults:
        raise ScenarioError(faults)
    return Commands(
        {path: value for reading in readings for path, value in reading.settings.items()},
        {path: said for reading in readings for path, said in reading.said_by.items()},
        tuple(ignored for reading in readings for ignored in reading.ignored),
    )
