"""Numeric fields of a scenario by their dotted path: what kind, which value, and a scenario with another."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from simkv.errors import ScenarioError, did_you_mean
from simkv.load.faults import faults_of
from simkv.spec.scenario import Scenario


def is_int_field(field: str) -> bool:
    """Return whether a field holds whole numbers; raise ScenarioError if there is none or it holds no number.

    >>> is_int_field("engine.max_num_seqs"), is_int_field("workload.request_rate")
    (True, False)
    """
    spec: type[BaseModel] | None = Scenario
    keys = field.split(".")
    for depth, key in enumerate(keys):
        known = list(spec.model_fields) if spec else []
        if spec is None or key not in known:
            path = ".".join(keys[: depth + 1])
            hint = did_you_mean(key, known) or (f"; known: {', '.join(known)}" if known else "")
            raise ScenarioError(f"{path}: unknown field{hint}")
        kinds = _kinds(spec.model_fields[key].annotation)
        spec = next((kind for kind in kinds if issubclass(kind, BaseModel)), None)
    if float in kinds:
        return False
    if int in kinds or (spec is not None and "fixed" in spec.model_fields):  # a length may be a number
        return True
    raise ScenarioError(f"{field}: wanted a field that holds a number")


def _kinds(annotation: Any) -> set[type]:
    """The types inside ``Annotated[int, …] | None`` and the like."""
    if isinstance(annotation, type):
        return {annotation}
    return {kind for part in get_args(annotation) for kind in _kinds(part)}


def value_of(scenario: Scenario, field: str) -> float | None:
    """Return the number that a scenario has in a field, an engine's default filled in; None if it has none."""
    section, _, rest = field.partition(".")
    value: Any = scenario.resolved_engine if section == "engine" else getattr(scenario, section)
    for key in rest.split(".") if rest else ():
        value = getattr(value, key, None)
    value = getattr(value, "fixed", value)
    return value if isinstance(value, int | float) else None


def with_value(scenario: Scenario, field: str, value: float) -> Scenario:
    """Return the scenario with another number in a field; raise ScenarioError if the field does not take it."""
    keys = tuple(field.split("."))
    changed: Any = value
    for depth in reversed(range(len(keys))):
        spec: Any = scenario
        for key in keys[:depth]:
            spec = getattr(spec, key)
        if spec is None:
            raise ScenarioError(f"{'.'.join(keys[:depth])}: missing, and so {field} has nowhere to be")
        try:
            changed = spec.replace(**{keys[depth]: changed})
        except ValidationError as error:
            raise ScenarioError(faults_of(error, type(spec), keys[:depth], lambda _: "find")) from None
    result: Scenario = changed
    return result
