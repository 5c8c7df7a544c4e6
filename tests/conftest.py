"""What all tests share: bounded property tests whose failures can be replayed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Machines that run tests are shared and slow at times: a deadline per example would fail tests for being unlucky.
# The gate draws the same examples every time, so that it judges the change; everybody else's runs go on exploring.
settings.register_profile(
    "understudy",
    derandomize="CI" in os.environ,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=100,
)
settings.load_profile("understudy")


@pytest.fixture(autouse=True)
def log_lines_stay_where_they_belong() -> Iterator[None]:
    """Undo what a program that ran inside a test configured: its stream is gone with the test."""
    logger = logging.getLogger("understudy")
    handlers, level, propagate = list(logger.handlers), logger.level, logger.propagate
    yield
    logger.handlers[:], logger.propagate = handlers, propagate
    logger.setLevel(level)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take long, so that no processor is left alone with one of them at the end."""
    long_ones = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("peers")}
    items.sort(key=lambda item: item.path not in long_ones)
