"""Transactions, timer messages and pop of the real Java client where several brokers, also of both kinds, have a topic.

Each cluster has two masters: both in one container of ours, or one of ours beside a real one, at a name server of ours
or at a real one. A topic has a queue at each, and each scenario uses every queue.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import peer_processes
import pytest
from container_cluster import ContainerCluster, container_cluster
from peer_processes import JAVA, PeerCluster

from understudy.testkit.port_blocks import PortBlocks

NAMES = ("broker-a", "broker-b")
CLUSTERS = ("container", "our-namesrv", "java-namesrv")
#: scenario: the requirement rows that it shows
SCENARIOS: dict[str, tuple[str, ...]] = {
    "pop": (),
    "pop_retry": ("PP-03",),
    "pop_orderly": (),
    "timer": ("SC-05",),
    "timer_recall": ("SC-05",),
    "tx_commit": ("TX-01",),
    "tx_rollback": ("TX-01",),
    "tx_check_commit": ("TX-03",),
    "tx_check_rollback": ("TX-03",),
}
Opened = contextlib.AbstractContextManager[PeerCluster | ContainerCluster]
Results = dict[str, dict[str, Any]]


def opened(name: str, kind: str, ports: PortBlocks, folder: Path) -> Opened:
    """Describe one of the clusters, whose servers of ours are of *kind*; it begins with the block."""
    if name == "container":
        return container_cluster(kind, folder, ports, NAMES)
    namesrv_kind = JAVA if name == "java-namesrv" else kind
    return peer_processes.peer_cluster(namesrv_kind, dict(zip(NAMES, (kind, JAVA), strict=True)), folder, ports)


def play(open_cluster: Callable[[], Opened], scenarios: list[str]) -> Results:
    with open_cluster() as cluster:
        return peer_processes.run_interop(cluster.namesrv, scenarios)


@pytest.fixture(scope="module")
def plays(
    request: pytest.FixtureRequest,
    java_home: Path,
    servers_kind: str,
    port_blocks: PortBlocks,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, Future[Results]]]:
    """All selected scenarios at all selected clusters at once, for they mostly wait."""
    chosen: dict[str, list[str]] = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.module is request.module:
            chosen.setdefault(item.callspec.params["cluster"], []).append(item.callspec.params["scenario"])
    with ThreadPoolExecutor() as threads:
        yield {
            name: threads.submit(
                play, partial(opened, name, servers_kind, port_blocks, tmp_path_factory.mktemp(name)), scenarios
            )
            for name, scenarios in chosen.items()
        }


@pytest.mark.slow
@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize(
    "scenario",
    [pytest.param(name, marks=[pytest.mark.covers(*rows)] if rows else []) for name, rows in SCENARIOS.items()],
)
def test_scenario(scenario: str, cluster: str, plays: dict[str, Future[Results]]) -> None:
    # given two masters that both have the topic; when the real client played the scenario with a queue of each
    result = plays[cluster].result().get(scenario)
    # then it saw what RocketMQ means
    assert result is not None, f"the driver was ended before {scenario} was done"
    assert result["ok"], f"{scenario}: {result['detail']}"
