"""Heartbeats, leaving, notifications, locks and replies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from broker_rig import Peer, Rig, open_rig, send_header
from trio.testing import wait_all_tasks_blocked

from understudy.broker.clients import ClientChannel, ProducerTable
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.errors import InvokeTimeoutError


def beat(client: str = "c@1", group: str = "cg", topics: tuple[str, ...] = ("T",), **more: object) -> bytes:
    subscriptions = [
        {"codeSet": [], "expressionType": "TAG", "subString": "*", "subVersion": 1, "tagsSet": [], "topic": topic}
        for topic in topics
    ]
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": group,
        "messageModel": more.pop("model", "CLUSTERING"),
        "subscriptionDataSet": subscriptions,
        "unitMode": more.pop("unit", False),
    }
    body = {"clientID": client, "consumerDataSet": [consumer], "producerDataSet": [{"groupName": "pg"}]}
    return json.dumps(body | more).encode()


async def told(peer: Peer) -> list[tuple[int, dict[str, str] | None]]:
    await wait_all_tasks_blocked()
    found = [(command.code, command.ext) for command in peer.received]
    peer.received.clear()
    return found


CHANGED = (40, {"consumerGroup": "cg"})


@pytest.mark.covers("IT-23")
async def test_members_learn_of_each_other(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        second = Peer(rig.nursery, 50000)
        answer = rig.ask(34, None, beat())
        assert answer.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}  # captured from 5.4.0
        assert await told(rig.peer) == [CHANGED]
        rig.ask(34, None, beat())
        assert await told(rig.peer) == []
        rig.ask(34, None, beat("c@2"), peer=second)
        assert (await told(rig.peer), await told(second)) == ([CHANGED], [CHANGED])

        listed = rig.ask(38, {"consumerGroup": "cg"})
        assert (listed.body, listed.ext) == (b'{"consumerIdList":["c@1","c@2"]}', {})

        assert rig.ask(35, {"clientID": "c@2", "consumerGroup": "cg"}, peer=second).ext == {}
        assert (await told(rig.peer), await told(second)) == ([CHANGED], [])
        rig.broker.members.closed(cast(Connection, rig.peer))
        gone = rig.ask(38, {"consumerGroup": "cg"})
        assert (gone.code, gone.remark, gone.ext) == (1, "no consumer for this group, cg", {})


@pytest.mark.parametrize(
    ("keys", "model", "by_group"),
    [
        ({}, "BROADCASTING", True),
        ({"notifyConsumerIdsChangedEnable": "false"}, "CLUSTERING", True),
        ({}, "CLUSTERING", False),
    ],
)
async def test_who_is_not_told(tmp_path: Path, keys: dict[str, str], model: str, by_group: bool) -> None:
    async with open_rig(str(tmp_path), keys) as rig:
        row = rig.broker.groups.get("cg")
        assert row is not None
        row.notify_consumer_ids_changed_enable = by_group
        rig.ask(34, None, beat(model=model))
        assert await told(rig.peer) == []


async def test_retry_topic_comes_with_the_first_heartbeat(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rig.ask(34, None, beat(unit=True))
        row = rig.broker.topics.get("%RETRY%cg")
        assert row is not None and (row.write_queue_nums, row.perm, row.sys_flag) == (1, 6, 2)


async def test_unknown_group_is_skipped(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), {"autoCreateSubscriptionGroup": "false"}) as rig:
        assert rig.ask(34, None, beat(heartbeatFingerprint=7)).code == 0
        assert rig.ask(38, {"consumerGroup": "cg"}).code == 1
        assert rig.broker.consumers.fingerprints == {}
        assert rig.broker.topics.get("%RETRY%cg") is None
        assert rig.broker.producers.find_client("c@1") is rig.peer


async def test_second_form_of_heartbeat(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:

        def changed(**more: object) -> str:
            return (rig.ask(34, None, beat(**cast(Any, more))).ext or {})["IS_SUB_CHANGE"]

        # captured from 5.4.0
        assert changed(heartbeatFingerprint=7, withoutSub=False) == "false"
        assert changed(heartbeatFingerprint=7, withoutSub=True, topics=()) == "false"
        assert rig.broker.consumers.find_subscription("cg", "T") is not None
        assert changed(heartbeatFingerprint=8, withoutSub=False) == "true"
        assert changed(heartbeatFingerprint=8, withoutSub=True, topics=()) == "false"


async def test_client_is_asked_for_subscriptions_the_broker_lost(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        answer = rig.ask(34, None, beat(topics=(), heartbeatFingerprint=7, withoutSub=True))
        assert (answer.ext or {})["IS_SUB_CHANGE"] == "true"


async def test_silent_clients_are_disconnected(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rig.ask(34, None, beat())
        now = rig.broker.world.clock.wall_ms()
        assert rig.broker.consumers.expired(now + 119_000, 120_000) == []
        assert rig.broker.consumers.expired(now + 121_000, 120_000) == [rig.peer]


@pytest.mark.parametrize(("model", "expected"), [(0, True), (1, False), ("BROADCASTING", True), (None, False)])
async def test_words_of_a_heartbeat_may_be_numbers_as_cpp_clients_send_them(
    tmp_path: Path, model: object, expected: bool
) -> None:
    consumer = {"groupName": "cg", "consumeType": 1, "messageModel": model, "consumeFromWhere": 0}
    async with open_rig(str(tmp_path)) as rig:
        body = json.dumps({"clientID": "c@1", "consumerDataSet": [consumer]}).encode()
        assert rig.ask(34, None, body).code == 0
        info = rig.broker.consumers.get("cg")
        assert info is not None
        assert (info.consume_type, info.broadcasting) == ("CONSUME_PASSIVELY", expected)


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (b"", "heartbeat without body"),
        (b"{", "heartbeat is no JSON"),
        (b"[]", "heartbeat is no JSON object"),
        (b"{}", "heartbeat without clientID"),
        (b'{"clientID":"c","consumerDataSet":[{}]}', "consumerDataSet: an entry without groupName"),
        (b'{"clientID":"c","consumerDataSet":7}', "consumerDataSet is no list of objects"),
        (b'{"clientID":"c","heartbeatFingerprint":"x"}', "heartbeatFingerprint is"),
    ],
)
async def test_bad_heartbeats_say_what_is_wrong(tmp_path: Path, body: bytes, remark: str) -> None:
    async with open_rig(str(tmp_path)) as rig:
        answer = rig.ask(34, None, body)
        assert answer.code == 1
        assert (answer.remark or "").startswith(remark)


class TestLocks:
    def body(self, client: str, *queues: int) -> bytes:
        listed = [{"brokerName": "broker-a", "queueId": queue, "topic": "T"} for queue in queues]
        return json.dumps({"clientId": client, "consumerGroup": "cg", "mqSet": listed}).encode()

    @pytest.mark.covers("SL-04")
    async def test_exchange_of_the_reference(self, tmp_path: Path) -> None:
        held = b'{"lockOKMQSet":[{"brokerName":"broker-a","queueId":0,"topic":"T"}]}'
        async with open_rig(str(tmp_path)) as rig:
            assert rig.ask(41, None, self.body("raw@1", 0)).body == held
            assert rig.ask(41, None, self.body("raw@2", 0)).body == b'{"lockOKMQSet":[]}'
            assert rig.ask(42, None, self.body("raw@2", 0)).code == 0
            assert rig.ask(41, None, self.body("raw@2", 0)).body == b'{"lockOKMQSet":[]}'
            assert rig.ask(42, None, self.body("raw@1", 0)).body == b""
            assert rig.ask(41, None, self.body("raw@2", 0)).body == held

    @pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"clientId":"c","consumerGroup":"g","mqSet":[1]}', b"\xff"])
    async def test_bad_bodies(self, tmp_path: Path, body: bytes) -> None:
        async with open_rig(str(tmp_path)) as rig:
            for code in (41, 42):
                answer = rig.ask(code, None, body)
                assert answer.code == 1 and answer.remark

    async def test_a_host_with_too_many_locks_is_busy(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            rig.broker.locks._kept.limit = 1 << 18
            codes, held = [], 0
            for number in range(20):
                answer = rig.ask(41, None, self.body("c", *range(number * 100, number * 100 + 100)))
                codes.append(answer.code)
                held += answer.body.count(b"queueId")
            # what it asks for is granted as far as there is room, the rest is busy
            assert [0] * codes.count(0) + [2] * codes.count(2) == codes
            assert 100 < held < 400 and codes.count(2) > 10
            assert "keptForPeersBytes" in (answer.remark or "")
            # then it keeps what it has, and has room again for what it gives back
            assert rig.ask(41, None, self.body("c", 0, 1, 5_000)).body.count(b"queueId") == 2
            assert rig.ask(42, None, self.body("c", *range(100))).code == 0
            assert rig.ask(41, None, self.body("c", *range(5_000, 5_050))).body.count(b"queueId") == 50


class TestReplies:
    PROPERTIES = "MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01asker\x02CORRELATION_ID\x01c1\x02TTL\x018000\x02"

    async def reply(self, rig: Rig, properties: str = PROPERTIES, code: int = 325) -> Command:
        header = send_header("DefaultCluster_REPLY_TOPIC", properties)
        return await rig.wait(rig.tell(code, header, b"the reply"))

    async def test_pushed_and_stored(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            asker = Peer(rig.nursery, 43896)
            asker.invoke_answer = lambda command: response(command)
            rig.ask(34, None, b'{"clientID":"asker","producerDataSet":[{"groupName":"pg"}]}', peer=asker)

            answer = await self.reply(rig)

            assert answer.code == 0
            (push,) = asker.invoked
            ext = dict(push.ext or {})
            pushed = ext.pop("properties")
            assert "PUSH_REPLY_TIME\x01" in pushed and "CORRELATION_ID\x01c1\x02" in pushed
            assert ext.pop("storeTimestamp").isdecimal()
            assert (push.code, push.body) == (326, b"the reply")
            assert ext == {  # fields captured from 5.4.0
                "queueId": "0",
                "flag": "0",
                "sysFlag": "0",
                "reconsumeTimes": "0",
                "unitMode": "false",
                "defaultTopic": "TBW102",
                "bornHost": "127.0.0.1:46322",
                "defaultTopicQueueNums": "4",
                "producerGroup": "pg",
                "topic": "DefaultCluster_REPLY_TOPIC",
                "bornTimestamp": "1795245197902",
                "storeHost": "127.0.0.1:20100",
            }
            (record,) = rig.stored("DefaultCluster_REPLY_TOPIC")
            assert answer.ext == {
                "queueId": "0",
                "msgId": record.message_id,
                "queueOffset": "0",
                "TRACE_ON": "true",
                "MSG_REGION": "DefaultRegion",
            }

    async def test_requester_is_gone(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            answer = await self.reply(rig)
            assert (answer.code, answer.remark) == (1, "push reply message fail, channel of <asker> not found.")
            assert len(rig.stored("DefaultCluster_REPLY_TOPIC")) == 1

    async def test_requester_does_not_answer_or_refuses(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path), {"storeReplyMessageEnable": "false"}) as rig:
            asker = Peer(rig.nursery, 43896)
            rig.ask(34, None, b'{"clientID":"asker","producerDataSet":[{"groupName":"pg"}]}', peer=asker)

            def silent(command: Command) -> Command:
                raise InvokeTimeoutError("asker", "no answer")

            asker.invoke_answer = silent
            assert (await self.reply(rig)).code == 1
            asker.invoke_answer = lambda command: response(command, 1, "no")
            assert (await self.reply(rig)).code == 1
            assert rig.stored("DefaultCluster_REPLY_TOPIC") == []

    async def test_without_addressee(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            answer = await self.reply(rig, "A\x01b\x02")
            assert (answer.code, answer.remark) == (1, "reply message properties[REPLY_TO_CLIENT] is null")

    @pytest.mark.parametrize("field", [{"f": "2147483648"}, {"h": "-2147483649"}, {"g": str(1 << 63)}, {"j": "1e3"}])
    async def test_numbers_no_record_can_hold(self, tmp_path: Path, field: dict[str, str]) -> None:
        async with open_rig(str(tmp_path)) as rig:
            header = send_header("DefaultCluster_REPLY_TOPIC", self.PROPERTIES) | field
            for code in (310, 325):
                answer = await rig.wait(rig.tell(code, header, b"x"))
                assert answer.code == 1
                assert (answer.remark or "").startswith("field ")


async def test_members_that_come_and_go_together_are_told_a_few_times(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        # given a hundred members of one group, told of each other
        peers = [Peer(rig.nursery, 40_000 + number) for number in range(100)]
        for number, peer in enumerate(peers):
            rig.ask(34, None, beat(f"client-{number}"), peer=peer)
        assert {1} == {len(await told(peer)) for peer in peers}
        # when all but one close at once
        for peer in peers[1:]:
            peer.alive = False
            rig.broker.members.closed(peer)  # type: ignore[arg-type]
        # then the last one is told once
        assert [CHANGED] == await told(peers[0])


async def test_a_heartbeat_with_thousands_of_groups_is_taken_in_pieces(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        groups = [f"senders-{number}" for number in range(5_000)]
        sent = rig.tell(
            34, None, json.dumps({"clientID": "c", "producerDataSet": [{"groupName": g} for g in groups]}).encode()
        )
        assert len(rig.broker.producers.groups) < 5_000  # it is not taken at once
        assert 0 == (await rig.wait(sent)).code
        assert set(groups) == set(rig.broker.producers.groups)
        # and its end takes all of them out
        rig.broker.members.closed(rig.peer)  # type: ignore[arg-type]
        assert ({}, None) == (rig.broker.producers.groups, rig.broker.producers.find_client("c"))


def test_a_producer_is_found_while_it_is_in_some_group() -> None:
    table: ProducerTable[str] = ProducerTable()
    for group in ("one", "two"):
        table.register(group, ClientChannel("connection", "client", "JAVA", 1, 0))
    table.register("two", ClientChannel("other", "client2", "JAVA", 1, 0))
    assert table.unregister("one", "connection", "client")
    assert "connection" == table.find_client("client")
    table.close("connection")
    assert (None, "other") == (table.find_client("client"), table.find_client("client2"))
    assert {"two": ["other"]} == {group: list(channels) for group, channels in table.groups.items()}
