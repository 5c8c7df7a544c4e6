"""A running group comes to be led by controllers and goes back, and loses nothing."""

from __future__ import annotations

from functools import partial

import pytest

from understudy.testkit.drills.migrate import migrate
from understudy.testkit.sim.determinism import run_seed


@pytest.mark.covers("R153", "R155", "R156")
@pytest.mark.parametrize("acting", [False, True], ids=["plain", "acting"])
def test_a_group_becomes_led_and_goes_back_under_traffic(acting: bool) -> None:
    told: list[str] = []
    verdict = run_seed(partial(migrate, acting=acting, say=told.append), 1)
    assert verdict.ok, verdict.violations
    assert verdict.sent > 100
    assert [line for line in told if "was killed: master" in line]
    assert told[-1] == "the logs of all replicas are equal"
