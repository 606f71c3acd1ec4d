"""``simkv list``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Shipped(StrEnum):
    """What ``simkv list`` can list."""

    MODELS = "models"
    HARDWARE = "hardware"
    SCENARIOS = "scenarios"


def list_shipped(what: Annotated[Shipped, typer.Argument(help="models, hardware or scenarios")]) -> None:
    """Say what ships with simkv."""
    from simkv.load.catalog import describe_hardware, describe_models, describe_scenarios

    describe = {
        Shipped.MODELS: describe_models,
        Shipped.HARDWARE: describe_hardware,
        Shipped.SCENARIOS: describe_scenarios,
    }[what]
    for line in describe():
        print(line)
