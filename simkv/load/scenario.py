"""Scenario files: YAML → `Scenario`, with every fault of a file at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from simkv.errors import InputError, ScenarioError, did_you_mean
from simkv.load.document import Document, KeyPath, parse_document, read_document
from simkv.load.faults import faults_of, shown
from simkv.load.hardware import find_hardware
from simkv.load.model import find_model, load_model_file
from simkv.load.shipped import shipped_dir
from simkv.spec.checks import scenario_faults
from simkv.spec.hardware import HardwareSpec
from simkv.spec.model import ModelSpec
from simkv.spec.scenario import Scenario

SpecT = TypeVar("SpecT", bound=BaseModel)
_BOX_KEYS = ("gpu", "num_gpus_per_node", "num_nodes")


def shipped_scenarios() -> dict[str, Path]:
    """Return the shipped scenario files by name."""
    return {path.stem: path for path in sorted(shipped_dir("scenarios").glob("*.yaml"))}


def find_scenario(name: str | Path) -> Path:
    """Return the file meant: a path, or the name of a shipped scenario.

    A path ``scenarios/quickstart.yaml`` that does not exist means the shipped file of that name, so that
    the README's commands work from any folder. Raises ScenarioError if there is no such file.
    """
    path = Path(name)
    if path.exists():
        return path
    shipped = shipped_scenarios()
    if path.stem in shipped and str(path) in (path.stem, f"scenarios/{path.stem}.yaml"):
        return shipped[path.stem]
    raise ScenarioError(
        f"{name}: no such file{did_you_mean(path.stem, shipped)} (see 'simkv list scenarios')"
    )


def load_scenario(path: str | Path, overrides: Sequence[str] = ()) -> Scenario:
    """Read a scenario file (or a shipped one by name).

    overrides   ``field=value`` as after ``--set``, say ``engine.block_size=32``

    Raises ScenarioError with one line for each fault.
    """
    file = find_scenario(path)
    return _build(read_document(file), file.parent, file.stem, overrides)


def parse_scenario(text: str, overrides: Sequence[str] = (), source: str = "scenario") -> Scenario:
    """Read a scenario from YAML text; relative paths start at the working directory."""
    return _build(parse_document(text, source), Path(), source, overrides)


def _build(document: Document, folder: Path, name: str, overrides: Sequence[str]) -> Scenario:
    if not isinstance(document.value, dict):
        raise ScenarioError(
            f"{document.where(())}: wanted a mapping of model, hardware, …, got {shown(document.value)}"
        )
    raw: dict[str, Any] = {"name": name, **document.value}
    faults: list[str] = []
    settings = _parse_overrides(overrides, faults)
    for key in ("model", "hardware"):
        # A name becomes its fields where a single field of it is overridden.
        wanted = settings.get((key,), raw.get(key))
        if wanted is not None:
            raw[key] = _resolve(key, wanted, folder, document, faults)
    for path, value in settings.items():
        if path not in (("model",), ("hardware",)):
            _set(raw, path, value, faults)
    settings_paths = {path: "--set " + ".".join(path) for path in settings}

    def where(path: KeyPath) -> str:
        for length in range(len(path), 0, -1):
            if path[:length] in settings_paths:
                return settings_paths[path[:length]]  # type: ignore[index]
        return document.where(path)

    scenario: Scenario | None = None
    try:
        scenario = Scenario.model_validate({key: value for key, value in raw.items() if value is not _FAULTY})
    except ValidationError as error:
        lines = faults_of(error, Scenario, (), where)
        # A model or hardware that could not be found has been reported; it is not missing as well.
        faulty = [key for key, value in raw.items() if value is _FAULTY]
        faults += [line for line in lines if not any(line.endswith(f"{key}: missing") for key in faulty)]
    if scenario is not None and not faults:
        try:
            faults += [f"{where(path)}: {'.'.join(path)}: {text}" for path, text in scenario_faults(scenario)]
        except ValueError as error:
            faults.append(f"{document.source}: {error}")
    if faults or scenario is None:
        raise ScenarioError(faults)
    return scenario


_FAULTY = object()  # stands for a part whose fault has been reported


def _resolve(key: str, value: Any, folder: Path, document: Document, faults: list[str]) -> Any:
    """Turn a name, a path or a mapping into a spec; note faults with their line."""
    where = document.where((key,))
    try:
        if key == "model":
            return _resolve_model(value, folder, document)
        return _resolve_hardware(value, folder, document)
    except InputError as error:
        faults += [fault if _has_place(fault) else f"{where}: {fault}" for fault in error.faults]
    return _FAULTY


def _has_place(fault: str) -> bool:
    """True if a fault already begins with a file rather than with a key."""
    return not fault.startswith(("model", "hardware"))


def _resolve_model(value: Any, folder: Path, document: Document) -> ModelSpec:
    if isinstance(value, str):
        for path in (folder / value, Path(value)):
            if value.endswith(".json") or path.is_file():
                if path.is_file():
                    return load_model_file(path)
            elif path.is_dir() and (path / "config.json").is_file():
                return load_model_file(path / "config.json")
        if value.endswith(".json"):
            raise ScenarioError(f"model: {value!r}: no such file")
        return find_model(value)
    if isinstance(value, dict):
        return _validated(ModelSpec, {"name": "inline", **value}, "model", document)
    raise ScenarioError(
        f"model: wanted a Hugging Face id, a path to a config.json or dimensions, got {shown(value)}"
    )


def _resolve_hardware(value: Any, folder: Path, document: Document) -> HardwareSpec:
    if isinstance(value, str):
        is_file = value.endswith((".yaml", ".yml"))
        return find_hardware(value, folder if is_file and (folder / value).exists() else None)
    if isinstance(value, dict) and isinstance(value.get("gpu"), str):
        unknown = [key for key in value if key not in _BOX_KEYS]
        if unknown:
            raise ScenarioError(
                [f"hardware.{key}: unknown key{did_you_mean(key, _BOX_KEYS)}" for key in unknown]
            )
        base = find_hardware(value["gpu"])
        fields = dict(base)
        fields |= {key: value[key] for key in _BOX_KEYS[1:] if key in value}
        return _validated(HardwareSpec, fields, "hardware", document)
    if isinstance(value, dict):
        return _validated(
            HardwareSpec, {"name": "inline", "description": "inline", **value}, "hardware", document
        )
    raise ScenarioError(f"hardware: wanted the name of a profile, a path or a mapping, got {shown(value)}")


def _validated(spec: type[SpecT], fields: Mapping[str, Any], key: str, document: Document) -> SpecT:
    try:
        return spec.model_validate(fields)
    except ValidationError as error:
        raise ScenarioError(faults_of(error, spec, (key,), document.where)) from None


def _parse_overrides(overrides: Sequence[str], faults: list[str]) -> dict[tuple[str, ...], Any]:
    settings: dict[tuple[str, ...], Any] = {}
    for override in overrides:
        path, equals, text = override.partition("=")
        if not equals or not path.strip():
            faults.append(f"--set {override}: wanted field=value, such as engine.block_size=32")
            continue
        try:
            value = parse_document(text, "--set").value if text.strip() else None
        except ScenarioError as error:
            faults.append(f"--set {override}: {error.faults[0].removeprefix('--set: ')}")
            continue
        settings[tuple(path.strip().split("."))] = value
    return settings


def _set(raw: dict[str, Any], path: tuple[str, ...], value: Any, faults: list[str]) -> None:
    """Put a value at a path; parts that are specs or missing become mappings on the way."""
    here: Any = raw
    for key in path[:-1]:
        child = here.get(key)
        if isinstance(child, BaseModel):
            child = dict(child)
        if child is _FAULTY:
            return
        if child is None:
            child = {}
        if not isinstance(child, dict):
            faults.append(f"--set {'.'.join(path)}: {key} is {shown(child)}, which has no fields")
            return
        here[key] = child
        here = child
    here[path[-1]] = value
