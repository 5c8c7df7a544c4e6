"""Failover in mixed groups: a slave of one kind acts for a master of the other, which gets everything back."""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
import trio
from peer_installation import peer_environment
from peer_processes import JAVA, OURS, ROCKETMQ, PortBlocks, ServerProcess, filled_template, running, server

from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import bare_errors
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import RemotingError
from understudy.runtime.json_dialect import loads
from understudy.runtime.world import real_world
from understudy.testkit.acting_processes import RealRun
from understudy.testkit.ring_processes import ProcessRing

TOPIC = "failover"
JAVA_SYNC_LIMIT_S = 100  # a Java slave copies its master's tables for the first time after a minute
ACTING = {
    "totalReplicas": 2,
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "slaveReadEnable": "true",
}


@dataclass(frozen=True)
class Group:
    """A master of one kind with a slave of the other."""

    namesrv: str
    master: str
    slave: str
    master_process: ServerProcess


def ask(address: str, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command | None:
    async def run() -> Command | None:
        async with open_client(real_world()) as client:
            try:
                return await client.invoke(address, request(code, ext, body), 5_000)
            except RemotingError:
                return None

    return trio.run(run)


def table(address: str, code: int) -> Any:
    answer = ask(address, code)
    return {} if answer is None or answer.code != 0 else loads(answer.body)


def committed(address: str) -> int | None:
    found = table(address, RequestCode.GET_ALL_CONSUMER_OFFSET).get("offsetTable", {})
    offset = found.get(f"{TOPIC}@readers", {}).get("0")
    return None if offset is None else int(offset)


def knows_readers(address: str) -> bool:
    return "readers" in table(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).get("subscriptionGroupTable", {})


def commit(address: str, offset: int) -> None:
    ext = {"consumerGroup": "readers", "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
    answer = ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, ext)
    assert answer is not None
    assert answer.code == 0, answer


def active(address: str) -> bool:
    return bool(table(address, RequestCode.GET_BROKER_RUNTIME_INFO).get("table", {}).get("brokerActive") == "true")


def members(group: Group, name: str) -> dict[str, str]:
    ext = {"clusterName": "DefaultCluster", "brokerName": name}
    answer = ask(group.namesrv, RequestCode.GET_BROKER_MEMBER_GROUP, ext)
    assert answer is not None
    return dict(loads(answer.body)["brokerMemberGroup"]["brokerAddrs"])


def await_true(condition: Callable[[], bool], limit_s: float, what: str) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < limit_s, f"not within {limit_s} s: {what}"
        time.sleep(0.1)


def prepare(group: Group) -> None:
    ext = {
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    for code, header, body in (
        (RequestCode.UPDATE_AND_CREATE_TOPIC, ext, b""),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, b'{"groupName":"readers","consumeEnable":true}'),
    ):
        answer = ask(group.master, code, header, body)
        assert answer is not None
        assert answer.code == 0, answer

    async def send() -> None:
        async with open_producer(real_world(), group.namesrv, "writers") as producer:
            for number in range(20):
                await producer.send(Message(TOPIC, b"%d" % number), timeout_ms=10_000)

    trio.run(send)
    commit(group.master, 3)


@pytest.fixture
def group(request: pytest.FixtureRequest, java_home: Path, port_blocks: PortBlocks, tmp_path: Path) -> Iterator[Group]:
    """Our name server, and a group whose master is of the kind asked for and whose slave is of the other."""
    kinds = (OURS, JAVA) if request.param == OURS else (JAVA, OURS)
    port = port_blocks.take()
    namesrv = f"127.0.0.1:{port}"
    text = filled_template("namesrv", PORT=port, DIR=tmp_path / "n", supportActingMaster="true")
    found: list[tuple[str, ServerProcess]] = []
    for template, kind in zip(("broker", "broker-slave"), kinds, strict=True):
        port = port_blocks.take() + 10
        keys: dict[str, object] = {"NAME": "broker-mixed", "PORT": port, "HA_PORT": port + 1, **ACTING}
        place = tmp_path / template
        broker_text = filled_template(template, **keys, NAMESRV=namesrv, DIR=place)
        found.append((f"127.0.0.1:{port}", server(kind, "broker", template, place, broker_text)))
    (master, master_process), (slave, slave_process) = found
    with running(server(OURS, "namesrv", "namesrv", tmp_path / "n", text)):
        try:
            for process in (master_process, slave_process):
                process.start()
            for process in (master_process, slave_process):
                process.await_boot()
            yield Group(namesrv, master, slave, master_process)
        finally:
            for process in (master_process, slave_process):
                process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("group", [OURS, JAVA], indirect=True)
def test_what_the_slave_of_the_other_kind_committed_is_given_back(group: Group) -> None:
    # given a pair in which the slave knows what its master knows
    await_true(lambda: active(group.master), 60, "the master is online")
    prepare(group)
    await_true(lambda: committed(group.slave) == 3, JAVA_SYNC_LIMIT_S, "the slave has the offsets")
    await_true(lambda: knows_readers(group.slave), 20, "the slave has the groups")
    # when the master is killed and its slave goes on
    group.master_process.kill()
    await_true(lambda: active(group.slave), 30, "the slave acts")
    commit(group.slave, 15)
    # and the master comes back
    group.master_process.start().await_boot()
    await_true(lambda: "0" in {str(key) for key in members(group, "broker-mixed")}, 60, "the master is registered")
    # then it has the slave's commits, and the slave stops
    assert committed(group.master) == 15
    await_true(lambda: not active(group.slave), 20, "the slave stops acting")


@pytest.mark.slow
@pytest.mark.covers("R4")
def test_java_clients_go_through_a_failover_without_loss_repeat_or_disorder(java_home: Path) -> None:
    # when the container of a master is killed while Java clients send and consume, concurrently and in order
    outcome = trio.run(RealRun(random.Random(11), clients="java", quiet_seconds=3.0).play)
    # then they got everything that was acknowledged, once
    assert outcome.verdict.ok, outcome.verdict.violations
    assert outcome.verdict.sent > 100
    assert outcome.verdict.delivered >= 2 * outcome.verdict.sent
    assert outcome.verdict.repeated == 0


# --- what consumers of the real client committed on either side ---

# topic: messages consumed at the master before it dies, and at the slave that acts for it
CASES = {"a": (200, 0), "b": (0, 300), "c": (600, 500), "d": (600, 450), "e": (20, 1), "f": (20, 10), "g": (20, 499)}
AFTER_THE_RETURN = 5
PAIR = {
    "c1": [
        {
            **{key: str(value) for key, value in ACTING.items()},
            "brokerName": "g0",
            "brokerId": "0",
            "brokerRole": "ASYNC_MASTER",
        }
    ],
    "c2": [
        {
            **{key: str(value) for key, value in ACTING.items()},
            "brokerName": "g0",
            "brokerId": "1",
            "brokerRole": "SLAVE",
        }
    ],
}


class JavaConsumers:
    """A concurrent and an orderly consumer of the real client; they commit when the block ends."""

    def __init__(self, name_server: str) -> None:
        topics = ",".join(CASES)
        self._command = [ROCKETMQ, "traffic", "--namesrv", name_server, "--topic", topics, "--senders", "0"]
        self.seen: dict[str, list[str]] = {"concurrent-readers": [], "orderly-readers": []}

    def consume(self, wanted: set[str], quiet_s: float = 3.0) -> None:
        """Consume until both groups have what is wanted, then a little longer, for what should not come."""
        with subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=peer_environment(),
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            reader = threading.Thread(target=self._read, args=(process.stdout,))
            reader.start()
            try:
                await_true(
                    lambda: all(wanted <= set(keys) for keys in self.seen.values()), 90, f"{len(wanted)} messages"
                )
                time.sleep(quiet_s)
                process.stdin.close()
                process.wait(30)
            finally:
                process.kill()
                reader.join(10)

    def _read(self, lines: IO[bytes]) -> None:
        for line in lines:
            told = json.loads(line) if line.startswith(b"{") else {}
            if told.get("event") == "delivered":
                self.seen[told["group"]].append(told["key"])


@pytest.mark.slow
@pytest.mark.covers("R61", "R68", "R69")
def test_java_consumers_read_nothing_again_and_skip_nothing_whoever_took_their_commits(java_home: Path) -> None:
    """At the master alone, at the slave alone, at both, and across steps of the version; 1, 10, 499 and more."""

    async def put(ring: ProcessRing, counts: dict[str, int], phase: str) -> set[str]:
        async with open_producer(real_world(), ring.name_server, "writers") as producer:
            for topic, count in counts.items():
                for number in range(count):
                    message = Message(topic, f"{topic}-{phase}-{number}".encode())
                    await producer.send(message, queue=MessageQueue(topic, "g0", 0), timeout_ms=10_000)
        return {f"{topic}-{phase}-{number}" for topic, count in counts.items() for number in range(count)}

    async def play() -> None:
        async with open_client(real_world()) as client:
            ring = ProcessRing(client, PAIR)
            try:
                await ring.start_all()
                await ring.until("the pair is complete", ring.complete, 60)
                for topic in CASES:
                    await ring.make_topic(topic, 1)

                async def consume(wanted: set[str]) -> None:
                    consumers = JavaConsumers(ring.name_server)
                    await trio.to_thread.run_sync(consumers.consume, wanted)
                    # then both groups got exactly that: nothing else, nothing twice
                    for keys in consumers.seen.values():
                        assert sorted(wanted) == sorted(keys)

                # given what both groups consumed at the master, and what nobody has read when it dies
                await consume(await put(ring, {topic: before for topic, (before, _) in CASES.items()}, "before"))
                during = await put(ring, {topic: count for topic, (_, count) in CASES.items()}, "during")
                await trio.sleep(4)  # topics and groups follow within three seconds
                ring.kill("c1")
                await ring.until("the slave acts", lambda: ring.active("g0", 1), 30)
                # when they go on at the slave
                await consume(during)
                # and the master comes back
                ring.start("c1")
                await ring.until("the master is registered", lambda: ring.routed_to("a", "g0", 0), 60)
                # then only what is new arrives
                await consume(await put(ring, dict.fromkeys(CASES, AFTER_THE_RETURN), "after"))
            finally:
                ring.close()

    with bare_errors():
        trio.run(play)
