"""Static topics: an unmodified Java client sends to and consumes from queues that move between two brokers of ours."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from peer_installation import peer_environment
from peer_processes import OURS, AdminConsole, peer_cluster

from understudy.testkit.port_blocks import PortBlocks

HERE = Path(__file__).parent
TOPIC = "Moving"
Admin = Callable[[str], str]


@contextlib.contextmanager
def our_tool(namesrv: str) -> Iterator[Admin]:
    def run(line: str) -> str:
        program = str(Path(sys.executable).parent / "mqadmin")
        done = subprocess.run(
            [program, *line.split(), "-n", namesrv], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield run


@contextlib.contextmanager
def real_tool(namesrv: str) -> Iterator[Admin]:
    with AdminConsole() as console:

        def run(line: str) -> str:
            answer = console.run(namesrv, line)
            assert "Exception" not in answer["output"] + answer["errors"], answer
            return str(answer["output"])

        yield run


@pytest.mark.slow
@pytest.mark.covers("R349", "IT-16")
@pytest.mark.parametrize("tool", [our_tool, real_tool])
def test_the_java_client_goes_on_without_gap_or_repeat_while_queues_move(
    tool: Callable[[str], contextlib.AbstractContextManager[Admin]],
    servers_kind: str,
    java_home: Path,
    port_blocks: PortBlocks,
    tmp_path: Path,
) -> None:
    brokers = ("broker-a", "broker-b")
    with (
        peer_cluster(servers_kind, servers_kind, tmp_path, port_blocks, brokers) as cluster,
        tool(cluster.namesrv) as admin,
    ):
        # Given a static topic of one broker, and a client that sends and consumes in order
        assert "new mapping data" in admin(f"updateStaticTopic -t {TOPIC} -qn 4 -b broker-a")
        command = ["java", "-cp", f"{java_home}/lib/*", str(HERE / "SmokeStaticTopic.java"), cluster.namesrv, TOPIC]
        client = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=peer_environment()
        )
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == "running\n"
            # When its queues move, all of them and some of them back
            for target in ("broker-b", "broker-a,broker-b"):
                admin(f"remappingStaticTopic -t {TOPIC} -b {target}")
            printed, _ = client.communicate("enough\n", timeout=120)
        finally:
            client.kill()
        seen = json.loads(printed.splitlines()[-1])
        # Then every message came once, in order, at the offset that its sender was told
        assert (seen["queues"], seen["brokers"], seen["missing"]) == (4, "__syslo__global__", 0), seen
        assert seen["exact"], seen
        assert seen["elsewhere"] == 0, seen
        assert servers_kind != OURS or "broker-b" in admin(f"topicRoute -t {TOPIC}")
