"""Mixed replica groups: a real Java slave under our master, and our slave under a real Java master."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
from mixed_groups import (
    MixedGroup,
    caught_up,
    check_same_messages,
    commit,
    committed,
    make_group,
    mixed_groups,
    send,
)
from peer_processes import JAVA, OURS, AdminConsole
from peer_requests import ask, await_true, table

from understudy.remoting.codes import RequestCode
from understudy.testkit.port_blocks import PortBlocks

MESSAGES = 50


@pytest.fixture(scope="module")
def pairs(
    java_home: Path, port_blocks: PortBlocks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, MixedGroup]]:
    """Two groups that wait for copies."""
    waiting: dict[str, object] = {
        "brokerRole": "SYNC_MASTER",
        "totalReplicas": 2,
        "inSyncReplicas": 2,
        "slaveTimeout": 8000,  # a busy machine is no slave that is away
    }
    folder = tmp_path_factory.mktemp("replication")
    with mixed_groups(folder, port_blocks, waiting, {"slaveReadEnable": "true"}, {}) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("kind", [OURS, JAVA])
def test_the_log_is_copied_acknowledged_and_reported(
    pairs: dict[str, MixedGroup], admin: AdminConsole, kind: str
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
def test_our_slave_has_the_tables_of_a_java_master_within_seconds(pairs: dict[str, MixedGroup]) -> None:
    pair, topic = pairs[JAVA], "tables-java"
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

    # well below the minute after which a Java slave would have them
    await_true(same, 30, "topics, groups and offsets of the Java master")
    # when a group goes on, our slave knows it about a second later; a Java slave up to a minute later
    commit(pair.master, topic, 4)
    await_true(lambda: committed(pair.slave, topic) == 4, 30, "the new offset")
    # when a delayed message was delivered by the master, our slave knows that as well
    send(pair, topic, 1, DELAY="1")
    levels = functools.partial(table, code=RequestCode.GET_ALL_DELAY_OFFSET)
    await_true(lambda: levels(pair.master)["offsetTable"].get("1") == 1, 60, "the master delivers")
    await_true(lambda: levels(pair.slave)["offsetTable"].get("1") == 1, 30, "the slave knows it")
    # and it gives readers the master's bytes
    await_true(functools.partial(caught_up, pair), 60, "the slave has the master's log")
    check_same_messages(pair, topic)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [OURS, JAVA])
def test_a_slave_that_was_away_resumes_where_its_log_ends(pairs: dict[str, MixedGroup], kind: str) -> None:
    pair, topic = pairs[kind], f"resumed-{kind}"
    send(pair, topic, 3)
    await_true(functools.partial(caught_up, pair), 60, "the slave has the master's log")
    before = table(pair.slave, RequestCode.GET_BROKER_HA_STATUS)["haClientRuntimeInfo"]["maxOffset"]
    pair.servers[1].kill()
    send(pair, topic, 3)
    pair.servers[1].start().await_boot()
    await_true(functools.partial(caught_up, pair), 90, "the slave has what it missed")
    # a Java slave learns of new topics a minute later, so what it has is told by its log
    if kind == JAVA:
        check_same_messages(pair, topic)
    else:
        assert table(pair.slave, RequestCode.GET_BROKER_HA_STATUS)["haClientRuntimeInfo"]["maxOffset"] > before


def delete_topic(pair: MixedGroup, topic: str) -> None:
    assert ask(pair.master, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == 0


def knows(address: str, topic: str) -> bool:
    return topic in table(address, RequestCode.GET_ALL_TOPIC_CONFIG)["topicConfigTable"]


def has_group(address: str, group: str) -> bool:
    return group in table(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"]


def end_of(address: str, topic: str) -> int:
    """Return the queue offset behind the last message of the first queue; 0 where there is none."""
    answer = ask(address, RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})
    return int((answer.ext or {}).get("offset", "0"))


@pytest.mark.slow
@pytest.mark.covers("SL-01")
def test_our_slave_deletes_what_a_java_master_deleted(pairs: dict[str, MixedGroup]) -> None:
    pair = pairs[JAVA]
    gone, again, away, renewed = names = [f"deleted-{number}" for number in range(4)]
    # given topics with messages, and a group with an offset, which our slave has, too
    for topic in names:
        send(pair, topic, 3)
    make_group(pair, gone, 2)
    await_true(functools.partial(caught_up, pair), 60, "the slave has the master's log")
    await_true(lambda: all(knows(pair.slave, topic) for topic in names), 30, "the slave knows the topics")
    await_true(lambda: committed(pair.slave, gone) == 2, 30, "the slave knows the offset")
    # when the master deletes them, and one of them is made again
    assert (
        ask(pair.master, RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "readers", "cleanOffset": "true"}).code
        == 0
    )
    for topic in (gone, again):
        delete_topic(pair, topic)
    send(pair, again, 2)
    # then they are gone at the slave, queues and offsets with them
    await_true(lambda: not knows(pair.slave, gone), 60, "the slave deletes the topic")
    await_true(lambda: not has_group(pair.slave, "readers"), 60, "the slave deletes the group")
    assert (0, False) == (end_of(pair.slave, gone), has_group(pair.master, "readers"))
    assert committed(pair.slave, gone) is None
    # and the new life of one has its own messages only
    await_true(functools.partial(caught_up, pair), 60, "the slave has the master's log")
    await_true(lambda: end_of(pair.slave, again) == end_of(pair.master, again), 60, "the slave has the new queue")
    check_same_messages(pair, again)
    # when it dies, and the master goes on deleting meanwhile
    pair.servers[1].kill()
    delete_topic(pair, away)
    delete_topic(pair, renewed)
    # A Java master does not say that it deleted a topic: each queue tells by its own messages, so both get one.
    send(pair, renewed, 2)
    pair.servers[1].start().await_boot()
    # then nothing of it comes back
    await_true(functools.partial(caught_up, pair), 90, "the slave has what it missed")
    await_true(lambda: not knows(pair.slave, away), 60, "the slave deletes what was deleted while it was away")
    assert [0, 0] == [end_of(pair.slave, topic) for topic in (gone, away)]
    assert not knows(pair.slave, gone)
    for topic in (again, renewed):
        assert end_of(pair.slave, topic) == end_of(pair.master, topic) > 0
        check_same_messages(pair, topic)
