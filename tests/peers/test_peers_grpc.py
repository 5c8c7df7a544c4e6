"""The official gRPC clients for Java, Python, Node and Go, as they are in their registries, through a proxy of ours."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import peer_processes
import pytest
from peer_processes import PeerCluster

from understudy.testkit.port_blocks import PortBlocks

HERE = Path(__file__).parent
QUEUES = "4"
PYTHON_SCENARIOS = ("normal", "push", "fifo", "delay", "transaction", "sql")
KINDS = {"normal": "NORMAL", "fifo": "FIFO", "delay": "DELAY", "transaction": "TRANSACTION", "node": "NORMAL"}
KINDS |= {"java": "NORMAL", "javapush": "NORMAL", "tran": "TRANSACTION", "sql": "NORMAL", "javafifo": "FIFO"}
KINDS |= {"javadelay": "DELAY", "javasql": "NORMAL"}
KINDS |= {"go": "NORMAL", "gofifo": "FIFO", "godelay": "DELAY", "gotran": "TRANSACTION"}
# consumer groups: in order, and how often a message is tried again before it is a dead letter
GROUPS = {
    "GID_fifo": ("true", 16),
    "GID_gofifo": ("true", 16),
    "GID_java_fifo": ("true", 1),
}
JAVA_SCENARIOS = ("normal", "push", "fifo", "delay", "sql", "lite", "transaction")
GO_SCENARIOS = ("normal", "sql", "fifo", "delay", "transaction")
Runs = dict[str, "Future[list[dict[str, Any]]]"]


@pytest.fixture(scope="module")
def runs(cluster: PeerCluster, proxy: str, place_of_peer: Callable[[str], Path]) -> Iterator[Runs]:
    """All clients at the same time, for they mostly wait."""
    for topic, kind in KINDS.items():
        tool = [sys.executable, str(HERE / "create_topic.py"), cluster.namesrv, topic, QUEUES, f"+message.type={kind}"]
        peer_processes.run_tool(tool)
    admin = [str(Path(sys.executable).parent / "mqadmin"), "updateSubGroup", "-n", cluster.namesrv]
    for group, (in_order, retries) in GROUPS.items():
        keys = ["-g", group, "-o", in_order, "-r", str(retries)]
        peer_processes.run_tool([*admin, "-c", "DefaultCluster", *keys])
    with ThreadPoolExecutor(4) as threads:
        found: Runs = {}
        for name, start in (
            ("grpc-python", python_client),
            ("grpc-node", node_client),
            ("grpc-java", java_client),
            ("grpc-go", go_client),
        ):
            try:
                place = place_of_peer(name)
            except pytest.skip.Exception as skipped:
                found[name] = Future()
                found[name].set_exception(skipped)
            else:
                found[name] = threads.submit(start, place, proxy, cluster.namesrv)
        yield found


def play(command: list[str], namesrv: str, **environment: str) -> list[dict[str, Any]]:
    """Run a client; it can wait until a group has begun, and learns of that from the brokers."""
    begun = shlex.join([sys.executable, str(HERE / "await_group.py"), namesrv, QUEUES])
    return peer_processes.run_client(command, limit_s=300, SMOKE_AWAIT_GROUP=begun, **environment)


def python_client(python: Path, proxy: str, namesrv: str) -> list[dict[str, Any]]:
    return play([str(python), str(HERE / "smoke_grpc_python.py"), proxy, *PYTHON_SCENARIOS], namesrv)


def node_client(modules: Path, proxy: str, namesrv: str) -> list[dict[str, Any]]:
    return play(["node", str(HERE / "smoke_grpc_node.js"), proxy, "node"], namesrv, NODE_PATH=str(modules))


def java_client(jar: Path, proxy: str, namesrv: str) -> list[dict[str, Any]]:
    return play(["java", "-cp", str(jar), str(HERE / "SmokeGrpcJava.java"), proxy], namesrv)


def go_client(program: Path, proxy: str, namesrv: str) -> list[dict[str, Any]]:
    return play([str(program), proxy, *GO_SCENARIOS], namesrv)


def result(runs: Runs, client: str, name: str) -> dict[str, Any]:
    lines = runs[client].result()
    return next((line for line in lines if line["name"] == name), {"ok": False, "lines": lines})


@pytest.mark.slow
@pytest.mark.covers("R117", "R120")
@pytest.mark.parametrize("scenario", PYTHON_SCENARIOS)
def test_the_python_client_works_unchanged(runs: Runs, scenario: str) -> None:
    found = result(runs, "grpc-python", scenario)
    assert found["ok"] is True, found


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["simple", "push"])
def test_the_node_client_works_unchanged(runs: Runs, scenario: str) -> None:
    found = result(runs, "grpc-node", scenario)
    assert found["ok"] is True, found


@pytest.mark.slow
@pytest.mark.parametrize("scenario", JAVA_SCENARIOS)
def test_the_java_client_works_unchanged_and_as_it_is_shipped_under_tls(runs: Runs, scenario: str) -> None:
    found = result(runs, "grpc-java", scenario)
    assert found["ok"] is True, found


@pytest.mark.slow
@pytest.mark.parametrize("scenario", GO_SCENARIOS)
def test_the_go_client_works_unchanged_and_as_it_is_shipped_under_tls(runs: Runs, scenario: str) -> None:
    found = result(runs, "grpc-go", scenario)
    assert found["ok"] is True, found


@pytest.mark.slow
@pytest.mark.covers("R116", "R121")
def test_a_broker_with_a_proxy_beside_it_serves_old_and_new_clients(
    port_blocks: PortBlocks, tmp_path: Path, place_of_peer: Callable[[str], Path]
) -> None:
    python, port = place_of_peer("grpc-python"), port_blocks.take()
    namesrv, broker, keys = f"127.0.0.1:{port}", port + 10, tmp_path / "rmq-proxy.json"
    keys.write_text(json.dumps({"grpcServerPort": port + 1, "remotingListenPort": port + 2}))
    text = peer_processes.filled_template("namesrv", PORT=port, DIR=tmp_path / "namesrv")
    first = peer_processes.server(peer_processes.OURS, "namesrv", "namesrv", tmp_path / "namesrv", text)
    text = peer_processes.filled_template(
        "broker", NAME="broker-a", PORT=broker, HA_PORT=broker + 2, NAMESRV=namesrv, DIR=tmp_path / "broker-a"
    )
    second = peer_processes.server(peer_processes.OURS, "broker", "broker-a", tmp_path / "broker-a", text)
    second.command += ["--enable-proxy", "-pc", str(keys)]
    second.boot_mark = "rocketmq-proxy startup successfully"
    with peer_processes.running(first, second):
        tool = [sys.executable, str(HERE / "create_topic.py"), namesrv, "normal", QUEUES]
        peer_processes.run_tool(tool)
        command = [str(python), str(HERE / "smoke_grpc_python.py"), f"127.0.0.1:{port + 1}", "normal"]
        (line,) = play(command, namesrv)
        assert line["ok"] is True, line
        admin = str(Path(sys.executable).parent / "mqadmin")
        peer_processes.run_tool([admin, "sendMessage", "-n", namesrv, "-t", "normal", "-p", "old"])


def test_a_proxy_that_cannot_begin_says_why_in_one_line(tmp_path: Path) -> None:
    program = str(Path(sys.executable).parent / "mqproxy")
    (tmp_path / "bad.json").write_text('{"proxyMode": "both"}')
    (tmp_path / "port.json").write_text('{"grpcServerPort": "high"}')
    (tmp_path / "empty.json").write_text("")
    (tmp_path / "good.json").write_text("{}")
    for arguments, why in (
        (["-pc", "missing.json", "-n", "127.0.0.1:1"], "missing.json cannot be read"),
        (["-pc", "bad.json", "-n", "127.0.0.1:1"], "expected cluster or local"),
        (["-pc", "port.json", "-n", "127.0.0.1:1"], "expected a port from 0 to 65535"),
        (["-pc", "empty.json", "-n", "127.0.0.1:1"], "no JSON"),
        (["-pc", "good.json"], "no name server"),
        (["-pc", "good.json", "-pm", "both", "-n", "127.0.0.1:1"], "expected cluster or local"),
    ):
        done = subprocess.run([program, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=30)
        lines = done.stderr.strip().splitlines()
        assert (1, 1) == (done.returncode, len(lines)), done
        assert lines[0].startswith("mqproxy: ")
        assert why in lines[0]
