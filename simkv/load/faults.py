"""From pydantic's errors to ours: where, which key, what was wanted, what was got, what to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from simkv.errors import did_you_mean

KeyPath = tuple[str | int, ...]
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
_WANTED_SPECS = {"Quantity": "{value: …, source: …}"}


def faults_of(
    error: ValidationError, spec: type[BaseModel], prefix: KeyPath, where: Callable[[KeyPath], str]
) -> list[str]:
    """Return one line for each error: ``where: path: wanted …, got …``.

    `prefix` is the path of `spec` in the file, `where` tells file and line of a path.
    """
    faults = []
    for detail in error.errors(include_url=False):
        keys = tuple(key for key in detail["loc"] if key != "[key]")
        path = (*prefix, *keys)
        text = _describe(detail, spec, keys)
        if detail["type"] == "value_error" and (named := _named_field(text, spec, keys)):
            path, text = (*path, named), text.removeprefix(f"{named}: ")
        dotted = ".".join(map(str, path))
        faults.append(f"{where(path)}: {dotted + ': ' if dotted else ''}{text}")
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
            return f"wanted a number {words} {context[bound]:g}, got {got}"
    if kind == "value_error":
        text = str(context["error"])
        return f"wanted {text.removeprefix('expected ')}" if text.startswith("expected ") else text
    wanted = (
        _WANTED_SPECS.get(context.get("class_name", ""))
        or _WANTED.get(kind)
        or detail["msg"].removeprefix("Input should be ")
    )
    return f"wanted {wanted}, got {got}"


def _named_field(text: str, spec: type[BaseModel], keys: KeyPath) -> str | None:
    """A validator of a whole mapping may name the field at fault: ``field: what is wrong``."""
    name = text.partition(": ")[0]
    return name if name in _fields_at(spec, keys) else None


def _fields_at(spec: type[BaseModel], keys: Sequence[str | int]) -> list[str]:
    """The fields of the spec that `keys` lead to from `spec`; none where keys are free."""
    current: type[BaseModel] | None = spec
    for key in keys:
        field = current.model_fields.get(str(key)) if current else None
        current = _spec_in(field.annotation) if field else None
    return list(current.model_fields) if current else []


def _spec_in(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def shown(value: Any) -> str:
    """Return a value as it may be quoted in a message, cut to a line."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
