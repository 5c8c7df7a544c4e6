"""The network of a test."""

from __future__ import annotations

import random

import pytest

from understudy.testkit.sim.network import SimNetwork


@pytest.fixture
def network() -> SimNetwork:
    return SimNetwork(random.Random(5))
