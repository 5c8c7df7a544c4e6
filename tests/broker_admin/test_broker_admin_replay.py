"""Captured requests of mqadmin 5.4.0, answered by our handlers over the same state, give the captured answers."""

from __future__ import annotations

import pytest
from admin_rig import Peer, Rig, live_group, same

from understudy.broker.filters import Subscription
from understudy.format import json_dialect
from understudy.remoting.command import Command


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
