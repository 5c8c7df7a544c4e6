"""What several tests of brokers take."""

from __future__ import annotations

from random import Random

import pytest

from understudy.testkit.sim.disk import SimDisk


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(1))
