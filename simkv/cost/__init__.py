"""How long a batch takes: from a `StepShape` to a `StepTime` for each pipeline stage."""

from simkv.cost.model import CostModel

__all__ = ["CostModel"]
