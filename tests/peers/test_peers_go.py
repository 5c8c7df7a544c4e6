"""The real Go client (rocketmq-client-go 2.1.2): sends, consumes, order, delays, timer messages and transactions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import peer_processes
import pytest
from peer_processes import PeerCluster

SCENARIOS = ("go_push", "go_orderly", "go_delay", "go_timer", "go_transaction")


def play_client(cluster: PeerCluster, place_of: Callable[[str], Path], items: object) -> list[dict[str, Any]]:
    command = [str(place_of("go")), cluster.namesrv, *SCENARIOS]
    return peer_processes.run_client(command, limit_s=150, BROKER_ADDR=cluster.brokers["broker-a"])


@pytest.mark.slow
def test_the_go_client_works_unchanged(
    client_results: Callable[[ModuleType], Any], request: pytest.FixtureRequest
) -> None:
    # given topics that its admin client creates at the broker; when it played its scenarios
    lines = client_results(request.module)
    # then every one of them passed
    assert {name: "" for name in SCENARIOS} == {line["name"]: "" if line["ok"] else line["detail"] for line in lines}
