"""Equality with the recordings of the real scheduler is the definition of correct."""

from pathlib import Path

import pytest

from simkv.validate.recordings import compare_recording

REFERENCE = Path(__file__).parents[3] / "shared" / "reference"
RECORDINGS = sorted(REFERENCE.glob("vllm_scheduler*/*.json"))


@pytest.mark.skipif(not RECORDINGS, reason="the recordings of ../shared/reference are not here")
@pytest.mark.parametrize("path", RECORDINGS, ids=[f"{p.parent.name}/{p.stem}" for p in RECORDINGS])
def test_replay_equals_recording(path):
    comparison = compare_recording(path)
    assert comparison.first_difference is None, str(comparison.first_difference)
