"""Hypothesis: no time limits, the same examples every time; ``--hypothesis-profile=explore`` looks for new ones.

And the command line as a fixture.
"""

import sys

import pytest
from hypothesis import HealthCheck, settings

from simkv.cli import main

_PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("steady", derandomize=True, **_PATIENT)
settings.register_profile("explore", **_PATIENT)
settings.load_profile("steady")


@pytest.fixture
def simkv(monkeypatch, capsys):
    """The command line, as (exit code, stdout, stderr), in the folder where the test is."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["simkv", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        return int(caught.value.code or 0), *capsys.readouterr()

    return run
