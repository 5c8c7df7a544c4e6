"""Fixtures for tests with real clients and servers; a peer that is not installed skips its tests and says why.

With UNDERSTUDY_TEST_SERVERS=java the same tests run against the real servers: that checks the tests themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import peer_installation
import peer_processes
import pytest
from peer_processes import PeerCluster

from understudy.testkit.port_blocks import PortBlocks


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.peers)


def place_of(name: str) -> Path:
    """Where a peer is installed; skips the test that asks when it is not."""
    peer = peer_installation.find(name)
    if peer.place is None:
        pytest.skip(f"{name}: {peer.reason}")
    return peer.place


@pytest.fixture(scope="session")
def place_of_peer() -> Callable[[str], Path]:
    return place_of


@pytest.fixture(scope="session")
def java_home() -> Path:
    """The folder with the real system's jars."""
    return place_of("java")


@pytest.fixture(scope="session")
def port_blocks() -> Iterator[PortBlocks]:
    """Wide blocks: Java brokers listen on several ports around the one they are given."""
    with PortBlocks() as blocks:
        yield blocks


@pytest.fixture(scope="session")
def servers_kind() -> str:
    """Whose servers are tested: ours, or the real ones when a test itself is to be checked."""
    kind = os.environ.get("UNDERSTUDY_TEST_SERVERS", peer_processes.OURS)
    if kind == peer_processes.JAVA:
        place_of("java")
    return kind


@pytest.fixture(scope="session")
def cluster(
    servers_kind: str, port_blocks: PortBlocks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PeerCluster]:
    """A name server and one master in processes of their own, shared by all tests with real clients."""
    folder = tmp_path_factory.mktemp("cluster")
    with peer_processes.peer_cluster(servers_kind, servers_kind, folder, port_blocks) as running:
        yield running


@pytest.fixture(scope="session")
def client_results(request: pytest.FixtureRequest, cluster: PeerCluster) -> Iterator[Callable[[ModuleType], Any]]:
    """Plays all real clients that this run selected at the same time, for they mostly wait; returns each one's result.

    A test module that has a function `play_client(cluster, place_of, items)` is played once, with its selected items.
    """
    selected: dict[ModuleType, list[pytest.Function]] = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and hasattr(item.module, "play_client"):
            selected.setdefault(item.module, []).append(item)
    with ThreadPoolExecutor(max_workers=max(1, len(selected))) as threads:
        runs: dict[ModuleType, Future[Any]] = {
            module: threads.submit(module.play_client, cluster, place_of, items) for module, items in selected.items()
        }
        yield lambda module: runs[module].result()


@pytest.fixture(scope="session")
def proxy(cluster: PeerCluster, port_blocks: PortBlocks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A proxy in a process of its own in front of the shared cluster; ``host:port`` for gRPC clients."""
    port = port_blocks.take()
    with peer_processes.running(peer_processes.our_proxy(tmp_path_factory.mktemp("proxy"), cluster.namesrv, port)):
        yield f"127.0.0.1:{port}"


@pytest.fixture(scope="session")
def admin(java_home: Path) -> Iterator[peer_processes.AdminConsole]:
    """The real mqadmin, started once."""
    with peer_processes.AdminConsole() as console:
        yield console
