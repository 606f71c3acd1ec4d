"""Everything simkv raises on purpose.

::

    SimkvError                 exit code 2: the user can mend it
    ├── InputError             a file or an option is wrong; carries every fault found
    │   ├── ScenarioError      … in a scenario
    │   ├── TraceError         … in a trace, a recording or a table of measurements
    │   └── ResultsError       … in a result folder
    └── InfeasibleError        the configuration is well formed but cannot work on this hardware

A fault says where, what was wanted, what was got and what to do. ``assert`` is for our own bugs.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class SimkvError(Exception):
    """Base of all errors that a user can mend."""


class InputError(SimkvError):
    """One or more faults in an input; ``faults`` has one line for each."""

    def __init__(self, faults: str | Sequence[str]):
        self.faults: tuple[str, ...] = (faults,) if isinstance(faults, str) else tuple(faults)
        super().__init__("\n".join(self.faults))


class ScenarioError(InputError):
    """A scenario, a model or a hardware profile is wrong."""


class TraceError(InputError):
    """A trace, a recording or a table of measurements is wrong."""


class ResultsError(InputError):
    """A result folder cannot be read or written."""


class InfeasibleError(SimkvError):
    """The configuration cannot work: weights do not fit, one request does not fit, the layout is refused.

    ``remedies`` are changes worth trying, in order.
    """

    def __init__(self, reason: str, remedies: Sequence[str] = ()):
        self.reason = reason
        self.remedies = tuple(remedies)
        super().__init__(reason if not remedies else f"{reason}; try {', or '.join(remedies)}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest known word, or an empty string.

    >>> did_you_mean("tensor_paralel_size", ["tensor_parallel_size", "seed"])
    "; did you mean 'tensor_parallel_size'?"
    """
    lowered = {k.lower(): k for k in known}
    close = difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
    return f"; did you mean {lowered[close[0]]!r}?" if close else ""
