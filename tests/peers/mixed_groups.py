"""Replica groups whose master is of one kind (ours or the real Java one) and whose slave is of the other."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import trio
from peer_processes import JAVA, OURS, ServerProcess, filled_template, running, server
from peer_requests import RefusedError, ask, await_true, table

from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.remoting.codes import RequestCode
from understudy.runtime.world import real_world
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.topic_fields import topic_fields

JAVA_SYNC_LIMIT_S = 160  # a Java slave copies its master's tables once a minute, first after a minute


@dataclass(frozen=True)
class MixedGroup:
    """A master of one kind with a slave of the other."""

    name: str
    namesrv: str
    master: str
    slave: str
    servers: tuple[ServerProcess, ServerProcess]


def kinds_of(master_kind: str) -> tuple[str, str]:
    """The kinds of master and slave."""
    return (OURS, JAVA) if master_kind == OURS else (JAVA, OURS)


@contextlib.contextmanager
def mixed_groups(
    folder: Path,
    ports: PortBlocks,
    master_keys: dict[str, object],
    keys: dict[str, object],
    namesrv_keys: dict[str, object],
) -> Iterator[dict[str, MixedGroup]]:
    """Run two groups at a time, each at a name server of ours; returns them by the kind of their masters."""
    name_servers, brokers, found = [], [], {}
    for master_kind in (OURS, JAVA):
        place = folder / master_kind
        port = ports.take()
        namesrv, name = f"127.0.0.1:{port}", f"broker-{master_kind}"
        text = filled_template("namesrv", PORT=port, DIR=place / "n", **namesrv_keys)
        name_servers.append(server(OURS, "namesrv", "namesrv", place / "n", text))
        addresses, members = [], []
        for template, kind in zip(("broker", "broker-slave"), kinds_of(master_kind), strict=True):
            port = ports.take() + 10
            own: dict[str, object] = {"NAME": name, "PORT": port, "HA_PORT": port + 1, **keys}
            if template == "broker":
                own |= master_keys
            text = filled_template(template, **own, NAMESRV=namesrv, DIR=place / template)
            members.append(server(kind, "broker", template, place / template, text))
            addresses.append(f"127.0.0.1:{port}")
        found[master_kind] = MixedGroup(name, namesrv, addresses[0], addresses[1], (members[0], members[1]))
        brokers += members
    with running(*name_servers):
        try:
            for broker in brokers:
                broker.start()
            for broker in brokers:
                broker.await_boot()
            for group in found.values():
                await_true(functools.partial(complete, group), 90, f"both brokers of {group.name} are registered")
            yield found
            for broker in brokers:
                if broker.name.startswith(OURS):
                    assert broker.stop() == 0, broker.output()[-3000:]
        finally:
            for broker in brokers:
                broker.kill()


def complete(group: MixedGroup) -> bool:
    """Whether the name server has both brokers: a late first registration of a real one comes ten seconds later."""
    rows = table(group.namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)["brokerAddrTable"]
    return {"0", "1"} == {str(number) for number in rows.get(group.name, {}).get("brokerAddrs", {})}


def routed(group: MixedGroup, topic: str) -> bool:
    """Whether the name server has the topic: a broker may answer that it is made before it has told anybody."""
    return ask(group.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == 0


def send(group: MixedGroup, topic: str, count: int, **properties: str) -> list[str]:
    """Make the topic on the master and send messages to it; return the status of each."""
    ext = {**topic_fields(topic), "topicSysFlag": "0"}
    # A Java broker says that it has booted before it takes every request.
    create = functools.partial(ask, group.master, RequestCode.UPDATE_AND_CREATE_TOPIC, ext)
    await_true(lambda: create().code == 0, 30, f"the master makes {topic}")
    await_true(functools.partial(routed, group, topic), 30, f"the name server knows {topic}")

    async def run() -> list[str]:
        async with open_producer(real_world(), group.namesrv, "writers") as producer:
            bodies = [b"%s %d" % (topic.encode(), number) for number in range(count)]
            sent = [await producer.send(Message(topic, body, dict(properties)), timeout_ms=10_000) for body in bodies]
            return [result.status.value for result in sent]

    return trio.run(run)


def pulled(address: str, topic: str, queue_id: int) -> bytes:
    """Return the raw messages of a queue, as one pull gives them. Raises RefusedError when it gives none."""
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
    if answer.code != 0:
        raise RefusedError(str(answer))
    return answer.body


def check_same_messages(group: MixedGroup, topic: str) -> None:
    """Wait until both brokers give the same: what is in the log is in its queue, and in the table, only later."""

    def same() -> bool:
        return pulled(group.master, topic, 0) == pulled(group.slave, topic, 0)

    await_true(same, 60, f"master and slave give the same messages of {topic}")
    assert same()


def make_group(group: MixedGroup, topic: str, offset: int) -> None:
    """Create a consumer group on the master and commit an offset."""
    body = b'{"groupName":"readers","consumeEnable":true,"retryQueueNums":1,"retryMaxTimes":7}'
    create = functools.partial(ask, group.master, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    await_true(lambda: create().code == 0, 30, "the master makes the group")
    commit(group.master, topic, offset)


def commit(address: str, topic: str, offset: int) -> None:
    ext = {"consumerGroup": "readers", "topic": topic, "queueId": "0", "commitOffset": str(offset)}
    assert ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0


def committed(address: str, topic: str) -> int | None:
    offset = table(address, RequestCode.GET_ALL_CONSUMER_OFFSET)["offsetTable"].get(f"{topic}@readers", {}).get("0")
    return None if offset is None else int(offset)


def caught_up(group: MixedGroup) -> bool:
    master = table(group.master, RequestCode.GET_BROKER_HA_STATUS)
    slave = table(group.slave, RequestCode.GET_BROKER_HA_STATUS)
    end = master["masterCommitLogMaxOffset"]
    return (
        end > 0
        and [each["slaveAckOffset"] for each in master["haConnectionInfo"]] == [end]
        and slave["haClientRuntimeInfo"]["maxOffset"] == end
    )
