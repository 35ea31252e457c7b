"""What all tests share: Hypothesis without deadlines (the first call of a compiled function takes seconds)."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "headgate", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], max_examples=60
)
settings.load_profile("headgate")
