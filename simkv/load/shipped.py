"""Where the files shipped with simkv lie: hardware profiles, scenarios."""

from __future__ import annotations

from pathlib import Path

import simkv
from simkv.errors import SimkvError


def shipped_dir(kind: str) -> Path:
    """Return the folder of shipped files of one kind, such as ``hardware_profiles`` or ``scenarios``.

    An installed wheel carries them in ``simkv/data``; a checkout or an editable install has them next to the
    package, where people read and change them. Raise SimkvError if neither is there.
    """
    package = Path(simkv.__path__[0])
    candidates = (package / "data" / kind, package.parent / kind)
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    raise SimkvError(f"the {kind} shipped with simkv are missing: no {candidates[0]}; install simkv again")
