"""What pages ask for beyond the first screen, from a real cluster: topics, groups, messages, and moving a group."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import attrs
import pytest
import trio
from console_rig import SIGNED_IN, TOKEN, Browser, Reply

from understudy.console import messages, queries
from understudy.console.resets import ResetError, moves_of, target_ms
from understudy.console.server import Console, ConsoleOptions
from understudy.mqclient import admin
from understudy.mqclient.admin import cluster, groups
from understudy.mqclient.api import ProducerOptions, SendResult, message, open_producer, real_world
from understudy.mqclient.errors import BrokerError
from understudy.mqclient.message import ReceivedMessage, split_offset_message_id
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import Session, open_session
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import eventually

TOPIC, GROUP = "Orders", "billing"
HOSTILE = '<img src=x onerror="alert(1)">\u2028\n'
NOBODY = {"Authorization": ""}


@attrs.frozen
class Shop:
    """A cluster with some messages, and a console before it."""

    browser: Browser
    sent: list[SendResult]
    broker: str
    broker_address: str
    name_servers: str
    began_ms: int

    async def get(self, name: str, /, **fields: object) -> Reply:
        return await self.browser.ask(f"/api/{name}?{urlencode(fields)}")

    async def configure(self, values: dict[str, str]) -> None:
        """Change settings of the broker."""
        async with open_session(real_world(), self.name_servers) as session:
            await cluster.update_broker_config(session, self.broker_address, values)

    async def has_looked(self) -> bool:
        """Return whether the console knows how far the group is."""
        return bool((await self.get("groups")).json["rows"])


@asynccontextmanager
async def shop(keys: Mapping[str, str] | None = None) -> AsyncIterator[Shop]:
    """Five messages in one queue, of which a group has consumed two."""
    world = real_world()
    tracing = ProducerOptions(enable_message_trace=bool(keys))
    async with LocalCluster(broker_config=keys) as local:
        (name,) = local.brokers
        began_ms = int(time.time() * 1000)
        async with open_producer(world, local.namesrv_address, "checkout", tracing) as producer:
            sent = [await producer.send(message(TOPIC, HOSTILE.encode(), keys="order-1"))]
            queue = sent[0].queue
            sent += [
                await producer.send(message(TOPIC, body), select=lambda queues, wanted: queue)
                for body in (b"two", b"\xff\xfe", b"four", b"x" * 100_000)
            ]
        async with open_session(world, local.namesrv_address) as session:
            address = local.brokers[name].identity.address
            await groups.save_group(session, address, {"groupName": GROUP})
            await groups.set_offset(session, address, GROUP, MessageQueue(TOPIC, name, queue.queue_id), 2)
        console = Console(world, ConsoleOptions("127.0.0.1", 0, local.namesrv_address, TOKEN))
        await console.bind()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(console.run)
            browser = Browser(world.network, "127.0.0.1", int(console.address.rstrip("/").rpartition(":")[2]))
            found = Shop(browser, sent, name, address, local.namesrv_address, began_ms)
            await eventually(found.has_looked)
            yield found
            nursery.cancel_scope.cancel()


async def test_topics_groups_and_messages_are_found_and_shown_as_text() -> None:
    async with shop() as shop_:
        # topics, and one of them
        rows = {row["name"]: row for row in (await shop_.get("topics")).json["rows"]}
        assert ("normal", [shop_.broker]) == (rows[TOPIC]["kind"], rows[TOPIC]["brokers"])
        topic = (await shop_.get("topic", name=TOPIC)).json
        assert 5 == sum(queue["max"] - queue["min"] for queue in topic["queues"])
        assert [(GROUP, 3)] == [(row["group"], row["behind"]) for row in topic["consumers"]]
        # one group, and one that is none
        group = (await shop_.get("group", name=GROUP)).json
        assert 3 == sum(queue["behind"] for queue in group["queues"])
        assert [] == group["members"]
        assert 422 == (await shop_.get("group", name="a group")).status
        # a message by its id, with what groups made of it; its body is text, whatever stands in it
        first = shop_.sent[0]
        (row,) = (await shop_.get("messages", topic=TOPIC, id=first.message_id)).json["rows"]
        assert (HOSTILE, True, "order-1") == (row["body"], row["isText"], row["keys"])
        assert [GROUP] == [track["group"] for track in row["tracks"]]
        # by key, and by time, the oldest first; what is no text as bytes, what is long in front
        (row,) = (await shop_.get("messages", topic=TOPIC, key="order-1")).json["rows"]
        assert first.message_id == row["id"]
        rows = (await shop_.get("messages", topic=TOPIC, **{"from": shop_.began_ms})).json["rows"]
        assert [HOSTILE, "two", "ff fe", "four"] == [row["body"] for row in rows[:4]]
        assert (True, 65_536, 100_000) == (rows[4]["cut"], len(rows[4]["body"]), rows[4]["bytes"])
        assert [] == (await shop_.get("messages", topic=TOPIC, **{"from": shop_.began_ms + 3_600_000})).json["rows"]


UNKNOWN = [
    ("messages", {"topic": "Nothing", "key": "k"}, "no broker has the topic Nothing"),
    ("messages", {"topic": TOPIC}, "say what to find: an id, a key, or from which time on"),
    ("messages", {"topic": TOPIC, "from": "-1"}, "say what to find"),
    ("messages", {"key": "k"}, "name the topic"),
    ("topic", {"name": "x" * 600}, "name the topic"),
    ("roster", {"address": "10.0.0.1:22"}, "10.0.0.1:22 is no broker of this cluster"),
    ("reset", {"group": GROUP, "topic": TOPIC, "to": "soon"}, "say where to: begin, end, or a time"),
    ("reset", {"group": "strangers", "topic": TOPIC, "to": "end"}, "strangers has no progress on Orders"),
]


async def test_a_message_shows_what_its_clients_traced_and_where_it_came_again() -> None:
    async with shop({"traceTopicEnable": "true"}) as shop_:
        first = shop_.sent[0]

        async def row() -> dict[str, Any]:
            reply = await shop_.get("messages", topic=TOPIC, id=first.message_id)
            (found,) = reply.json["rows"]
            return dict(found)

        # given a message that its group gave back, and gave up then
        async with open_session(real_world(), shop_.name_servers) as session:
            _, offset = split_offset_message_id((await row())["offsetId"])
            for level in (1, -1):
                ext = {"group": GROUP, "originTopic": TOPIC, "originMsgId": first.message_id, "offset": offset}
                ext |= {"delayLevel": level, "unitMode": False, "maxReconsumeTimes": 16}
                await session.call(shop_.broker_address, RequestCode.CONSUMER_SEND_MSG_BACK, ext)

        async def came_again() -> bool:
            await trio.sleep(1.1)  # the same question within a second has the same answer
            found = await row()
            return bool(found["trace"]) and len(found["retries"]) == 2

        await eventually(came_again)
        found = await row()
        # then it is seen where it stands now
        assert [(f"%DLQ%{GROUP}", True), (f"%RETRY%{GROUP}", False)] == sorted(
            (each["topic"], each["dead"]) for each in found["retries"]
        )
        # and what its producer told of it
        (step,) = found["trace"]
        assert ("Pub", "checkout", "127.0.0.1", True) == tuple(
            step[name] for name in ("kind", "group", "host", "success")
        )
        # when clients trace elsewhere, then that is said, and not that nothing was traced
        elsewhere = await shop_.get("messages", topic=TOPIC, id=first.message_id, traceTopic="elsewhere")
        (other,) = elsewhere.json["rows"]
        assert ("trace" in other, True) == (False, "no broker has the topic elsewhere" in other["traceMissing"])
        refused = await shop_.get("messages", topic=TOPIC, id=first.message_id, traceTopic="no topic!")
        assert (422, "where clients trace is no name of a topic") == (refused.status, refused.json["error"])


async def test_retries_that_are_not_told_are_called_unknown_and_keep_nothing_else_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find = admin.messages.find

    async def refused(session: Session, topic: str, *rest: Any, **more: Any) -> list[ReceivedMessage]:
        if topic == f"%RETRY%{GROUP}":
            raise BrokerError(ResponseCode.NO_PERMISSION, "it is not yours", "10.0.0.1:10911")
        return await find(session, topic, *rest, **more)

    async def slow(session: Session, topic: str, *rest: Any, **more: Any) -> list[ReceivedMessage]:
        if topic.startswith("%"):
            await trio.sleep_forever()
        return await find(session, topic, *rest, **more)

    monkeypatch.setattr(messages, "RETRIES_SECONDS", 0.5)
    async with shop() as shop_:
        for instead, told in ((refused, "it is not yours"), (slow, "did not tell of every group in time")):
            monkeypatch.setattr(admin.messages, "find", instead)
            (row,) = (await shop_.get("messages", topic=TOPIC, id=shop_.sent[0].message_id)).json["rows"]
            assert (GROUP, True) == (row["tracks"][0]["group"], told in row["retriesMissing"])
            assert "traceMissing" in row
            await trio.sleep(1.1)  # the same question within a second has the same answer


async def test_what_cannot_be_found_is_one_sentence() -> None:
    async with shop() as shop_:
        for name, fields, told in UNKNOWN:
            reply = await shop_.get(name, **fields)
            assert (422, True) == (reply.status, told in reply.json["error"]), reply


async def test_a_group_is_moved_after_a_preview_by_who_has_signed_in_and_taken_back() -> None:
    async with shop() as shop_:

        async def behind() -> int:
            await trio.sleep(1.1)  # the same question within a second has the same answer
            return sum(queue["behind"] for queue in (await shop_.get("group", name=GROUP)).json["queues"])

        # given a preview, which changes nothing
        plan = (await shop_.get("reset", group=GROUP, topic=TOPIC, to="end")).json
        assert [(2, 5)] == [(row["before"], row["after"]) for row in plan["rows"] if row["after"]]
        assert 3 == await behind()
        # when somebody moves it who has not signed in, or without naming queues, then nothing happens
        body = {"group": GROUP, "topic": TOPIC, "rows": plan["rows"]}
        ask = shop_.browser.ask
        assert 403 == (await ask("/api/reset", NOBODY, method="POST", body=body)).status
        assert 422 == (await ask("/api/reset", SIGNED_IN, method="POST", body={**body, "rows": []})).status
        away = [{**plan["rows"][0], "broker": "elsewhere"}]
        refused = await ask("/api/reset", SIGNED_IN, method="POST", body={**body, "rows": away})
        assert "nothing was moved: elsewhere: nobody leads it" in refused.json["error"]
        assert 3 == await behind()
        # when it is moved, then it stands there, and back it goes
        done = (await ask("/api/reset", SIGNED_IN, method="POST", body=body)).json
        assert [] == done["elsewhere"]
        assert 0 == await behind()
        assert 403 == (await ask("/api/undo", NOBODY, method="POST", body={"undo": done["undo"]})).status
        back = await ask("/api/undo", SIGNED_IN, method="POST", body={"undo": done["undo"]})
        assert (200, []) == (back.status, back.json["elsewhere"])
        assert 3 == await behind()
        unknown = await ask("/api/undo", SIGNED_IN, method="POST", body={"undo": "x"})
        assert "there is nothing like that to take back" in unknown.json["error"]


async def test_a_broker_that_leaves_moves_to_members_is_not_told_of_single_queues() -> None:
    async with shop() as shop_:
        plan = (await shop_.get("reset", group=GROUP, topic=TOPIC, to="begin")).json
        assert 200 == (await shop_.get("reset", group=GROUP, topic=TOPIC, to="begin")).status
        await shop_.configure({"useServerSideResetOffset": "false"})
        # when it is asked for what it would do, or told to do what was shown before, then it is refused
        preview = await shop_.get("reset", group=GROUP, topic=TOPIC, to="end")
        body = {"group": GROUP, "topic": TOPIC, "rows": plan["rows"]}
        move = await shop_.browser.ask("/api/reset", SIGNED_IN, method="POST", body=body)
        for reply in (preview, move):
            assert (422, True) == (reply.status, "it needs useServerSideResetOffset=true" in reply.json["error"]), reply


async def test_what_has_moved_can_be_taken_back_when_the_rest_fails_or_nobody_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with shop() as shop_:
        ask = shop_.browser.ask

        async def stands() -> int:
            await trio.sleep(1.1)  # the same question within a second has the same answer
            return sum(queue["consumed"] for queue in (await shop_.get("group", name=GROUP)).json["queues"])

        async def back_from(moved: Reply) -> Reply:
            return await ask("/api/undo", SIGNED_IN, method="POST", body={"undo": moved.json["undo"]})

        # given a move of which one queue is refused
        queue = shop_.sent[0].queue.queue_id
        rows = [
            {"broker": shop_.broker, "id": queue, "before": 2, "after": 4},
            {"broker": shop_.broker, "id": 1_000, "before": 0, "after": 9},
        ]
        body = {"group": GROUP, "topic": TOPIC, "rows": rows}
        moved = await ask("/api/reset", SIGNED_IN, method="POST", body=body)
        assert (200, [queue], 2) == (moved.status, [row["id"] for row in moved.json["rows"]], moved.json["wanted"])
        assert ["queueId 1000" in sentence for sentence in moved.json["failed"]] == [True]
        assert 4 == await stands()
        # when it is taken back, then it stands as before
        assert 200 == (await back_from(moved)).status
        assert 2 == await stands()
        # when nobody waits for a move, then it goes on, and can be taken back
        monkeypatch.setattr(queries, "_MOVED_WITHIN_SECONDS", 0)
        moved = await ask("/api/reset", SIGNED_IN, method="POST", body={**body, "rows": rows[:1]})
        assert (200, False, []) == (moved.status, moved.json["ended"], moved.json["failed"])
        assert 4 == await stands()
        assert 200 == (await back_from(moved)).status
        assert 2 == await stands()


@pytest.mark.parametrize(
    "rows",
    [
        None, [], "x", [1], [{}], [{"broker": "b", "id": 0, "before": 0, "after": -1}],
        [{"broker": "b", "id": "x", "before": 0, "after": 1}], [{"broker": "b", "id": -1, "before": 0, "after": 1}],
        [{"broker": "b", "id": 0, "before": 0, "after": 1}] * 2,
        [{"broker": "b", "id": 0, "before": 0, "after": 1}] * 9_999,
    ],
)  # fmt: skip
def test_moves_that_are_none_are_refused(rows: object) -> None:
    with pytest.raises(ResetError):
        moves_of(rows)


@pytest.mark.parametrize("wanted", ["", "now", "-1", "1.5", "9" * 16, "²"])
def test_a_time_that_is_none_is_refused(wanted: str) -> None:
    with pytest.raises(ResetError):
        target_ms(wanted)
