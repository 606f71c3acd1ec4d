"""Calibrated kernels of a GPU: what a fit found, and where its measurements lie."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from simkv.spec.base import Spec

Value: TypeAlias = bool | int | float | dict[int, float] | dict[str, bool | int | float | dict[int, float]]


def _int_keys(raw: Any) -> Any:
    """Group sizes are numbers, whatever a YAML reader makes of keys."""
    if not isinstance(raw, dict):
        return raw
    return {
        int(key) if isinstance(key, str) and key.isdigit() else key: _int_keys(each)
        for key, each in raw.items()
    }


class KernelFit(Spec):
    """The parameters of one family of kernels, found together, so they share their source.

    parameters  of the form in `simkv.cost.kernels`, by name: seconds, shares, bytes; by group size in a dict
    num_points  measurements that the fit looked at
    error       median relative error of a like fit on points that it had not seen
    residual_octaves  of a collective: doublings of the message over which a measured deviation lasts
    """

    parameters: Annotated[dict[str, Value], BeforeValidator(_int_keys)]
    source: str = Field(min_length=1)
    mark: Literal["measured", "assumed"] = "measured"
    date: str | None = None
    num_points: int | None = None
    error: float | None = None
    residual_octaves: float | None = Field(default=None, gt=0)


class CalibrationSpec(Spec):
    """What `simkv calibrate` found for one device and engine version.

    points          the table of measured points behind it (Parquet): the name of a shipped one, or a path
    is_transferred  True if a profile took it over for another GPU: efficiencies carry over, residuals do not
    """

    device: str
    engine: str | None = None
    engine_version: str | None = None
    points: str | None = None
    is_transferred: bool = False
    families: dict[str, KernelFit]

    @property
    def minor_version(self) -> tuple[int, int] | None:
        """(major, minor) of the engine, None if it is not known."""
        parts = (self.engine_version or "").split(".")
        return (int(parts[0]), int(parts[1])) if len(parts) > 1 and "".join(parts[:2]).isdigit() else None

    @property
    def title(self) -> str:
        """Device, engine and version, such as ``h100_sxm vllm 0.24.0``."""
        return " ".join(part for part in (self.device, self.engine, self.engine_version) if part)
