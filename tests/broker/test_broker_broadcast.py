"""Broadcasting members: the broker follows where they read, and hands it over between a client and a proxy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
from broker_rig import Rig, open_rig, pull_header
from trio.testing import MockClock

from understudy.broker.broadcast import BroadcastOffsets
from understudy.broker.offsets import OffsetTable
from understudy.broker.topics import TopicConfig
from understudy.format.record import decode_records
from understudy.remoting.command import Command
from understudy.runtime.clock import SystemClock
from understudy.runtime.pace import run_steps

MEMBER, OTHER = ("T", "g", "one"), ("T", "g", "two")
UNKNOWN = -1


def followed(committed: OffsetTable) -> BroadcastOffsets:
    return BroadcastOffsets(SystemClock(), committed, lambda: 120, lambda: 300)


def beginning() -> int:
    return 1000


async def test_a_member_that_changes_its_way_goes_on_where_it_was() -> None:
    table = followed(OffsetTable(lambda: 0))
    # given members that read by themselves: nobody tells them where
    assert table.start(MEMBER, 0, 5, False, beginning) == UNKNOWN
    table.note(MEMBER, 0, 5, False)
    table.note(OTHER, 0, 9, False)
    # when one goes through a proxy, and back
    assert table.start(MEMBER, 0, -1, True, beginning) == 5
    table.note(MEMBER, 0, 7, True)
    assert table.start(MEMBER, 0, 7, True, beginning) == UNKNOWN
    assert table.start(MEMBER, 0, 2, False, beginning) == 7
    table.note(MEMBER, 0, 7, False)
    # then every queue is handed over, and one that the proxy never read is not touched
    table.note(MEMBER, 1, 30, True)
    assert table.start(MEMBER, 1, 2, False, beginning) == 30
    assert table.start(MEMBER, 2, 2, False, beginning) == UNKNOWN
    # and a new member's proxy begins at the slowest place of the group, else where the caller says
    assert table.start(("T", "g", "new"), 3, -1, True, beginning) == 1000
    table.sweep(lambda group, client_id: True)
    assert table.start(("T", "g", "new"), 0, -1, True, beginning) == 7


async def test_silent_members_are_forgotten_later_while_they_are_connected(autojump_clock: MockClock) -> None:
    committed = OffsetTable(lambda: 0)
    table = followed(committed)
    connected = {"one"}
    table.note(MEMBER, 0, 3, False)
    table.note(OTHER, 0, 2, False)
    # given both were heard: the slower one counts
    table.sweep(lambda group, client_id: client_id in connected)
    assert committed.query("g@broadcast", "T", 0) == 2
    # when they are silent for two minutes: the one that is gone is forgotten and counts no longer
    await trio.sleep(121)
    table.sweep(lambda group, client_id: client_id in connected)
    assert (len(table), committed.query("g@broadcast", "T", 0)) == (1, 3)
    # when for five minutes: the connected one as well, and what was committed stays
    await trio.sleep(180)
    table.sweep(lambda group, client_id: client_id in connected)
    assert (len(table), committed.query("g@broadcast", "T", 0)) == (0, 3)


def test_places_of_broadcasting_members_belong_to_no_group() -> None:
    committed = OffsetTable(lambda: 0)
    committed.commit("g@broadcast", "T", 0, 4)
    committed.commit("broadcast", "T", 0, 1)
    assert committed.groups_of("T") == ["broadcast"]
    assert committed.topics_of("broadcast") == ["T"]
    committed.remove_group("g")
    assert committed.query("g@broadcast", "T", 0) == UNKNOWN
    committed.commit("g@broadcast", "T", 0, 4)
    run_steps(committed.remove_topics({"T"}))
    assert committed.committed == {}


def beat(rig: Rig, client_id: str = "one") -> None:
    subscription = {"expressionType": "TAG", "subString": "*", "subVersion": 1, "topic": "T"}
    group = {
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": "g",
        "messageModel": "BROADCASTING",
        "subscriptionDataSet": [subscription],
    }
    body = {"clientID": client_id, "consumerDataSet": [group], "producerDataSet": []}
    assert rig.ask(34, None, json.dumps(body).encode()).code == 0


def proxied(rig: Rig, offset: int) -> Command:
    return rig.pull("T", 0, offset, "g", requestSource="1", proxyFrowardClientId="one")


def place(answer: Command) -> tuple[int, str | None, str]:
    return answer.code, answer.remark, (answer.ext or {})["nextBeginOffset"]


@pytest.mark.covers("SL-07")
async def test_progress_is_handed_over_between_a_client_and_a_proxy(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), {"broadcastOffsetExpireSecond": "0"}) as rig:
        rig.broker.topics.update([TopicConfig("T", 1, 1)])
        for number in range(6):
            rig.send("T", b"%d" % number)
        # given a client that has read four messages, and asks for the fifth
        beat(rig)
        assert rig.pull("T", 0, 0, "g", maxMsgNums="4").code == 0
        assert rig.pull("T", 0, 4, "g", maxMsgNums="1").code == 0
        # when it comes back through a proxy that knows nothing
        assert place(proxied(rig, -1)) == (21, "OFFSET_RESET", "4")
        answer = proxied(rig, 4)
        # then it goes on with the fifth, and back at the broker with the one behind what the proxy read
        assert [record.body for record in decode_records(answer.body)] == [b"4", b"5"]
        assert proxied(rig, 6).code == 19
        assert place(rig.pull("T", 0, 0, "g")) == (21, "OFFSET_RESET", "6")
        assert rig.pull("T", 0, 6, "g").code == 19
        # and the slowest place is committed beside the offsets of groups
        rig.broker.broadcasts.sweep(rig.broker.members.is_connected)
        answer = await rig.wait(rig.tell(43))
        table = json.loads(answer.body.replace(b"{0:", b'{"0":'))
        assert table["offsetTable"]["T@g@broadcast"] == {"0": 6}
        assert table["groupTopicMap"] == {}
        # and a client that is gone is forgotten
        rig.broker.members.closed(rig.peer)  # type: ignore[arg-type]  # a connection whose other side is the test
        rig.broker.broadcasts.sweep(rig.broker.members.is_connected)
        assert len(rig.broker.broadcasts) == 0


async def test_a_proxy_of_an_unknown_group_begins_at_a_young_queue_s_first_message_else_at_its_end(
    tmp_path: Path,
) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rig.broker.topics.update([TopicConfig("T", 2, 2)])
        rig.send("T", b"x")
        assert place(proxied(rig, -1)) == (21, "OFFSET_RESET", "0")
        empty = rig.pull("T", 1, -1, "g", requestSource="1", proxyFrowardClientId="one")
        assert place(empty) == (21, "OFFSET_RESET", "0")


async def test_clustering_groups_and_other_sources_read_where_they_ask(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rig.broker.topics.update([TopicConfig("T", 1, 1)])
        rig.send("T", b"x")
        for ask in (
            pull_header("T", 0, 0, "g", requestSource="2", proxyFrowardClientId="one"),
            pull_header("T", 0, 0, "g", requestSource="1"),
            pull_header("T", 0, 0, "g"),
        ):
            assert rig.ask(11, ask).code == 0
        rig.broker.options.broker.enable_broadcast_offset_store = False
        beat(rig)
        assert proxied(rig, 0).code == 0
        assert len(rig.broker.broadcasts) == 0
