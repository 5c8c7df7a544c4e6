"""Real clients at a proxy of ours: with access keys, at its remoting port, across its restart, in front of Java."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import peer_processes
import pytest
import trio
from peer_processes import PeerCluster
from test_peers_security import CLIENT, KEYS, closed_cluster  # noqa: F401 - a fixture

from understudy.mqclient.admin import topics
from understudy.mqclient.admin.topics import TopicSettings
from understudy.mqclient.api import SessionOptions
from understudy.mqclient.session import open_session
from understudy.runtime.world import real_world
from understudy.security.signature import Credentials
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.waiting import eventually

HERE = Path(__file__).parent
ROOT = Credentials("rocketmq", "12345678")
STOPS_WITHIN_S = 15


async def make_topics(cluster: PeerCluster, credentials: Credentials | None, *names: str) -> None:
    async with open_session(real_world(), cluster.namesrv, SessionOptions(credentials=credentials)) as session:
        for name in names:
            for broker in cluster.brokers.values():
                await topics.save_topic(session, broker, TopicSettings(name, 4, 4))
            await eventually(lambda name=name: topics.exists(session, name), 60)


def python_client(python: Path, proxy: str, scenario: str, **environment: str) -> dict[str, Any]:
    command = [str(python), str(HERE / "smoke_grpc_python.py"), proxy, scenario]
    return peer_processes.run_client(command, limit_s=110, **environment)[-1]


@pytest.fixture(scope="module")
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.mark.slow
def test_grpc_clients_with_an_access_key_work_at_a_proxy_that_asks_and_others_do_not(
    closed_cluster: PeerCluster,  # noqa: F811 - the fixture
    port_blocks: PortBlocks,
    place_of_peer: Callable[[str], Path],
    tmp_path: Path,
    threads: ThreadPoolExecutor,
) -> None:
    python, modules, port = place_of_peer("grpc-python"), place_of_peer("grpc-node"), port_blocks.take()
    trio.run(make_topics, closed_cluster, ROOT, "SmokeNormal", "SmokeNode")
    keys = dict(line.split("=", 1) for line in KEYS.split())
    server = peer_processes.our_proxy(tmp_path, closed_cluster.namesrv, port, **keys)
    node = ["node", str(HERE / "smoke_grpc_node.js"), f"127.0.0.1:{port}", "SmokeNode"]
    with peer_processes.running(server):
        runs: dict[str, Future[Any]] = {}
        for name, environment in (("with", CLIENT), ("without", {})):
            more = {"SMOKE_TOPIC": "SmokeNormal", **environment}
            runs[f"python {name}"] = threads.submit(python_client, python, f"127.0.0.1:{port}", "normal", **more)
            more = {"NODE_PATH": str(modules), "SMOKE_AWAIT_GROUP": "sleep 8 #", **environment}
            runs[f"node {name}"] = threads.submit(peer_processes.run_client, node, 90, **more)
        found = {name: run.result() for name, run in runs.items()}
    assert found["python with"]["ok"] is True, found
    assert [True, True] == [line["ok"] for line in found["node with"]], found
    assert found["python without"]["ok"] is False
    assert not any(line["ok"] for line in found["node without"]), found


@pytest.mark.slow
def test_a_client_goes_on_when_its_proxy_was_killed_or_stopped_and_is_there_again(
    cluster: PeerCluster, port_blocks: PortBlocks, place_of_peer: Callable[[str], Path], tmp_path: Path
) -> None:
    python, port = place_of_peer("grpc-python"), port_blocks.take()
    trio.run(make_topics, cluster, None, "again")
    server = peer_processes.our_proxy(tmp_path / "proxy", cluster.namesrv, port)
    result: dict[str, Any] = {}

    def play() -> None:
        result.update(python_client(python, f"127.0.0.1:{port}", "reconnect", SMOKE_MARKS=str(tmp_path)))

    with peer_processes.running(server):
        client = threading.Thread(target=play)
        client.start()
        for turn, end in enumerate((server.stop, server.kill)):
            deadline = time.monotonic() + 60
            while not (tmp_path / f"worked{turn}").exists() and client.is_alive() and time.monotonic() < deadline:
                time.sleep(0.05)
            begin = time.monotonic()
            end()
            assert time.monotonic() - begin < STOPS_WITHIN_S
            server.start().await_boot()
            (tmp_path / f"back{turn}").touch()
        client.join(110)
    assert result.get("ok") is True, result


@pytest.mark.slow
def test_the_java_client_sends_and_consumes_through_the_remoting_port(
    cluster: PeerCluster, port_blocks: PortBlocks, java_home: Path, tmp_path: Path
) -> None:
    port = port_blocks.take()
    server = peer_processes.our_proxy(
        tmp_path, cluster.namesrv, port, remotingListenPort=port + 1, localServeAddr="127.0.0.1"
    )
    trio.run(make_topics, cluster, None, "ThroughProxy")
    load = [peer_processes.ROCKETMQ, "load"]
    at = ["--namesrv", f"127.0.0.1:{port + 1}", "--topic", "ThroughProxy"]
    with peer_processes.running(server):
        sent = peer_processes.run_client(
            [*load, "send", *at, "--threads", "4", "--warmup", "0", "--count", "300", "--limit", "60"], limit_s=90
        )[-1]
        assert 300 == sent["count"], sent
        stored = sent["acked_with_warmup"]  # each thread may send one more before it is measured
        wanted = ["--count", str(stored), "--timeout", "60"]
        consumed = peer_processes.run_client([*load, "consume", *at, *wanted], limit_s=90)[-1]
    assert (stored, 0) == (consumed["count"], consumed["duplicates"]), consumed


@pytest.mark.slow
def test_a_proxy_of_ours_serves_grpc_clients_in_front_of_java_brokers(
    java_home: Path, port_blocks: PortBlocks, place_of_peer: Callable[[str], Path], tmp_path: Path
) -> None:
    python, port = place_of_peer("grpc-python"), port_blocks.take()
    with peer_processes.peer_cluster(peer_processes.JAVA, peer_processes.JAVA, tmp_path / "java", port_blocks) as java:
        peer_processes.run_tool([sys.executable, str(HERE / "create_topic.py"), java.namesrv, "normal", "4"])
        with peer_processes.running(peer_processes.our_proxy(tmp_path / "proxy", java.namesrv, port)):
            found = python_client(python, f"127.0.0.1:{port}", "normal")
    assert found["ok"] is True, found
