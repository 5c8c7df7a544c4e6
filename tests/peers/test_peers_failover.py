"""Failover in mixed groups: a slave of one kind acts for a master of the other, which gets everything back."""

from __future__ import annotations

import functools
import json
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
import trio
from mixed_groups import (
    JAVA_SYNC_LIMIT_S,
    MixedGroup,
    caught_up,
    check_same_messages,
    commit,
    committed,
    make_group,
    mixed_groups,
    send,
)
from peer_installation import peer_environment
from peer_processes import JAVA, OURS, ROCKETMQ
from peer_requests import ask, await_true, table

from understudy.format.json_dialect import loads
from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.runtime.background import bare_errors
from understudy.runtime.world import real_world
from understudy.testkit.drills.acting_processes import RealRun
from understudy.testkit.drills.ring_processes import ProcessRing
from understudy.testkit.port_blocks import PortBlocks

TOPIC = "failover"
ACTING = {
    "totalReplicas": 2,
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "slaveReadEnable": "true",
}


def active(address: str) -> bool:
    return bool(table(address, RequestCode.GET_BROKER_RUNTIME_INFO)["table"].get("brokerActive") == "true")


def members(group: MixedGroup) -> set[str]:
    ext = {"clusterName": "DefaultCluster", "brokerName": group.name}
    answer = ask(group.namesrv, RequestCode.GET_BROKER_MEMBER_GROUP, ext)
    return {str(key) for key in loads(answer.body)["brokerMemberGroup"]["brokerAddrs"]}


def readers(address: str) -> Any:
    return table(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"].get("readers")


@pytest.fixture(scope="module")
def groups(
    java_home: Path, port_blocks: PortBlocks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, MixedGroup]]:
    """Two groups whose masters have a topic, a consumer group and its progress.

    The Java slave copies them only after a minute: tests that need this come last, other tests fill the minute.
    """
    folder = tmp_path_factory.mktemp("failover")
    with mixed_groups(folder, port_blocks, {}, ACTING, {"supportActingMaster": "true"}) as found:
        for group in found.values():
            await_true(functools.partial(active, group.master), 60, "the master is online")
            send(group, TOPIC, 20)
            make_group(group, TOPIC, 3)
        yield found


def check_that_commits_come_back(group: MixedGroup) -> None:
    """Let the master of a group die and return, and check that it gets what its slave has taken meanwhile."""
    # given a pair in which the slave knows what its master knows
    await_true(lambda: committed(group.slave, TOPIC) == 3, JAVA_SYNC_LIMIT_S, "the slave has the offsets")
    await_true(lambda: readers(group.slave) is not None, JAVA_SYNC_LIMIT_S, "the slave has the groups")
    await_true(functools.partial(caught_up, group), 60, "the slave has the master's log")
    # when the master is killed and its slave goes on
    group.servers[0].kill()
    await_true(lambda: active(group.slave), 60, "the slave acts")
    commit(group.slave, TOPIC, 15)
    # and the master comes back
    group.servers[0].start().await_boot()
    await_true(lambda: "0" in members(group), 90, "the master is registered")
    # then it has the slave's commits, and the slave stops
    assert committed(group.master, TOPIC) == 15
    await_true(lambda: not active(group.slave), 60, "the slave stops acting")


@pytest.mark.slow
def test_what_our_slave_committed_is_given_back_to_a_java_master(groups: dict[str, MixedGroup]) -> None:
    check_that_commits_come_back(groups[JAVA])


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
READERS = ("concurrent-readers", "orderly-readers")
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
        self.seen: dict[str, list[str]] = {group: [] for group in READERS}

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
                    lambda: all(wanted <= set(keys) for keys in self.seen.values()), 150, f"{len(wanted)} messages"
                )
                time.sleep(quiet_s)
                process.stdin.close()
                process.wait(60)
            finally:
                process.kill()
                reader.join(10)

    def _read(self, lines: IO[bytes]) -> None:
        for line in lines:
            told = json.loads(line) if line.startswith(b"{") else {}
            if told.get("event") == "delivered":
                self.seen[told["group"]].append(told["key"])


async def has_tables_and_log(ring: ProcessRing) -> bool:
    """Whether the slave has the topics of :data:`CASES`, what both groups have committed there, and the whole log."""
    found = []
    for number in (0, 1):
        address = ring.address("g0", number)
        topics = await ring.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)
        groups = await ring.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        offsets = await ring.ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET)
        end = (await ring.runtime("g0", number)).get("commitLogMaxOffset")
        if topics is None or groups is None or offsets is None or end is None:
            return False
        committed = loads(offsets.body)["offsetTable"]
        found.append(
            (
                {topic: loads(topics.body)["topicConfigTable"].get(topic) for topic in CASES},
                {group: loads(groups.body)["subscriptionGroupTable"].get(group) for group in READERS},
                {key: committed.get(key) for key in (f"{topic}@{group}" for topic in CASES for group in READERS)},
                end,
            )
        )
    return found[0] == found[1]


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
                await ring.until("the pair is complete", ring.complete, 90)
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
                await ring.until("the slave has its master's tables", lambda: has_tables_and_log(ring), 60)
                ring.kill("c1")
                await ring.until("the slave acts", lambda: ring.active("g0", 1), 60)
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


# --- what a Java slave has after its minute ---


@pytest.mark.slow
def test_a_java_slave_copies_the_tables_of_our_master(groups: dict[str, MixedGroup]) -> None:
    group = groups[OURS]

    def same() -> bool:
        topics = table(group.slave, RequestCode.GET_ALL_TOPIC_CONFIG)["topicConfigTable"]
        known = readers(group.slave) or {}
        return TOPIC in topics and known.get("retryMaxTimes") == 7 and committed(group.slave, TOPIC) == 3

    await_true(same, JAVA_SYNC_LIMIT_S, "the Java slave has our topics, groups and offsets")
    await_true(functools.partial(caught_up, group), 60, "the slave has the master's log")
    check_same_messages(group, TOPIC)


@pytest.mark.slow
def test_what_a_java_slave_committed_is_given_back_to_our_master(groups: dict[str, MixedGroup]) -> None:
    check_that_commits_come_back(groups[OURS])
