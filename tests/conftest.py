"""Hypothesis: no time limits, the same examples every time; ``--hypothesis-profile=explore`` looks for new ones."""

from hypothesis import HealthCheck, settings

_PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("steady", derandomize=True, **_PATIENT)
settings.register_profile("explore", **_PATIENT)
settings.load_profile("steady")
