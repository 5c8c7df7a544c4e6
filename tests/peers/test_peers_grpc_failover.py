"""Real gRPC clients behind a proxy across the loss of a master: all in processes of their own, and SIGKILL."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from understudy.testkit.drills.acting_processes import RealRun


@pytest.mark.slow
@pytest.mark.covers("R118")
def test_grpc_clients_lose_nothing_while_a_slave_acts_for_the_killed_master(
    place_of_peer: Callable[[str], Path],
) -> None:
    # given the official client as it is shipped; when the container of a master is killed under its load
    place_of_peer("grpc-java")
    outcome = trio.run(RealRun(random.Random(11), clients="grpc", quiet_seconds=3.0).play)
    # then every group got all that was acknowledged, and handles from before the fault were answered by the protocol
    assert outcome.verdict.ok, (outcome.verdict.violations, outcome.notes)
    assert outcome.verdict.sent > 100
    assert outcome.verdict.delivered >= 3 * outcome.verdict.sent
