"""A real Java broker registers at our name server and serves real clients through it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import peer_processes
import pytest
from peer_processes import JAVA, AdminConsole, PeerCluster

from understudy.testkit.port_blocks import PortBlocks


@pytest.fixture(scope="module")
def java_broker_at_our_namesrv(
    java_home: Path, servers_kind: str, port_blocks: PortBlocks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PeerCluster]:
    folder = tmp_path_factory.mktemp("java-broker")
    with peer_processes.peer_cluster(servers_kind, JAVA, folder, port_blocks) as cluster:
        yield cluster


@pytest.mark.slow
@pytest.mark.covers("R89", "R92", "NS-03")
def test_a_java_broker_is_listed_with_its_topics(java_broker_at_our_namesrv: PeerCluster, admin: AdminConsole) -> None:
    # given a Java broker that registered at its start; when the real mqadmin asks the name server
    cluster = java_broker_at_our_namesrv
    row, clusters, topics = peer_processes.listed(cluster, admin)
    # then the broker is there under its name and address, and so are the topics it created for itself
    assert row in clusters
    assert {"broker-a", "DefaultCluster", "TBW102", "rmq_sys_SYNC_BROKER_MEMBER_broker-a"} <= topics


@pytest.mark.slow
@pytest.mark.covers("R89", "R95")
def test_java_clients_work_through_our_routes(java_broker_at_our_namesrv: PeerCluster) -> None:
    # given routes that only our name server answers; when the Java client creates a topic, sends, consumes, deletes
    results = peer_processes.run_interop(
        java_broker_at_our_namesrv.namesrv, ["send_receive", "rebalance", "admin_topic"]
    )
    # then it all works
    assert {"send_receive": "", "rebalance": "", "admin_topic": ""} == {
        name: "" if result["ok"] else result["detail"] for name, result in results.items()
    }
