"""The real JavaScript client (npm ali-ons 3.12.0, JSON headers) sends and consumes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import peer_processes
import pytest
from peer_processes import PeerCluster

HERE = Path(__file__).parent
TOPIC = "SmokeJavaScript"


def play_client(cluster: PeerCluster, place_of: Callable[[str], Path], items: object) -> list[dict[str, Any]]:
    modules = str(place_of("node"))
    peer_processes.run_tool([sys.executable, str(HERE / "create_topic.py"), cluster.namesrv, TOPIC])
    command = ["node", str(HERE / "smoke_javascript.js"), cluster.namesrv, TOPIC, "GID_smoke_javascript", "10"]
    return peer_processes.run_client(command, limit_s=240, NODE_PATH=modules)


@pytest.mark.slow
def test_the_javascript_client_works_unchanged(
    client_results: Callable[[ModuleType], Any], request: pytest.FixtureRequest
) -> None:
    # given a topic (this client does not create any); when 10 messages were sent and consumed
    result = client_results(request.module)[-1]
    # then every message arrived once
    assert (True, 10, 10, 0) == tuple(result.get(key) for key in ("ok", "sent", "consumed", "duplicated")), result
