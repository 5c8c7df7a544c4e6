"""The real C++ client (rocketmq-client-cpp 1.2.x inside the PyPI package rocketmq 0.4.4) sends and consumes."""

from __future__ import annotations

import sys
from pathlib import Path

import peer_processes
import pytest
from peer_processes import PeerCluster

SMOKE = Path(__file__).parent / "smoke_cpp.py"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the package holds a library for Linux only")
def test_the_cpp_client_works_unchanged(cpp_python: Path, cluster: PeerCluster, tmp_path: Path) -> None:
    # given a topic that the first send creates; when 10 messages are sent and a push consumer subscribes to their tag
    command = [str(cpp_python), str(SMOKE), cluster.namesrv, "SmokeCpp", "GID_smoke_cpp", "10"]
    lines = peer_processes.run_client(command, limit_s=90, HOME=peer_processes.bare_home(tmp_path / "home"))
    # then every message arrived once
    assert {"client": lines[-1]["client"], "ok": True, "sent": 10, "consumed": 10, "duplicated": 0} == lines[-1]
