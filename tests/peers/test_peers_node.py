"""The real JavaScript client (npm ali-ons 3.12.0, JSON headers) sends and consumes."""

from __future__ import annotations

import sys
from pathlib import Path

import peer_processes
import pytest
from peer_processes import PeerCluster

HERE = Path(__file__).parent


@pytest.mark.slow
def test_the_javascript_client_works_unchanged(node_modules: Path, cluster: PeerCluster) -> None:
    # given a topic (this client does not create any); when 10 messages are sent and consumed
    peer_processes.run_tool([sys.executable, str(HERE / "create_topic.py"), cluster.namesrv, "SmokeJavaScript"])
    command = [
        "node",
        str(HERE / "smoke_javascript.js"),
        cluster.namesrv,
        "SmokeJavaScript",
        "GID_smoke_javascript",
        "10",
    ]
    lines = peer_processes.run_client(command, limit_s=90, NODE_PATH=str(node_modules))
    # then every message arrived once
    result = lines[-1]
    assert (True, 10, 10, 0) == tuple(result.get(key) for key in ("ok", "sent", "consumed", "duplicated")), result
