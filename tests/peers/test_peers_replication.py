"""Mixed replica groups: a real Java slave under our master, and our slave under a real Java master."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
from peer_processes import JAVA, OURS, AdminConsole, PortBlocks, ServerProcess, filled_template, running, server

from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.runtime.json_dialect import loads
from understudy.runtime.world import real_world

MESSAGES = 50
JAVA_SYNC_LIMIT_S = 90  # a Java slave copies its master's tables for the first time after a minute


@dataclass(frozen=True)
class ReplicaPair:
    """A master and a slave of one group."""

    name: str
    namesrv: str
    master: str
    slave: str
    servers: tuple[ServerProcess, ServerProcess]


def ask(address: str, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
    """Send one request and return the answer."""

    async def run() -> Command:
        async with open_client(real_world()) as client:
            return await client.invoke(address, request(code, ext, body), 10_000)

    return trio.run(run)


def table(address: str, code: int) -> Any:
    """Return the JSON body of an answer."""
    answer = ask(address, code)
    assert answer.code == 0, answer
    return loads(answer.body)


def await_true(condition: Callable[[], bool], limit_s: float, what: str) -> float:
    """Poll until the condition holds; return the seconds it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < limit_s, f"not within {limit_s} s: {what}"
        time.sleep(0.1)
    return time.monotonic() - began


def send(pair: ReplicaPair, topic: str, count: int, **properties: str) -> list[str]:
    """Make the topic on the master and send messages to it; return the status of each."""
    ext = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "2",
        "writeQueueNums": "2",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    assert ask(pair.master, RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code == 0

    async def run() -> list[str]:
        async with open_producer(real_world(), pair.namesrv, "writers") as producer:
            bodies = [b"%s %d" % (topic.encode(), number) for number in range(count)]
            sent = [await producer.send(Message(topic, body, dict(properties)), timeout_ms=10_000) for body in bodies]
            return [result.status.value for result in sent]

    return trio.run(run)


def pulled(address: str, topic: str, queue_id: int) -> bytes:
    """Return the raw messages of a queue, as one pull gives them."""
    answer = ask(
        address,
        RequestCode.PULL_MESSAGE,
        {
            "consumerGroup": "readers",
            "topic": topic,
            "queueId": str(queue_id),
            "queueOffset": "0",
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        },
    )
    assert answer.code == 0, answer
    return answer.body


def make_group(pair: ReplicaPair, topic: str, offset: int) -> None:
    """Create a consumer group on the master and commit an offset."""
    body = b'{"groupName":"readers","consumeEnable":true,"retryQueueNums":1,"retryMaxTimes":7}'
    assert ask(pair.master, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body).code == 0
    commit(pair, topic, offset)


def commit(pair: ReplicaPair, topic: str, offset: int) -> None:
    ext = {"consumerGroup": "readers", "topic": topic, "queueId": "0", "commitOffset": str(offset)}
    assert ask(pair.master, RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0


def committed(address: str, topic: str) -> int | None:
    offset = table(address, RequestCode.GET_ALL_CONSUMER_OFFSET)["offsetTable"].get(f"{topic}@readers", {}).get("0")
    return None if offset is None else int(offset)


@pytest.fixture(scope="module")
def pairs(
    java_home: Path, port_blocks: PortBlocks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, ReplicaPair]]:
    """Our name server and two groups: ``ours`` (our master, Java slave) and ``java`` (Java master, our slave)."""
    folder = tmp_path_factory.mktemp("replication")
    port = port_blocks.take()
    namesrv = f"127.0.0.1:{port}"
    text = filled_template("namesrv", PORT=port, DIR=folder / "n")
    name_server = server(OURS, "namesrv", "namesrv", folder / "n", text)
    brokers: list[ServerProcess] = []
    found = {}
    for group, kinds in (("ours", (OURS, JAVA)), ("java", (JAVA, OURS))):
        addresses, members = [], []
        for template, kind in zip(("broker", "broker-slave"), kinds, strict=True):
            port = port_blocks.take() + 10
            place = folder / f"{group}-{template}"
            keys: dict[str, object] = {"NAME": f"broker-{group}", "PORT": port, "HA_PORT": port + 1}
            if template == "broker":
                keys |= {"brokerRole": "SYNC_MASTER", "totalReplicas": 2, "inSyncReplicas": 2, "slaveTimeout": 1000}
            text = filled_template(template, **keys, NAMESRV=namesrv, DIR=place, slaveReadEnable="true")
            members.append(server(kind, "broker", template, place, text))
            addresses.append(f"127.0.0.1:{port}")
        found[group] = ReplicaPair(f"broker-{group}", namesrv, addresses[0], addresses[1], (members[0], members[1]))
        brokers += members
    with running(name_server):
        try:
            for broker in brokers:
                broker.start()
            for broker in brokers:
                broker.await_boot()
            yield found
            for broker in brokers:
                if broker.name.startswith(OURS):
                    assert broker.stop() == 0, broker.output()[-3000:]
        finally:
            for broker in brokers:
                broker.kill()


def caught_up(pair: ReplicaPair) -> bool:
    master = table(pair.master, RequestCode.GET_BROKER_HA_STATUS)
    slave = table(pair.slave, RequestCode.GET_BROKER_HA_STATUS)
    end = master["masterCommitLogMaxOffset"]
    return (
        end > 0
        and [each["slaveAckOffset"] for each in master["haConnectionInfo"]] == [end]
        and slave["haClientRuntimeInfo"]["maxOffset"] == end
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ours", "java"])
def test_the_log_is_copied_acknowledged_and_reported(
    pairs: dict[str, ReplicaPair], admin: AdminConsole, kind: str
) -> None:
    # given messages in both kinds of masters; when their slaves of the other kind have caught up
    pair, topic = pairs[kind], f"copied-{kind}"
    send(pair, topic, MESSAGES)
    await_true(functools.partial(caught_up, pair), 60, "the slave has the master's log")
    # then both sides say so to the real mqadmin
    printed = admin.printed(pair.namesrv, f"haStatus -b {pair.master}")
    assert "#SlaveNum\t1" in printed and "#InSyncSlaveNum\t1" in printed and "OK" in printed
    # and a send that asks for two copies is answered as soon as the other kind has it
    assert ["SEND_OK"] * 10 == send(pair, topic, 10)
    host, _, port = pair.master.rpartition(":")
    assert f"#MasterAddr\t{host}:{int(port) + 1}" in admin.printed(pair.namesrv, f"haStatus -b {pair.slave}")


@pytest.mark.slow
@pytest.mark.covers("SL-01")
def test_our_slave_has_the_tables_of_a_java_master_within_seconds(pairs: dict[str, ReplicaPair]) -> None:
    pair, topic = pairs["java"], "tables-java"
    send(pair, topic, 4)
    make_group(pair, topic, 3)

    def same() -> bool:
        topics = [table(each, RequestCode.GET_ALL_TOPIC_CONFIG) for each in (pair.master, pair.slave)]
        groups = [table(each, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG) for each in (pair.master, pair.slave)]
        return (
            topics[0]["topicConfigTable"][topic] == topics[1]["topicConfigTable"].get(topic)
            and topics[0]["dataVersion"] == topics[1]["dataVersion"]
            and groups[0]["subscriptionGroupTable"]["readers"] == groups[1]["subscriptionGroupTable"].get("readers")
            and committed(pair.slave, topic) == 3
        )

    await_true(same, 15, "topics, groups and offsets of the Java master")
    # when a group goes on, our slave knows it about a second later; a Java slave up to a minute later
    commit(pair, topic, 4)
    assert await_true(lambda: committed(pair.slave, topic) == 4, 10, "the new offset") < 5
    # when a delayed message was delivered by the master, our slave knows that as well
    send(pair, topic, 1, DELAY="1")
    levels = functools.partial(table, code=RequestCode.GET_ALL_DELAY_OFFSET)
    await_true(lambda: levels(pair.master)["offsetTable"].get("1") == 1, 30, "the master delivers")
    await_true(lambda: levels(pair.slave)["offsetTable"].get("1") == 1, 10, "the slave knows it")
    # and it gives readers the master's bytes
    await_true(functools.partial(caught_up, pair), 60, "the slave has the master's log")
    assert pulled(pair.master, topic, 0) == pulled(pair.slave, topic, 0)


@pytest.mark.slow
def test_a_java_slave_copies_the_tables_of_our_master(pairs: dict[str, ReplicaPair]) -> None:
    pair, topic = pairs["ours"], "tables-ours"
    send(pair, topic, 4)
    make_group(pair, topic, 3)

    def same() -> bool:
        topics = table(pair.slave, RequestCode.GET_ALL_TOPIC_CONFIG)["topicConfigTable"]
        groups = table(pair.slave, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"]
        return (
            topic in topics
            and groups.get("readers", {}).get("retryMaxTimes") == 7
            and committed(pair.slave, topic) == 3
        )

    await_true(same, JAVA_SYNC_LIMIT_S, "the Java slave has our topics, groups and offsets")
    await_true(functools.partial(caught_up, pair), 60, "the slave has the master's log")
    assert pulled(pair.master, topic, 0) == pulled(pair.slave, topic, 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ours", "java"])
def test_a_slave_that_was_away_resumes_where_its_log_ends(pairs: dict[str, ReplicaPair], kind: str) -> None:
    pair, topic = pairs[kind], f"resumed-{kind}"
    send(pair, topic, 3)
    await_true(functools.partial(caught_up, pair), 60, "the slave has the master's log")
    pair.servers[1].kill()
    send(pair, topic, 3)
    pair.servers[1].start().await_boot()
    await_true(functools.partial(caught_up, pair), 40, "the slave has what it missed")
