"""The real C++ client (rocketmq-client-cpp 1.2.x inside the PyPI package rocketmq 0.4.4): sends, consumes, timers."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import peer_processes
import pytest
from peer_processes import PeerCluster

SMOKE = Path(__file__).parent / "smoke_cpp.py"
EARLIEST_MS, LATEST_MS = -1_100, 7_000
"""A slot of the timer is a second; this client pulls one queue after the other."""


def play_client(cluster: PeerCluster, place_of: Callable[[str], Path], items: object) -> list[dict[str, Any]]:
    command = [str(place_of("cpp")), str(SMOKE), cluster.namesrv, "SmokeCpp", "GID_smoke_cpp", "10"]
    with tempfile.TemporaryDirectory() as home:  # the client writes its logs below $HOME
        return peer_processes.run_client(command, limit_s=240, HOME=home)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the package holds a library for Linux only")
def test_the_cpp_client_works_unchanged(
    client_results: Callable[[ModuleType], Any], request: pytest.FixtureRequest
) -> None:
    # given a topic that the first send creates; when 10 messages were sent and a push consumer subscribed to their tag,
    # and then a message with each of the properties that ask for a time
    result = client_results(request.module)[-1]
    # then every message arrived once
    assert (True, 10, 10, 0) == tuple(result.get(key) for key in ("ok", "sent", "consumed", "duplicated")), result
    # and the timer messages came when they were due
    assert {"TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"} == set(result["timers"])
    assert all(EARLIEST_MS <= late_ms <= LATEST_MS for late_ms in result["timers"].values()), result
