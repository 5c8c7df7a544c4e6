"""Requests about clients: who is connected, where a group stands, and what is asked of its members."""

from __future__ import annotations

import pytest
from admin_rig import EXCHANGES, Peer, Rig, live_group, same

from understudy.broker.clients import ClientChannel
from understudy.format import json_dialect
from understudy.remoting.command import Command
from understudy.remoting.errors import InvokeTimeoutError


async def test_progress_and_members_of_a_live_group() -> None:
    rig = Rig()
    live_group(rig, Peer("127.0.0.1:54664"))

    for name in ("mqadmin:212", "mqadmin:218"):
        captured, answer = await rig.replay(name)
        assert same(captured, answer), name


async def test_producers_of_a_group() -> None:
    rig = Rig()
    rig.producers.register("pglive", ClientChannel(Peer("127.0.0.1:54650"), "127.0.0.1@p-pglive", "JAVA", 493, 7))

    for name in ("mqadmin:204", "mqadmin:208"):
        captured, answer = await rig.replay(name)
        assert same(captured, answer), name
    everybody = json_dialect.loads((await rig.ask(328)).body)
    assert everybody["data"]["pglive"] == [
        {
            "clientId": "127.0.0.1@p-pglive",
            "language": "JAVA",
            "lastUpdateTimestamp": 7,
            "remoteIP": "/127.0.0.1:54650",
            "version": 493,
        }
    ]


@pytest.mark.covers("SL-10")
async def test_reset_by_the_broker() -> None:
    rig = Rig()
    live_group(rig, Peer("127.0.0.1:54664"))

    for name in ("mqadmin:794", "mqadmin:798", "mqadmin:802"):
        captured, answer = await rig.replay(name)
        assert same(captured, answer), name
    assert rig.offsets.pending_reset("cglive", "LiveTopic", 3) == 6
    assert rig.saves.saved == ["offsets"] * 3

    one = {"topic": "LiveTopic", "group": "cglive", "timestamp": "-1", "isForce": "true", "queueId": "2"}
    assert (await rig.ask(222, one | {"offset": "3"})).code == 0
    assert rig.offsets.query("cglive", "LiveTopic", 2) == 3
    outside = await rig.ask(222, one | {"offset": "9"})
    assert (outside.code, outside.remark) == (1, "Target offset 9 not in consume queue range [0-5]")
    assert (await rig.ask(222, one | {"queueId": "44"})).code == 29


async def test_the_offset_table_stays_readable_for_java() -> None:
    """Its reader (fastjson2) fails on unquoted numbers as keys inside a field it does not know."""
    rig = Rig()
    rig.offsets.assign_reset("g", "T", 0, 5)

    body = (await rig.ask(43)).body.decode()

    assert '"groupTopicMap":{"g":["T"]},"offsetTable":{"T@g":{0:5}}' in body
    unknown = body.partition('"resetStampTable":')[2]
    assert "{0:" not in unknown


@pytest.mark.covers("SL-10")
async def test_reset_through_the_clients() -> None:
    rig = Rig({"useServerSideResetOffset": "false"})
    rig.topic("RstTopic")
    peer = Peer("127.0.0.1:45974")
    rig.consumer("cgr", "127.0.0.1@cr", peer)
    for queue_id in range(4):
        rig.store.put("RstTopic", queue_id, 1000, 2000)
        rig.offsets.commit("cgr", "RstTopic", queue_id, 2)

    for name in ("reset_offset:92", "reset_offset:109"):
        captured, answer = await rig.replay(name)
        assert same(captured, answer), name

    (told,) = peer.told
    assert (told.code, told.ext) == (
        220,
        {"topic": "RstTopic", "group": "cgr", "queueId": "-1", "timestamp": "0", "isForce": "false"},
    )
    assert len(json_dialect.loads(told.body)["offsetTable"]) == 4
    await rig.ask(222, {"topic": "RstTopic", "group": "cgr", "timestamp": "0", "isForce": "true"}, language="CPP")
    assert json_dialect.loads(peer.told[1].body)["offsetTable"][3] == {
        "brokerName": "broker-a",
        "offset": 0,
        "queueId": 3,
        "topic": "RstTopic",
    }


async def test_offsets_asked_from_clients() -> None:
    rig = Rig()
    theirs = EXCHANGES["reset_offset:66"]["answer"]
    peer = Peer("127.0.0.1:45974", Command(0, "JAVA", 493, 1, 1, None, None, theirs["body"].encode()))
    rig.consumer("cgr", "127.0.0.1@cr", peer)

    captured, answer = await rig.replay("reset_offset:65")

    assert same(captured, answer)
    assert peer.asked[0].ext == EXCHANGES["reset_offset:66"]["ext"]


async def test_direct_consumption_carries_the_record_and_the_flags() -> None:
    rig = Rig()
    rig.topic("RstTopic")
    rig.group("cgr")
    theirs = EXCHANGES["reset_offset:85"]["answer"]
    answered = Command(0, "JAVA", 493, 1, 1, theirs["remark"], None, theirs["body"].encode())
    peer = Peer("127.0.0.1:45974", answered)
    rig.consumer("cgr", "127.0.0.1@cr", peer)

    captured, answer = await rig.replay("reset_offset:84")

    assert same(captured, answer)
    assert peer.asked[0].ext == EXCHANGES["reset_offset:85"]["ext"]
    assert peer.asked[0].body == b"record"


async def test_a_consumer_that_is_away_old_or_silent() -> None:
    rig = Rig()
    rig.consumer("g", "silent", Peer("c:1", InvokeTimeoutError("c:1", "no answer")))
    rig.consumer("g", "old", Peer("c:2"), version=3)
    ext = {"consumerGroup": "g", "jstackEnable": "false"}

    away = await rig.ask(307, ext | {"clientId": "nobody"})
    silent = await rig.ask(307, ext | {"clientId": "silent"})
    old = await rig.ask(307, ext | {"clientId": "old"})

    assert (away.code, away.remark) == (1, "The Consumer <g> <nobody> not online")
    assert (silent.code, silent.remark) == (207, "consumer <g> <silent> Timeout: no answer")
    assert (old.code, (old.remark or "").startswith("The Consumer <old> Version <3> too low")) == (1, True)


async def test_progress_of_every_group_and_of_time() -> None:
    rig = Rig()
    rig.topic("T", 2)
    rig.group("g")
    rig.store.put("T", 0, 1000, 2000, 3000)
    rig.offsets.commit("g", "T", 0, 1)

    every = json_dialect.loads((await rig.ask(317, {"isOrder": "false"})).body)
    spans = json_dialect.loads((await rig.ask(303, {"topic": "T", "group": "g"})).body)["consumeTimeSpanSet"]

    assert (every["totalDiff"], every["totalInflightDiff"], every["brokerAddr"]) == (2, -1, "127.0.0.1:20100")
    (stats,) = every["consumeStatsList"][0]["g"]
    assert stats["offsetTable"]['{"brokerName":"broker-a","queueId":0,"topic":"T"}']["lastTimestamp"] == 1000
    assert [spans[0][key] for key in ("minTimeStamp", "maxTimeStamp", "consumeTimeStamp")] == [1000, 3000, 1000]
    assert spans[0]["delayTime"] > 1_000_000
    assert (spans[1]["minTimeStamp"], spans[1]["delayTime"]) == (-1, 0)


async def test_cloning_offsets_without_a_topic_clones_all() -> None:
    rig = Rig()
    rig.topic("T1")
    rig.topic("T2")
    for topic in ("T1", "T2", "Gone"):
        rig.offsets.commit("old", topic, 0, 7)

    assert (await rig.ask(314, {"srcGroup": "old", "destGroup": "new", "offline": "true"})).code == 0

    assert sorted(rig.offsets.topics_of("new")) == ["T1", "T2"]
    assert rig.saves.saved == ["offsets"]


async def test_correction_offsets_leave_the_offsets_of_other_groups_alone() -> None:
    rig = Rig()
    for group, offset in (("a", 5), ("b", 3), ("c", 9), ("out", 1)):
        rig.offsets.commit(group, "T", 0, offset)
    ext = {"topic": "T", "filterGroups": "out", "compareGroup": "c"}

    assert (await rig.ask(308, ext)).body == b'{"correctionOffsets":{0:3}}'
    assert (await rig.ask(308, ext | {"compareGroup": "out"})).body == b'{"correctionOffsets":{0:9223372036854775807}}'
    assert rig.offsets.query("out", "T", 0) == 1
