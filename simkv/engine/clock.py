"""The simulated clock: a SimPy environment that counts integer nanoseconds, so that ties are ties."""

from __future__ import annotations

import simpy


class Clock(simpy.Environment):
    """SimPy's environment, read as an integer.

    >>> Clock().now_ns
    0
    """

    @property
    def now_ns(self) -> int:
        """Nanoseconds since the start of the run."""
        return int(self.now)

    def until_ns(self, time_ns: int) -> simpy.Timeout:
        """An event that happens at `time_ns`, which must not lie in the past."""
        return self.timeout(time_ns - self.now_ns)
