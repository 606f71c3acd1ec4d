"""Adding up kernels: each has a duration, the side of its roofline that binds it, and a provenance."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from simkv.step import Provenance, StepTime


class Side(Enum):
    """What a kernel's time is spent on."""

    COMPUTE = 0
    MEMORY = 1
    COMM = 2
    HOST = 3


class Kernel(NamedTuple):
    """One kernel call."""

    seconds: float
    side: Side
    provenance: Provenance = Provenance.ASSUMED


def roofline(
    compute_s: float, memory_s: float, launch_s: float, provenance: Provenance = Provenance.ASSUMED
) -> Kernel:
    """The slower of computing and moving bytes, after a launch; the binding side gets the time."""
    side = Side.COMPUTE if compute_s > memory_s else Side.MEMORY
    return Kernel(launch_s + max(compute_s, memory_s), side, provenance)


_PROVENANCES = tuple(Provenance)
_INDEX = {provenance: index for index, provenance in enumerate(_PROVENANCES)}


def weakest(*marks: Provenance) -> Provenance:
    """The least certain of some marks."""
    return max(marks, key=_INDEX.__getitem__)


class Tally:
    """A running sum of kernels, by side and by provenance."""

    __slots__ = ("by_provenance", "by_side")

    def __init__(self) -> None:
        self.by_side = [0.0] * len(Side)
        self.by_provenance = [0.0] * len(_PROVENANCES)

    def add(self, kernel: Kernel, times: int = 1) -> None:
        """Count a kernel `times` times."""
        seconds = kernel.seconds * times
        self.by_side[kernel.side.value] += seconds
        self.by_provenance[_INDEX[kernel.provenance]] += seconds

    def plus(self, kernel: Kernel, times: int = 1) -> Tally:
        """Return a new tally with a kernel counted `times` times."""
        tally = Tally.__new__(Tally)
        tally.by_side, tally.by_provenance = self.by_side.copy(), self.by_provenance.copy()
        tally.add(kernel, times)
        return tally

    def add_tally(self, other: Tally, times: int = 1) -> None:
        """Count everything of another tally `times` times."""
        for index, seconds in enumerate(other.by_side):
            self.by_side[index] += seconds * times
        for index, seconds in enumerate(other.by_provenance):
            self.by_provenance[index] += seconds * times

    @property
    def total_s(self) -> float:
        """Seconds so far."""
        return sum(self.by_side)

    def step_time(self) -> StepTime:
        """The sum as a `StepTime`."""
        return StepTime(*self.by_side, *self.by_provenance)
