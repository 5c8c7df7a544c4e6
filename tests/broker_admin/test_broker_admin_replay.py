"""Captured requests of mqadmin 5.4.0, answered by our handlers over the same state, give the captured answers."""

from __future__ import annotations

from typing import Any

import pytest
from admin_rig import EXCHANGES, Peer, Rig, same

from understudy.broker.clients import ClientChannel
from understudy.broker.filters import Subscription
from understudy.remoting.command import Command
from understudy.remoting.errors import ConnectFailedError, InvokeTimeoutError
from understudy.runtime import json_dialect


@pytest.mark.parametrize(
    "name",
    [
        "mqadmin:1",
        "mqadmin:5",
        "mqadmin:11",
        "mqadmin:13",
        "mqadmin:31",
        "broker_details:163",
        "broker_details:167",
        "broker_details:185",
        "broker_details:187",
    ],
)
@pytest.mark.covers("IT-22")
async def test_topic_changes(name: str) -> None:
    rig = Rig()

    captured, answer = await rig.replay(name)

    assert same(captured, answer)


async def test_a_topic_change_is_durable_before_its_answer_and_keeps_attributes() -> None:
    rig = Rig()
    await rig.replay("mqadmin:1")
    version = rig.topics.version
    await rig.replay("mqadmin:31")

    row = rig.topics.get("AdmTopic")

    assert row is not None
    assert (row.read_queue_nums, row.perm, row.attributes) == (4, 4, {"message.type": "NORMAL"})
    assert rig.topics.version.counter == version.counter + 1
    assert rig.saves.saved == ["topics", "topics"]


@pytest.mark.parametrize("name", ["mqadmin:15", "mqadmin:19", "mqadmin:21", "broker_details:171", "broker_details:175"])
async def test_group_changes(name: str) -> None:
    rig = Rig()

    captured, answer = await rig.replay(name)

    assert same(captured, answer)
    assert rig.saves.saved == (["groups"] if answer.code == 0 else [])


async def test_one_topic_one_group_as_they_are_stored() -> None:
    rig = Rig()
    rig.topic("PopRaw", 2)
    rig.topic("PushTopic")
    rig.topic("LiveTopic")
    await rig.ask(
        17,
        {
            "topic": "Attr",
            "readQueueNums": "1",
            "writeQueueNums": "1",
            "perm": "6",
            "attributes": "+message.type=FIFO",
        },
    )
    await rig.replay("broker_details:171")

    for name in (
        "broker_details:181",
        "broker_details:183",
        "broker_details:193",
        "mqadmin:49",
        "mqadmin:222",
        "broker_details:177",
        "broker_details:179",
    ):
        captured, answer = await rig.replay(name)
        assert same(captured, answer), name


async def test_forbidding_and_system_topics() -> None:
    rig = Rig()

    for name in ("broker_details:154", "broker_details:161", "broker_details:230", "broker_details:238"):
        captured, answer = await rig.replay(name)
        assert same(captured, answer), name
    assert rig.groups.forbidden == {}


async def test_topic_status() -> None:
    rig = Rig()
    rig.topic("PushTopic")
    rig.store.put("PushTopic", 0, 1795244762661)
    rig.store.put("PushTopic", 1, 1795244762772)
    rig.store.put("PushTopic", 2, 1, 1795244762876)
    rig.store.put("PushTopic", 3, 1, 1795244781484)

    captured, answer = await rig.replay("mqadmin:47")

    assert same(captured, answer)


def live_group(rig: Rig, peer: Any) -> None:
    rig.topic("LiveTopic")
    rig.topic("%RETRY%cglive", 1)
    rig.group("cglive")
    for queue_id, (count, last_ms) in enumerate(
        ((4, 1795246283420), (5, 1795246283423), (5, 1795246283427), (6, 1795246283430))
    ):
        rig.store.put("LiveTopic", queue_id, *([last_ms - 1] * (count - 1)), last_ms)
        rig.offsets.commit("cglive", "LiveTopic", queue_id, count)
        rig.offsets.record_pull("cglive", "LiveTopic", queue_id, count)
    rig.offsets.commit("cglive", "%RETRY%cglive", 0, 0)
    rig.consumer("cglive", "127.0.0.1@live", peer, *subscriptions("cglive", "LiveTopic", "mqadmin:212"))


def subscriptions(group: str, topic: str, captured: str) -> list[Subscription]:
    table = json_dialect.loads(EXCHANGES[captured]["answer"]["body"])["subscriptionTable"]
    return [Subscription.from_json(table[name]) for name in (topic, f"%RETRY%{group}")]


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


async def test_queue_entries() -> None:
    rig = Rig()
    live_group(rig, Peer("127.0.0.1:54664"))
    del rig.store.messages[("LiveTopic", 0)]
    for physical in (59087, 60135, 62468, 64000):
        rig.store.put("LiveTopic", 0, 1, physical=physical, size=262, code=2598930)

    captured, answer = await rig.replay("mqadmin:1212")

    captured_body, body = json_dialect.loads(captured["body"]), json_dialect.loads(answer.body)
    captured_body["subscriptionData"]["subVersion"] = body["subscriptionData"]["subVersion"]
    assert body == captured_body
    assert answer.remark == captured["remark"]
    unknown = await rig.ask(321, {"topic": "NoT", "queueId": "0", "index": "0", "count": "3"})
    assert (unknown.code, unknown.remark) == (1, "0@NoT is not exist!")
    beyond = await rig.ask(321, {"topic": "LiveTopic", "queueId": "0", "index": "9", "count": "3"})
    assert (beyond.code, beyond.remark, beyond.body) == (0, "Index 9 of 0@LiveTopic is not exist!", b"")


async def test_statistics_and_queries_that_find_nothing() -> None:
    rig = Rig()

    for name in ("mqadmin:844", "pull_consumer:60"):
        captured, answer = await rig.replay(name)
        assert same(captured, answer), name
    nothing = await rig.ask(315)
    assert nothing.remark == "The stats <null> <null> not exist"


async def test_assignment_by_the_broker() -> None:
    rig = Rig()
    rig.topic("%RETRY%gpop", 1)
    rig.topic("PopRaw", 2)
    rig.consumer("gpop", "raw@1", Peer("c:1"))

    for name in ("pop_raw:16", "pop_raw:22", "pop_raw:26", "pop_push_consumer:19", "pop_push_consumer:23"):
        captured, answer = await rig.replay(name)
        assert same(captured, answer), name
    shared = json_dialect.loads((await rig.replay("pop_raw:12"))[1].body)["messageQueueAssignments"]
    assert [(each["messageQueue"]["queueId"], each["mode"]) for each in shared] == [(0, "PULL"), (1, "PULL")]


class Router:
    """Answers route questions: the first name server is down, the second one knows the topic."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def invoke(self, address: str, command: Command, timeout_ms: float) -> Command:
        self.asked.append(address)
        if address == "down:1":
            raise ConnectFailedError(address, "refused")
        queues = [{"brokerName": name, "perm": 6, "readQueueNums": 1, "writeQueueNums": 1} for name in ("b", "a")]
        body = json_dialect.dumps({"brokerDatas": [], "queueDatas": queues})
        return Command(0, "JAVA", 493, command.opaque, 1, None, None, body)


async def test_assignment_spans_the_cluster_and_remembers_routes() -> None:
    rig = Rig()
    rig.broker.registration.name_servers = ["down:1", "up:1"]
    rig.broker.client = router = Router()
    rig.consumer("g", "c2", Peer("c:2"))
    rig.consumer("g", "c1", Peer("c:1"))
    body = b'{"topic":"T","consumerGroup":"g","clientId":"c2","messageModel":"CLUSTERING","strategyName":"AVG"}'

    first = await rig.ask(400, body=body)
    second = await rig.ask(400, body=body)

    (shared,) = json_dialect.loads(first.body)["messageQueueAssignments"]
    assert shared["messageQueue"] == {"brokerName": "b", "queueId": 0, "topic": "T"}
    assert second.body == first.body
    assert router.asked == ["down:1", "up:1"]


async def test_pop_mode_is_refused_and_pull_mode_accepted() -> None:
    rig = Rig()
    rig.topic("T")
    body = b'{"topic":"T","consumerGroup":"g","mode":"%s","popShareQueueNum":0}'

    assert (await rig.ask(401, body=body % b"PULL")).code == 0
    refused = await rig.ask(401, body=body % b"POP")
    assert (refused.code, refused.remark) == (3, "group g cannot consume T by POP on this broker, use mode PULL")
    assert (await rig.ask(402)).body == b'{"messageRequestModeMap":{}}'


async def test_deleting() -> None:
    rig = Rig()
    await rig.replay("mqadmin:15")
    rig.topic("%RETRY%admgroup2", 1)
    rig.offsets.commit("admgroup", "T", 0, 5)

    for name in ("mqadmin:1331", "mqadmin:1339"):
        captured, answer = await rig.replay(name)
        assert same(captured, answer), name
    assert rig.groups.find("admgroup") is None
    assert rig.offsets.query("admgroup", "T", 0) == -1
    assert rig.topics.get("%RETRY%admgroup2") is None
    assert rig.store.deleted == ["%RETRY%admgroup2"]


async def test_deleting_a_topic_takes_its_pop_retry_topics_along() -> None:
    rig = Rig()
    for name in ("T", "%RETRY%g+T", "%RETRY%g_T", "%RETRY%g"):
        rig.topic(name)
    rig.offsets.commit("g", "T", 0, 5)

    assert (await rig.ask(215, {"topic": "T"})).code == 0

    assert rig.store.deleted == ["T", "%RETRY%g+T", "%RETRY%g_T"]
    assert rig.topics.get("%RETRY%g") is not None
    assert (await rig.ask(215)).remark == "The specified topic is blank."


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


async def test_topics_and_groups_that_belong_together() -> None:
    rig = Rig()
    rig.offsets.commit("past", "T", 0, 5)
    rig.consumer("now", "c", Peer("c:1"), Subscription("T", version=4))

    assert json_dialect.loads((await rig.ask(300, {"topic": "T"})).body) == {"groupList": ["now", "past"]}
    assert (await rig.ask(343, {"group": "past"})).body == b'{"brokerAddr":"127.0.0.1:20100","topicList":["T"]}'
    found = json_dialect.loads((await rig.ask(345, {"group": "now", "topic": "T"})).body)
    assert (found["group"], found["topic"], found["subscriptionData"]["subVersion"]) == ("now", "T", 4)
    assert (await rig.ask(345, {"group": "past", "topic": "T"})).body == b'{"group":"past","topic":"T"}'


async def test_lists_come_in_pages() -> None:
    rig = Rig()
    version = json_dialect.dumps(rig.topics.version.to_json()).decode()
    every = await rig.ask(21)
    count = str(len(rig.topics.rows))

    first = await rig.ask(21, {"topicSeq": "0", "dataVersion": "", "maxTopicNum": "3"})
    second = await rig.ask(21, {"topicSeq": "3", "dataVersion": version, "maxTopicNum": "3"})
    stale = await rig.ask(21, {"topicSeq": "3", "dataVersion": '{"counter":99}', "maxTopicNum": "3"})

    def names_of(answer: Command) -> list[str]:
        return list(json_dialect.loads(answer.body)["topicConfigTable"])

    assert every.ext == first.ext == {"totalTopicNum": count}
    assert len(names_of(every)) == int(count)
    assert names_of(first) + names_of(second) == sorted(rig.topics.rows)[:6]
    assert names_of(stale) == names_of(first)


TOPIC = {"topic": "T", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}


@pytest.mark.parametrize(
    ("ext", "code", "remark"),
    [
        ({"topic": "T"}, 1, "the request header has no field readQueueNums"),
        ({"topic": ""}, 29, "The specified topic is blank."),
        (TOPIC | {"readQueueNums": "-1"}, 29, "readQueueNums of topic T is -1"),
        (TOPIC | {"writeQueueNums": "x"}, 1, "field writeQueueNums is 'x'"),
        (TOPIC | {"perm": "9"}, 29, "perm of topic T is 9"),
        (TOPIC | {"topicFilterType": "X"}, 1, "topicFilterType = [X] value invalid"),
        (TOPIC | {"attributes": "+colour=red"}, 1, "unsupported key: colour"),
        (TOPIC | {"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported."),
    ],
)
async def test_a_bad_topic_changes_nothing_and_says_why(ext: dict[str, str], code: int, remark: str) -> None:
    rig = Rig()

    answer = await rig.ask(17, ext)

    assert answer.code == code
    assert (answer.remark or "").startswith(remark)
    assert rig.topics.get("T") is None


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"topicConfigList":7}', b'{"topicConfigList":[7]}'])
async def test_a_bad_list_body_is_refused(body: bytes) -> None:
    answer = await Rig().ask(18, body=body)

    assert answer.code == 1
    assert "\n" not in (answer.remark or "")
