"""Named random streams: every source of chance has its own, all of them from the one seed of the scenario."""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, name: str) -> np.random.Generator:
    """Return the random stream called `name` of the run with this seed (a non-negative integer).

    A stream is numpy's ``SeedSequence(seed)`` with the CRC-32 of the name as spawn key: independent of every
    other name and of ``default_rng(seed)``, the same on every platform, and untouched by how much others
    draw. So a new stream never disturbs an old one.

    >>> stream(0, "arrivals").random() == stream(0, "arrivals").random()
    True
    >>> stream(0, "arrivals").random() == stream(0, "lengths").random()
    False
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(zlib.crc32(name.encode()),)))
