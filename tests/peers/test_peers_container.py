"""A container of brokers under the real mqadmin and the real Java client: brokers come and go while it runs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import peer_processes
import pytest
from container_cluster import container_cluster
from peer_processes import AdminConsole

from understudy.testkit.port_blocks import PortBlocks

LIST_LIMIT_S = 60


@dataclass(frozen=True)
class RunningContainer:
    """A name server, a container that hosts broker-a, and the file of a second broker that it does not host yet."""

    namesrv: str
    address: str
    brokers: dict[str, str]
    files: dict[str, Path]
    admin: AdminConsole

    def tell(self, command: str) -> str:
        """Runs one command of the real mqadmin and returns all it printed."""
        return self.admin.printed(self.namesrv, command)

    def listed(self) -> set[tuple[str, str]]:
        """(broker name, address) of every broker in the cluster list."""
        rows = re.findall(r"^DefaultCluster +(\S+) +0 +(\S+)", self.tell("clusterList"), re.MULTILINE)
        return set(rows)

    def await_listed(self, wanted: Callable[[set[tuple[str, str]]], bool]) -> set[tuple[str, str]]:
        """Polls the cluster list until it is as wanted; returns the last one."""
        deadline = time.monotonic() + LIST_LIMIT_S
        while not wanted(listed := self.listed()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return listed


@pytest.fixture(scope="module")
def container(
    admin: AdminConsole, servers_kind: str, port_blocks: PortBlocks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningContainer]:
    folder = tmp_path_factory.mktemp("container")
    with container_cluster(servers_kind, folder, port_blocks, ["broker-a"], ["broker-b"]) as cluster:
        yield RunningContainer(cluster.namesrv, cluster.address, cluster.brokers, cluster.files, admin)


@pytest.mark.slow
@pytest.mark.covers("CU-10")
def test_a_container_starts_the_brokers_its_file_names(container: RunningContainer) -> None:
    # given a container whose configuration names one broker file; when the cluster is listed
    listed = container.await_listed(bool)
    # then that broker is there
    assert {("broker-a", container.brokers["broker-a"])} == listed


@pytest.mark.slow
@pytest.mark.covers("CU-04", "CU-07")
def test_the_real_mqadmin_adds_a_broker_that_serves_and_removes_it(container: RunningContainer) -> None:
    # given a running container; when mqadmin adds a second broker
    added = container.tell(f"addBroker -c {container.address} -b {container.files['broker-b']}")
    assert "success" in added, added
    # then it is listed beside the first one, and real clients use both; offset ids stay distinct (in the real container
    # two brokers give messages the same one)
    both = set(container.brokers.items())
    assert both == container.await_listed(lambda listed: len(listed) == 2)
    results = peer_processes.run_interop(container.namesrv, ["send_receive", "order_per_queue"])
    assert [] == [result["detail"] for result in results.values() if not result["ok"]]
    # and when mqadmin removes it again; then it is gone and the first one serves on
    removed = container.tell(f"removeBroker -c {container.address} -b DefaultCluster:broker-b:0")
    assert "success" in removed, removed
    first = {("broker-a", container.brokers["broker-a"])}
    assert first == container.await_listed(lambda listed: len(listed) == 1)
    status = container.tell(f"brokerStatus -b {container.brokers['broker-a']}")
    assert "brokerVersionDesc" in status, status


@pytest.mark.slow
@pytest.mark.covers("CT-02")
def test_a_missing_broker_file_is_refused_with_the_reference_text(container: RunningContainer) -> None:
    # given a path where no file is; when mqadmin asks the container to add it
    missing = container.files["broker-b"].with_name("no-such.conf")
    answer = container.tell(f"addBroker -c {container.address} -b {missing}")
    # then the operator reads why
    assert "addBroker properties empty" in answer, answer
