"""The base of every spec: frozen, strict, unknown keys forbidden, a variant is a new value."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Spec(BaseModel):
    """A frozen mapping of named fields; `replace` returns a changed copy, validated again."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def fields(self) -> dict[str, Any]:
        """Return the fields by name; `dict(spec)` would add what cached properties have left in it."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    def replace(self, **changes: Any) -> Self:
        """Return a copy with fields changed; a mapping given for a field that is a spec changes that spec."""
        fields = {name: getattr(self, name) for name in self.model_fields_set}
        for name, change in changes.items():
            current = getattr(self, name, None)
            if isinstance(change, dict) and isinstance(current, Spec):
                fields[name] = current.replace(**change)
            else:
                fields[name] = change
        return type(self).model_validate(fields)


def as_tuple(value: Any) -> Any:
    """Let a YAML list stand for a tuple."""
    return tuple(value) if isinstance(value, list) else value


PositiveInt = Annotated[int, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
IntTuple = Annotated[tuple[PositiveInt, ...], BeforeValidator(as_tuple)]
StrTuple = Annotated[tuple[str, ...], BeforeValidator(as_tuple)]
