"""What all tests share: bounded property tests whose failures can be replayed."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Machines that run tests are shared and slow at times: a deadline per example would fail tests for being unlucky.
settings.register_profile(
    "understudy", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow], max_examples=100
)
settings.load_profile("understudy")
