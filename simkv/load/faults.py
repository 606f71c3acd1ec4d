"""From pydantic's errors to ours: where, which key, what was wanted, what was got, what to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from simkv.errors import did_you_mean
from simkv.load.document import KeyPath, dotted

_WANTED = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "string_too_short": "some text",
    "finite_number": "a finite number",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_WANTED_SPECS = {
    "Quantity": "{value: …, source: …}",
    "LengthSpec": "a number of tokens, {uniform: {min: …, max: …}}, {lognormal: {median: …, p99: …}}, "
    "{quantiles: {0: …, 1: …}} or {preset: …}",
    "TimeSpec": "a number of seconds or {exponential: {mean: …}}",
}
_IMPLIED_KEYS = ("fixed",)  # a number of tokens stands for {fixed: number}
_IN_YAML = {"None": "nothing", "True": "true", "False": "false"}


def faults_of(
    error: ValidationError, spec: type[BaseModel], prefix: KeyPath, where: Callable[[KeyPath], str]
) -> list[str]:
    """Return one line for each error: ``where: path: wanted …, got …``.

    `prefix` is the path of `spec` in the file, `where` tells file and line of a path.
    """
    faults = []
    for detail in error.errors(include_url=False):
        keys = tuple(key for key in detail["loc"] if key != "[key]")
        if keys and keys[-1] in _IMPLIED_KEYS:
            keys = keys[:-1]
        path = (*prefix, *keys)
        text = _describe(detail, spec, keys)
        if detail["type"] == "value_error" and (named := _named_field(text, spec, keys)):
            path, text = (*path, named), _wanted(text.removeprefix(f"{named}: "))
        faults.append(f"{where(path)}: {dotted(path)}: {text}" if path else f"{where(path)}: {text}")
    return faults


def _describe(detail: ErrorDetails, spec: type[BaseModel], keys: KeyPath) -> str:
    kind, got, context = detail["type"], shown(detail["input"]), detail.get("ctx", {})
    if kind == "missing":
        return "missing"
    if kind == "extra_forbidden":
        known = _fields_at(spec, keys[:-1])
        hint = did_you_mean(str(keys[-1]), known) or (f"; known: {', '.join(known)}" if known else "")
        return f"unknown key{hint}"
    if kind == "literal_error":
        choices = str(context["expected"]).replace("'", "")
        hint = did_you_mean(str(detail["input"]), choices.replace(" or ", ", ").split(", "))
        return f"wanted {choices}, got {got}{hint}"
    for bound, words in (("gt", "above"), ("ge", "at least"), ("lt", "below"), ("le", "at most")):
        if bound in context:
            number = context[bound]
            shown_bound = f"{number:,.0f}" if float(number).is_integer() else f"{number:g}"
            return f"wanted a number {words} {shown_bound}, got {got}"
    if kind == "value_error":
        return _wanted(str(context["error"]))
    wanted = (
        _WANTED_SPECS.get(context.get("class_name", ""))
        or _WANTED.get(kind)
        or detail["msg"].removeprefix("Input should be ")
    )
    return f"wanted {wanted}, got {got}{_hint(kind, detail['input'])}"


def _wanted(text: str) -> str:
    return f"wanted {text.removeprefix('expected ')}" if text.startswith("expected ") else text


def _hint(kind: str, value: Any) -> str:
    """What to write instead, where YAML made a float of something else."""
    if not isinstance(value, float) or not math.isfinite(value):
        return ""
    if kind == "string_type":  # 0.30 would come out as 0.3
        return "; put it in quotes"
    if kind in ("int_type", "int_from_float") and value.is_integer() and abs(value) < 1e15:
        return f"; write {value:.0f}"
    return ""


def _named_field(text: str, spec: type[BaseModel], keys: KeyPath) -> str | None:
    """A validator of a whole mapping may name the field at fault: ``field: what is wrong``."""
    name = text.partition(": ")[0]
    return name if name in _fields_at(spec, keys) else None


def _fields_at(spec: type[BaseModel], keys: Sequence[str | int]) -> list[str]:
    """The fields of the spec that `keys` lead to from `spec`; none where keys are free."""
    current: type[BaseModel] | None = spec
    for key in keys:
        if isinstance(key, int):  # a place in a list, whose items are the spec
            continue
        field = current.model_fields.get(str(key)) if current else None
        current = _spec_in(field.annotation) if field else None
    return list(current.model_fields) if current else []


def _spec_in(annotation: Any) -> type[BaseModel] | None:
    """The spec inside ``Spec | None``, ``Annotated[Spec, …]``, ``dict[str, Spec]`` and the like."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_spec_in, get_args(annotation))), None)


def shown(value: Any) -> str:
    """Return a value as it may be quoted in a message, cut to a line."""
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else f"{value:.0f}".replace("inf", ".inf")
    text = repr(value)
    text = _IN_YAML.get(text, text)
    return text if len(text) <= 60 else text[:57] + "…"
