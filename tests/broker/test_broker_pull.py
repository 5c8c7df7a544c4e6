"""Pulls: statuses, checks, long polling, and offsets of consumers and queues."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
from broker_rig import Peer, Rig, open_rig, pull_header
from trio.testing import wait_all_tasks_blocked

from understudy.broker.forgotten_topics import forget_topic
from understudy.broker.groups import GroupConfig
from understudy.broker.topics import TopicConfig
from understudy.format.record import decode_records
from understudy.remoting.command import Command

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


def heartbeat(rig: Rig, topic: str = "T", expression: str = "*", version: int = 1, **more: object) -> Command:
    codes = {"*": [], "TagA": [2598919]}[expression]
    subscription = {
        "classFilterMode": False,
        "codeSet": codes,
        "expressionType": more.pop("kind", "TAG"),
        "subString": expression,
        "subVersion": version,
        "tagsSet": [] if expression == "*" else [expression],
        "topic": topic,
    }
    group = {
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": "cg",
        "messageModel": more.pop("model", "CLUSTERING"),
        "subscriptionDataSet": [subscription],
        "unitMode": False,
    }
    body = {"clientID": "c@1", "consumerDataSet": [group], "producerDataSet": []} | more
    return rig.ask(34, None, json.dumps(body).encode())


async def filled(rig: Rig, count: int = 4) -> None:
    """Four messages in queue 0 of a topic with four queues, tags in turn A, B."""
    rig.broker.topics.update([TopicConfig("T", 4, 4)])
    for number in range(count):
        rig.send("T", b"m%d" % number, f"TAGS\x01Tag{'AB'[number % 2]}\x02UNIQ_KEY\x01u{number}\x02")


@pytest.mark.covers("IT-01", "IT-22")
async def test_found(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        await filled(rig)
        answer = rig.pull("T", maxMsgNums="2")
        assert (answer.code, answer.remark) == (0, "FOUND")
        assert answer.ext == {  # fields captured from 5.4.0
            "suggestWhichBrokerId": "0",
            "groupSysFlag": "0",
            "nextBeginOffset": "2",
            "maxOffset": "4",
            "minOffset": "0",
            "topicSysFlag": "0",
        }
        assert [record.body for record in decode_records(answer.body)] == [b"m0", b"m1"]


@pytest.mark.covers("IT-07")
@pytest.mark.parametrize(
    ("expression", "bodies"),
    [("TagB", [b"m1", b"m3"]), ("TagA || TagB", [b"m0", b"m1", b"m2", b"m3"]), ("*", [b"m0", b"m1", b"m2", b"m3"])],
)
async def test_tags(tmp_path: Path, expression: str, bodies: list[bytes]) -> None:
    async with open_rig(str(tmp_path)) as rig:
        await filled(rig)
        answer = rig.pull("T", subscription=expression)
        assert [record.body for record in decode_records(answer.body)] == bodies
        assert (answer.ext or {})["nextBeginOffset"] == "4"


@pytest.mark.parametrize(
    ("queue", "offset", "expression", "code", "remark", "following"),
    [  # captured from 5.4.0
        (0, -1, "*", 21, "OFFSET_TOO_SMALL", "0"),
        (0, 999, "*", 21, "OFFSET_OVERFLOW_BADLY", "4"),
        (0, 4, "*", 19, "OFFSET_OVERFLOW_ONE", "4"),
        (0, 0, "NoTag", 20, "NO_MATCHED_MESSAGE", "4"),
        (3, 0, "*", 19, "NO_MESSAGE_IN_QUEUE", "0"),
        (3, 5, "*", 21, "NO_MESSAGE_IN_QUEUE", "0"),
    ],
)
@pytest.mark.covers("IT-22")
async def test_reasons_for_nothing(
    tmp_path: Path, queue: int, offset: int, expression: str, code: int, remark: str, following: str
) -> None:
    async with open_rig(str(tmp_path)) as rig:
        await filled(rig)
        answer = rig.pull("T", queue, offset, subscription=expression)
        assert (answer.code, answer.remark, answer.body) == (code, remark, b"")
        assert (answer.ext or {})["nextBeginOffset"] == following


@pytest.mark.covers("IT-22")
async def test_checks_in_the_words_of_the_reference(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        await filled(rig)
        rig.broker.topics.update([TopicConfig("WriteOnly", 1, 1, 2)])
        rig.broker.groups.update([GroupConfig("gdis", consume_enable=False)])

        def seen(answer: Command) -> tuple[int, str | None, dict[str, str] | None]:
            return answer.code, answer.remark, answer.ext

        assert seen(rig.pull("NoSuchT")) == (17, f"topic[NoSuchT] not exist, apply first please! {FAQ}", {})
        assert seen(rig.pull("T", 44)) == (
            29,
            "queueId[44] is illegal, topic:[T] topicConfig.readQueueNums:[4] consumer:[/127.0.0.1:46322]",
            {},
        )
        assert seen(rig.pull("WriteOnly")) == (
            16,
            "the topic[WriteOnly] pulling message is forbidden",
            {"forbiddenType": "3"},
        )
        assert seen(rig.pull("T", group="gdis")) == (
            16,
            "subscription group no permission, gdis",
            {"forbiddenType": "2"},
        )
        assert seen(rig.pull("T", sysFlag="0")) == (24, f"the consumer's group info not exist{FAQ}", {})
        assert rig.pull("T", subscription="||").code == 23
        rig.broker.options.broker.broker_permission = 2
        assert seen(rig.pull("T")) == (16, "the broker[127.0.0.1] pulling message is forbidden", {"forbiddenType": "1"})


async def test_registered_subscription_decides(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        await filled(rig)
        heartbeat(rig, expression="TagA", version=5)
        answer = rig.pull("T", sysFlag="0", subVersion="5")
        assert [record.body for record in decode_records(answer.body)] == [b"m0", b"m2"]
        assert rig.pull("T", sysFlag="0", subVersion="6").code == 25
        other = rig.pull("BenchmarkTest", sysFlag="0")
        assert (other.code, other.remark) == (24, f"the consumer's subscription not exist{FAQ}")
        rig.broker.groups.forbid("cg", "T", True)
        refused = rig.pull("T", sysFlag="0", subVersion="5")
        assert (refused.code, refused.remark, refused.ext) == (
            16,
            "the consumer group[cg] is forbidden for topic[T]",
            {"forbiddenType": "5"},
        )


async def test_subscription_whose_heartbeat_is_late_is_served_without_filter(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        await filled(rig)
        now_ms = rig.broker.world.clock.wall_ms()
        heartbeat(rig, expression="TagA", version=now_ms - 60_000)
        just_changed = rig.pull("T", sysFlag="0", subVersion=str(now_ms - 1_000))
        assert len(decode_records(just_changed.body)) == 4
        assert rig.pull("T", sysFlag="0", subVersion=str(now_ms - 59_000)).code == 25
        assert rig.pull("T", sysFlag="0", subVersion=str(now_ms + 59_000)).code == 25


async def test_broadcasting_can_be_disabled_for_a_group(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        await filled(rig)
        rig.broker.groups.update([GroupConfig("cg", consume_broadcast_enable=False)])
        heartbeat(rig, model="BROADCASTING")
        answer = rig.pull("T", sysFlag="0")
        assert (answer.code, answer.ext) == (16, {"forbiddenType": "4"})


async def test_expressions_are_refused_not_ignored(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        await filled(rig)
        for answer in (
            rig.pull("T", expressionType="SQL92", subscription="a > 5"),
            rig.ask(46, None, b'{"subscriptionData":{"expressionType":"SQL92","subString":"a > 5"}}'),
        ):
            assert answer.code == 1
            assert answer.remark == "The broker does not support consumer to filter message by SQL92"
        assert rig.ask(46, None, b'{"subscriptionData":{"expressionType":"TAG","subString":"*"}}').code == 0
        assert rig.ask(46).code == 0


class TestLongPolling:
    @pytest.mark.covers("R350", "R354", "R356")
    async def test_woken_by_a_message(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            await filled(rig)
            held = rig.tell(11, pull_header("T", 0, 4, sysFlag="6", suspendTimeoutMillis="15000"))
            assert held.opaque not in rig.peer.replies and len(rig.broker.hold) == 1
            for number in range(3):
                rig.send("T", b"new %d" % number, more_follow=True)
            rig.end_receive()
            answer = await rig.wait(held)
            assert answer.code == 0
            # everything that one receive stored comes with the one answer
            assert [record.body for record in decode_records(answer.body)] == [b"new 0", b"new 1", b"new 2"]

    @pytest.mark.covers("R350", "R354")
    async def test_expires(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            await filled(rig)
            started = trio.current_time()
            answer = await rig.wait(rig.tell(11, pull_header("T", 0, 4, sysFlag="6", suspendTimeoutMillis="200")))
            assert (answer.code, answer.remark) == (19, "OFFSET_OVERFLOW_ONE")
            assert trio.current_time() - started >= 0.19

    async def test_short_polling(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path), {"longPollingEnable": "false", "shortPollingTimeMills": "100"}) as rig:
            await filled(rig)
            started = trio.current_time()
            answer = await rig.wait(rig.tell(11, pull_header("T", 0, 4, sysFlag="6", suspendTimeoutMillis="60000")))
            assert answer.code == 19
            assert trio.current_time() - started < 30

    async def test_answer_is_refused_when_the_topic_went_meanwhile(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            await filled(rig)
            held = rig.tell(11, pull_header("T", 0, 4, sysFlag="6", suspendTimeoutMillis="100"))
            rig.broker.topics.delete("T")
            assert (await rig.wait(held)).code == 17

    async def test_deleting_a_topic_tells_those_who_wait_there_at_once(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            # given a pull that may wait for a minute
            await filled(rig)
            held = rig.tell(11, pull_header("T", 0, 4, sysFlag="6", suspendTimeoutMillis="60000"))
            assert 1 == len(rig.broker.hold)
            # when its topic is deleted
            rig.broker.topics.delete("T")
            forget_topic(rig.broker, "T")
            # then it is answered as a pull of a topic that is not there
            answer = await rig.wait(held)
            assert 17 == answer.code
            assert (answer.remark or "").startswith("topic[T] not exist")
            assert 0 == len(rig.broker.hold)

    async def test_a_parked_pull_keeps_what_it_needs_and_no_more(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            await filled(rig)
            parked, total = [], rig.broker.world.load.parked
            rig.broker.hold.answer = parked.append
            waits = {"sysFlag": "6", "suspendTimeoutMillis": "60000"}
            rig.tell(11, pull_header("T", 0, 4, **waits, junk="x" * 100_000), b"y" * 900_000, remark="z" * 100_000)
            assert 0 < total.used < 3000
            # then it is answered with the next message as ever
            rig.broker.hold.answer = rig.broker.pull.again
            held = rig.tell(11, pull_header("T", 0, 4, **waits, junk="x" * 200_000))
            rig.send("T", b"new")
            assert 0 == (await rig.wait(held)).code
            assert 0 == total.used

    async def test_a_peer_whose_pulls_keep_too_much_is_told_to_slow_down(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            await filled(rig)
            rig.broker.world.load.parked.limit = 150_000
            header = pull_header("T", 0, 4, sysFlag="6", suspendTimeoutMillis="60000", subscription="a" * 32_000)
            held = [rig.tell(11, header) for _ in range(3)]
            assert [None, None, 2] == [getattr(rig.peer.replies.get(each.opaque or 0), "code", None) for each in held]
            other = Peer(rig.nursery, 50001)
            header["subscription"] = "a"
            late = rig.tell(11, header, peer=other)
            assert late.opaque not in other.replies and 3 == len(rig.broker.hold)

    async def test_ended_connection_is_not_answered(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            await filled(rig)
            gone = Peer(rig.nursery, 50000)
            rig.tell(11, pull_header("T", 0, 4, sysFlag="6", suspendTimeoutMillis="15000"), peer=gone)
            gone.alive = False
            rig.broker.members.closed(gone)  # type: ignore[arg-type]
            rig.send("T", b"new")
            await wait_all_tasks_blocked()
            assert gone.replies == {}
            assert len(rig.broker.hold) == 0


class TestConsumerOffsets:
    async def test_committed_by_pulls_and_requests(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            await filled(rig)
            rig.pull("T", sysFlag="5", commitOffset="3")
            query = {"consumerGroup": "cg", "topic": "T", "queueId": "0"}
            assert rig.ask(14, query).ext == {"offset": "3"}
            assert (rig.ask(15, query | {"commitOffset": "2"}).code, rig.ask(14, query).ext) == (0, {"offset": "2"})
            assert rig.broker.offsets.query_pull("cg", "T", 0) == 4

    @pytest.mark.covers("IT-22")
    async def test_query_without_offset(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            await filled(rig)
            query = {"consumerGroup": "gnone", "topic": "T", "queueId": "0"}
            assert (rig.ask(14, query).code, rig.ask(14, query).ext) == (0, {"offset": "0"})
            refused = rig.ask(14, query | {"setZeroIfNotFound": "false"})
            assert (refused.code, refused.remark, refused.ext) == (
                22,
                "Not found, do not set to zero, maybe this group boot first",
                {},
            )
            for empty in (query | {"queueId": "2"}, query | {"topic": "NoSuchT"}):
                answer = rig.ask(14, empty)
                assert (answer.code, answer.remark) == (
                    22,
                    "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
                )

    @pytest.mark.covers("IT-22")
    async def test_update_refusals(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path), {"autoCreateSubscriptionGroup": "false"}) as rig:
            await filled(rig)
            update = {"consumerGroup": "nogroup", "topic": "T", "queueId": "0", "commitOffset": "1"}
            assert (rig.ask(15, update).code, rig.ask(15, update).remark) == (26, "Group nogroup not exist!")
            update["consumerGroup"] = "TOOLS_CONSUMER"
            unknown = rig.ask(15, update | {"topic": "NoSuchT"})
            assert (unknown.code, unknown.remark) == (17, "Topic NoSuchT not exist!")
            for name in ("queueId", "commitOffset"):
                assert rig.ask(15, {key: value for key, value in update.items() if key != name}).code == 29

    async def test_reset_is_told_at_the_next_pull(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            await filled(rig)
            rig.broker.offsets.assign_reset("cg", "T", 0, 1)
            answer = rig.pull("T", 0, 4)
            assert (answer.code, answer.remark, (answer.ext or {})["nextBeginOffset"]) == (21, "OFFSET_RESET", "1")
            assert rig.pull("T", 0, 1).code == 0


class TestQueueOffsets:
    @pytest.mark.covers("IT-22")
    async def test_bounds_and_times(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            await filled(rig)
            place = {"topic": "T", "queueId": "0"}
            times = [record.store_ms for record in rig.stored("T")]
            assert rig.ask(30, place).ext == {"offset": "4"}
            assert (rig.ask(31, place).ext, rig.ask(31, place).remark) == ({"offset": "0"}, "")
            assert rig.ask(32, place).ext == {"timestamp": str(times[0])}
            search = place | {"timestamp": str(times[-1] + 60_000)}
            assert rig.ask(29, search).ext == {"offset": "4"}
            assert rig.ask(29, search | {"boundaryType": "UPPER"}).ext == {"offset": "3"}
            for early in ("0", "-1"):
                assert rig.ask(29, place | {"timestamp": early}).ext == {"offset": "0"}

    @pytest.mark.parametrize("place", [{"topic": "T", "queueId": "99"}, {"topic": "NoSuchT", "queueId": "0"}])
    async def test_unknown_places(self, tmp_path: Path, place: dict[str, str]) -> None:
        async with open_rig(str(tmp_path)) as rig:
            await filled(rig)
            assert rig.ask(30, place).ext == rig.ask(31, place).ext == {"offset": "0"}
            assert rig.ask(32, place).ext == {"timestamp": "-1"}
            assert rig.ask(29, place | {"timestamp": "0"}).ext == {"offset": "0"}
