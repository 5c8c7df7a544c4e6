"""The real Go client (rocketmq-client-go 2.1.2) sends, consumes, keeps order and delays."""

from __future__ import annotations

from pathlib import Path

import peer_processes
import pytest
from peer_processes import PeerCluster

SCENARIOS = ("go_push", "go_orderly", "go_delay")


@pytest.mark.slow
def test_the_go_client_works_unchanged(go_smoke: Path, cluster: PeerCluster) -> None:
    # given a topic that its admin client creates at the broker; when it plays its scenarios
    lines = peer_processes.run_client(
        [str(go_smoke), cluster.namesrv, *SCENARIOS], limit_s=150, BROKER_ADDR=cluster.brokers["broker-a"]
    )
    # then every one of them passed
    assert {name: "" for name in SCENARIOS} == {line["name"]: "" if line["ok"] else line["detail"] for line in lines}
