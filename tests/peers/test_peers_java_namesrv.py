"""Our broker registers at a real Java name server and serves real clients through it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import peer_processes
import pytest
from peer_processes import JAVA, AdminConsole, PeerCluster

from understudy.testkit.port_blocks import PortBlocks


@pytest.fixture(scope="module")
def our_broker_at_java_namesrv(
    java_home: Path, servers_kind: str, port_blocks: PortBlocks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PeerCluster]:
    folder = tmp_path_factory.mktemp("java-namesrv")
    with peer_processes.peer_cluster(JAVA, servers_kind, folder, port_blocks) as cluster:
        yield cluster


@pytest.mark.slow
@pytest.mark.covers("R92")
def test_our_broker_is_listed_by_the_java_name_server(
    our_broker_at_java_namesrv: PeerCluster, admin: AdminConsole
) -> None:
    # given our broker after its start; when the real mqadmin asks the real name server
    cluster = our_broker_at_java_namesrv
    row, clusters, topics = peer_processes.listed(cluster, admin)
    # then the broker is there, alive and active, with its topics
    assert row in clusters
    assert {"broker-a", "DefaultCluster", "TBW102", "rmq_sys_SYNC_BROKER_MEMBER_broker-a"} <= topics


@pytest.mark.slow
@pytest.mark.covers("R95")
def test_java_clients_find_our_broker_through_the_java_name_server(our_broker_at_java_namesrv: PeerCluster) -> None:
    # given routes that a real name server answers; when the Java client creates a topic, sends, consumes, deletes
    results = peer_processes.run_interop(
        our_broker_at_java_namesrv.namesrv, ["send_receive", "auto_create_topic", "admin_topic"]
    )
    # then it all works
    assert {"send_receive": "", "auto_create_topic": "", "admin_topic": ""} == {
        name: "" if result["ok"] else result["detail"] for name, result in results.items()
    }
