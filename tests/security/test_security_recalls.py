"""Who may have timer messages taken back, or anything else done by what only brokers write: nobody for other topics."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
import trio
from security_programs import INNER, ROOT, SEND, Caller, start_broker, stored, with_bob

from understudy.broker.broker import Broker
from understudy.format.batch import encode_batch
from understudy.format.properties import format_properties
from understudy.format.recall_handle import decode_handle, encode_handle
from understudy.remoting.client import RemotingClient
from understudy.runtime.world import real_world
from understudy.testkit.waiting import until


def stored_texts(broker: Broker, topic: str) -> list[str]:
    return [json.loads(record.body) for record in stored(broker, topic)]


@pytest.mark.parametrize("with_topic", ["false", "true"])
async def test_recall_of_a_message_of_another_topic(
    with_topic: str, tmp_path: Path, nursery: trio.Nursery, client: RemotingClient
) -> None:
    keys = {"recallMessageEnable": "true", "appendTopicForTimerDeleteKey": with_topic, "timerPrecisionMs": "100"}
    broker = await start_broker(tmp_path, nursery, **keys)
    root = Caller(client, broker.identity.address, ROOT)
    bob = await with_bob(root, ("Topic:orders", "Pub"))
    for topic in ("secrets", "orders"):
        await root.done(310, {**SEND, "b": topic, "i": ""}, "first")
    # given messages of both topics for one moment, whose keys bob knows, as he does of the second of orders
    due_ms = real_world().clock.wall_ms() + 3_000
    handles = {}
    for topic, key in (("secrets", "a"), ("secrets", "b"), ("orders", "a"), ("orders", "mine")):
        timed = format_properties({"UNIQ_KEY": key, "TIMER_DELIVER_MS": str(due_ms)})
        answer = await root.done(310, {**SEND, "b": topic, "i": timed}, f"{topic} {key}")
        handles[topic, key] = (answer.ext or {})["recallHandle"]
    secret = decode_handle(handles["secrets", "a"])
    forged = encode_handle(attrs.evolve(secret, topic="orders", unique_key="b"))
    crossed = encode_handle(attrs.evolve(secret, topic="orders", unique_key="secrets+b"))
    # when he calls back by a handle of the other topic, by its name and under the name of his own
    assert 16 == (await bob.ask(370, {"topic": "secrets", "recallHandle": handles["secrets", "a"]})).code
    answer = await bob.ask(370, {"topic": "orders", "recallHandle": handles["secrets", "a"]})
    assert (604, "recall failed, topic not match") == (answer.code, answer.remark)
    # and by handles of his topic that name keys of the other, and by messages of his own making
    for handle in (forged, crossed, handles["orders", "mine"]):
        await bob.done(370, {"topic": "orders", "recallHandle": handle})
    for named in ("b", "secrets+b"):
        wish = {"UNIQ_KEY": "b", "TIMER_DEL_UNIQKEY": named, "TIMER_DELIVER_MS": str(secret.time_ms)}
        wish |= {"REAL_TOPIC": "secrets", "REAL_QID": "0"}
        await bob.done(310, {**SEND, "i": format_properties(wish)}, "0")
    # then only his own is gone
    expected = {"secrets": ["first", "secrets a", "secrets b"], "orders": ["first", "orders a"]}
    for topic, bodies in expected.items():
        await until(lambda: len(stored_texts(broker, topic)) >= len(bodies))  # noqa: B023 - called before the next turn
    await until(lambda: broker.timer.waiting == 0)
    assert expected == {topic: stored_texts(broker, topic) for topic in expected}
    nursery.cancel_scope.cancel()


async def test_messages_for_topics_that_only_brokers_write_to(
    tmp_path: Path, nursery: trio.Nursery, client: RemotingClient
) -> None:
    keys = {"recallMessageEnable": "true", "timerPrecisionMs": "100"}
    broker = await start_broker(tmp_path, nursery, **keys)
    root = Caller(client, broker.identity.address, ROOT)
    bob = await with_bob(root, ("Topic:*", "Pub"))
    denied = {"resource": "Topic:secrets", "actions": ["All"], "decision": "Deny"}
    await root.done(3006, {"subject": "User:bob"}, {"subject": "User:bob", "policies": [{"entries": [denied]}]})
    due_ms = real_world().clock.wall_ms() + 2_000
    timed = format_properties({"UNIQ_KEY": "a", "TIMER_DELIVER_MS": str(due_ms)})
    answer = await root.done(310, {**SEND, "b": "secrets", "i": timed}, "secret")
    slot = str(decode_handle((answer.ext or {})["recallHandle"]).time_ms - 1)
    assert 16 == (await bob.ask(310, {**SEND, "b": "secrets"}, b"x")).code
    await bob.done(310, {**SEND, "b": "orders"}, "x")
    # when who may write to all topics but one writes what the timer, or a pop, would keep for that one
    place = {"TIMER_OUT_MS": slot, "REAL_TOPIC": "secrets", "REAL_QID": "0"}
    recall = place | {"UNIQ_KEY": "a", "TIMER_DEL_UNIQKEY": "a"}
    later = {"UNIQ_KEY": "c", "TIMER_DELIVER_MS": str(due_ms)}
    for topic in ("rmq_sys_wheel_timer", f"rmq_sys_REVIVE_LOG_{broker.identity.cluster}"):
        for pairs in (place, recall, later):
            text = format_properties(pairs)
            batch = encode_batch([(0, b"x", text.encode())])
            for code, ext, body in (
                (310, {**SEND, "b": topic, "i": text}, b"x"),
                (10, {"producerGroup": "p", "topic": topic, "defaultTopic": "TBW102", "properties": text}, b"x"),
                (320, {**SEND, "b": topic, "m": "true"}, batch),
            ):
                answer = await bob.ask(code, ext, body)
                assert 16 == answer.code, (topic, code)
                assert "User:bob has no permission to access Cluster:DefaultCluster" in (answer.remark or "")
    await until(lambda: stored_texts(broker, "secrets"))
    assert ["secret"] == stored_texts(broker, "secrets")
    # while a broker's own user may, as a slave that acts hands on what waits
    wish = place | {"UNIQ_KEY": "d"}
    await root.by(INNER).done(310, {**SEND, "b": "rmq_sys_wheel_timer", "i": format_properties(wish)}, "escaped")
    await until(lambda: len(stored_texts(broker, "secrets")) == 2)
    nursery.cancel_scope.cancel()
