"""From a `Scenario` back to a file that says it."""

from __future__ import annotations

import os.path
from pathlib import Path
from typing import Any

from simkv.errors import ScenarioError
from simkv.load.hardware import find_hardware
from simkv.load.model import find_model
from simkv.spec.base import Spec
from simkv.spec.scenario import Scenario

_HEADER = "# Written by simkv --save.\n"


def scenario_text(scenario: Scenario, file: Path, base_dir: Path = Path()) -> str:
    """Return a scenario file, which loads again to the same scenario: what is not a default, and the version.

    file       where the text will stand: a relative ``dataset_path`` starts there
    base_dir   where it starts now
    """
    import yaml

    fields: dict[str, Any] = {}
    if scenario.name != file.stem:
        fields["name"] = scenario.name
    for name in type(scenario).model_fields:
        value = getattr(scenario, name)
        if name in ("model", "hardware"):
            fields[name] = _named(name, value)
        elif isinstance(value, Spec):
            fields[name] = value.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
        elif name != "name":
            fields[name] = value
    fields["engine"] = {"vllm_version": scenario.engine.vllm_version} | fields["engine"]
    path = (fields.get("workload") or {}).get("dataset_path")
    if path is not None and os.path.exists(base_dir / path):
        fields["workload"]["dataset_path"] = os.path.relpath(base_dir / path, file.parent)
    said = {name: value for name, value in fields.items() if value not in (None, {})}
    return _HEADER + yaml.safe_dump(said, sort_keys=False, allow_unicode=True, width=100)


def _named(kind: str, spec: Any) -> Any:
    """The name under which this very spec ships, else all its fields."""
    find: Any = find_model if kind == "model" else find_hardware
    try:
        if find(spec.name) == spec:
            return spec.name
    except ScenarioError:
        pass
    return spec.model_dump(mode="json", exclude_none=True)
