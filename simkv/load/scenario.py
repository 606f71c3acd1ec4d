"""Scenario files: YAML → `Scenario`, with every fault of a file at once."""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from simkv.errors import InputError, ScenarioError, did_you_mean
from simkv.load.document import Document, dotted, parse_document, read_document
from simkv.load.faults import faults_of, shown
from simkv.load.hardware import find_hardware, shipped_hardware
from simkv.load.model import find_model, load_model_file
from simkv.load.overrides import Where, parse_overrides, set_at, where_from
from simkv.load.shipped import shipped_dir
from simkv.load.vllm_cli import Commands
from simkv.spec.checks import scenario_faults
from simkv.spec.hardware import HardwareSpec
from simkv.spec.model import ModelSpec
from simkv.spec.scenario import Scenario

SpecT = TypeVar("SpecT", bound=BaseModel)
_BOX_KEYS = ("gpu", "num_gpus_per_node", "num_nodes")
_BOX_SUFFIX = re.compile("_[0-9]*x[0-9]+$")
_MAX_NAME_LENGTH = 1000  # no name or path is longer
_FOLDER_NAME = re.compile(r"(?!\.)[^/\\]{1,100}")  # results go to a folder of the scenario's name


def shipped_scenarios() -> dict[str, Path]:
    """Return the shipped scenario files by name."""
    return {path.stem: path for path in sorted(shipped_dir("scenarios").glob("*.yaml"))}


def find_scenario(name: str | Path) -> Path:
    """Return the file meant: a path, or the name of a shipped scenario.

    A path ``scenarios/quickstart.yaml`` that does not exist means the shipped file of that name, so that
    the README's commands work from any folder. Raises ScenarioError if there is no such file.
    """
    path = Path(name)
    if os.path.exists(path):  # unlike Path.exists, False for a name that no file can have
        return path
    shipped = shipped_scenarios()
    if path.stem in shipped and str(path) in (path.stem, f"scenarios/{path.stem}.yaml"):
        return shipped[path.stem]
    raise ScenarioError(
        f"{_named(name)}: no such file{did_you_mean(path.stem, shipped)} (see 'simkv list scenarios')"
    )


def load_scenario(
    path: str | Path | None, overrides: Sequence[str] = (), commands: Commands | None = None
) -> Scenario:
    """Read a scenario file (or a shipped one by name).

    overrides   ``field=value`` as after ``--set``, say ``engine.block_size=32``
    commands    vLLM's command lines (`vllm_cli.read_commands`), which hold over the file and may do without
                one (`path` None)

    Raises ScenarioError with one line for each fault.
    """
    if path is None:
        commands = commands or Commands()
        return _build(Document("--vllm", {}), Path(), commands.name, overrides, commands)
    file = find_scenario(path)
    return _build(read_document(file), file.parent, file.stem, overrides, commands or Commands())


def parse_scenario(text: str, overrides: Sequence[str] = (), source: str = "scenario") -> Scenario:
    """Read a scenario from YAML text; relative paths start at the working directory.

    source   what stands before the line in errors; its stem is the scenario's name
    """
    return _build(parse_document(text, source), Path(), Path(source).stem, overrides, Commands())


def _build(
    document: Document, folder: Path, name: str, overrides: Sequence[str], commands: Commands
) -> Scenario:
    if not isinstance(document.value, dict):
        raise ScenarioError(
            f"{document.where(())}: wanted a mapping of model, hardware, …, got {shown(document.value)}"
        )
    raw: dict[str, Any] = {"name": name, **document.value}
    faults: list[str] = []
    overridden = parse_overrides(overrides, faults)
    commands = commands.without(overridden)
    settings = commands.settings | overridden
    where = where_from(document, commands.said_by | dict.fromkeys(overridden, "--set"))
    for key in ("model", "hardware"):
        # A name becomes its fields where a single field of it is overridden.
        if (key,) in settings or key in raw:
            raw[key] = _resolve(key, settings.get((key,), raw.get(key)), folder, where, faults)
        elif not document.lines:
            faults.append(_missing(key))
            raw[key] = _FAULTY
        elif any(path[0] == key for path in settings):
            faults.append(f"{where(())}: {key}: missing")
            raw[key] = _FAULTY
    for path, value in settings.items():
        is_named = path == ("model", "quantization") and path in commands.settings and _is_quantized(raw)
        if path in (("model",), ("hardware",)) or is_named:
            continue
        if fault := set_at(raw, path, value, _FAULTY):
            faults.append(f"{where(path)}: {fault}")

    scenario: Scenario | None = None
    try:
        scenario = Scenario.model_validate({key: value for key, value in raw.items() if value is not _FAULTY})
    except ValidationError as error:
        lines = faults_of(error, Scenario, (), where)
        # A model or hardware that could not be found has been reported; it is not missing as well.
        faulty = [key for key, value in raw.items() if value is _FAULTY]
        faults += [line for line in lines if not any(line.endswith(f": {key}: missing") for key in faulty)]
    if scenario is not None and not faults:
        faults += [f"{where(path)}: {dotted(path)}: {text}" for path, text in scenario_faults(scenario)]
        if not _FOLDER_NAME.fullmatch(scenario.name) or not scenario.name.isprintable():
            faults.append(f"{where(('name',))}: name: wanted a name for a folder, got {shown(scenario.name)}")
    if faults or scenario is None:
        raise ScenarioError(faults)
    return scenario


_FAULTY = object()  # stands for a part whose fault has been reported


def _missing(key: str) -> str:
    if key == "model":
        return "--vllm: model: missing; wanted it after 'vllm serve'"
    return (
        f"--hardware: missing; wanted the GPUs, one of {', '.join(shipped_hardware())} (with _x8 for a node of 8), "
        "or a .yaml file"
    )


def _is_quantized(raw: Mapping[str, Any]) -> bool:
    """True for a checkpoint that says its own format: then ``--quantization`` names it and changes nothing."""
    model = raw.get("model")
    return isinstance(model, ModelSpec) and model.quantization is not None


def _resolve(key: str, value: Any, folder: Path, where: Where, faults: list[str]) -> Any:
    """Turn a name, a path or a mapping into a spec; note faults with their line."""
    try:
        if isinstance(value, str) and (len(value) > _MAX_NAME_LENGTH or not value.isprintable()):
            raise ScenarioError(f"wanted a name or a path, got {shown(value)}")
        if key == "model":
            return _resolve_model(value, folder, where)
        return _resolve_hardware(value, folder, where)
    except InputError as error:
        for fault in error.faults:
            begins_with_file = not fault.startswith(f"{key}:")
            faults.append(f"{where((key,))}: {key + ': ' if begins_with_file else ''}{fault}")
    except _PlacedError as error:
        faults += error.faults
    return _FAULTY


class _PlacedError(Exception):
    """Faults that already say where in the scenario they are."""

    def __init__(self, faults: Sequence[str]):
        self.faults = faults


def _resolve_model(value: Any, folder: Path, where: Where) -> ModelSpec:
    if isinstance(value, str):
        for path in (folder / value, Path(value)):
            file = path / "config.json" if os.path.isdir(path) else path
            if os.path.isfile(file):
                return _read_model(file)
        if value.endswith(".json"):
            raise ScenarioError(f"model: {value!r}: no such file")
        return find_model(value)
    if isinstance(value, dict):
        return _validated(ModelSpec, {"name": "inline", **value}, "model", where)
    raise ScenarioError(
        f"model: wanted a Hugging Face id, a path to a config.json or dimensions, got {shown(value)}"
    )


def _read_model(path: Path) -> ModelSpec:
    """Read a config.json; whatever else its values do to the reader is a fault of the file, too."""
    try:
        return load_model_file(path)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ScenarioError(
            f"{path}: wanted a Hugging Face config.json, got values of another kind "
            f"({type(error).__name__}: {error})"
        ) from None


def _resolve_hardware(value: Any, folder: Path, where: Where) -> HardwareSpec:
    if isinstance(value, str):
        is_beside = value.endswith((".yaml", ".yml")) and os.path.exists(folder / value)
        return find_hardware(value, folder if is_beside else None)
    if isinstance(value, dict) and isinstance(value.get("gpu"), str):
        unknown = [key for key in value if key not in _BOX_KEYS]
        if unknown:
            known = f"; known: {', '.join(_BOX_KEYS)}"
            raise _PlacedError(
                [
                    f"{where(('hardware', key))}: {dotted(('hardware', key))}: unknown key"
                    f"{did_you_mean(key, _BOX_KEYS) or known}"
                    for key in unknown
                ]
            )
        fields = find_hardware(value["gpu"]).fields()
        fields |= {key: value[key] for key in _BOX_KEYS[1:] if key in value}
        if suffix := _box_suffix(fields["num_nodes"], fields["num_gpus_per_node"]):
            fields["name"] = _BOX_SUFFIX.sub("", fields["name"]) + suffix
        return _validated(HardwareSpec, fields, "hardware", where)
    if isinstance(value, dict):
        return _validated(
            HardwareSpec, {"name": "inline", "description": "inline", **value}, "hardware", where
        )
    raise ScenarioError(f"hardware: wanted the name of a profile, a path or a mapping, got {shown(value)}")


def _box_suffix(num_nodes: Any, num_gpus_per_node: Any) -> str:
    """What a name would have said: ``_x8`` or ``_2x8``; nothing for what will be refused."""
    sizes = (num_nodes, num_gpus_per_node)
    if not all(type(size) is int and 0 < size <= 10_000 for size in sizes):
        return ""
    return f"_{num_nodes if num_nodes > 1 else ''}x{num_gpus_per_node}"


def _validated(spec: type[SpecT], fields: Mapping[str, Any], key: str, where: Where) -> SpecT:
    try:
        return spec.model_validate(fields)
    except ValidationError as error:
        raise _PlacedError(faults_of(error, spec, (key,), where)) from None


def _named(name: str | Path) -> str:
    """A path as a message shows it."""
    text = str(name)
    return text if text.isprintable() and len(text) <= _MAX_NAME_LENGTH else shown(text)
