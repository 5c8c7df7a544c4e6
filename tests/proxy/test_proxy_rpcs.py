"""Messages of gRPC clients and how they fail, played against a whole cluster on virtual time."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

import pytest
import trio
from proxy_rig import GROUP, QUEUES, Rig, codes, message, play, resource

from understudy.proxy.core.durations import set_ms
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.proxy.server import UnknownClusterError


def test_a_message_arrives_with_all_that_it_was_sent_with() -> None:
    async def test(rig: Rig) -> None:
        sent = message("Normal", b"body", "id-1", tag="TagA", keys=["k1", "k2"], trace_context="trace")
        sent.user_properties["colour"] = "blau ä"
        answer = await rig.user.send(sent)
        assert ((v2.OK, [v2.OK]), "id-1") == (codes(answer), answer.entries[0].message_id)
        await rig.user.consume(GROUP, "Normal")
        status, (got,) = await rig.user.receive(GROUP, "Normal")
        system = got.system_properties
        assert (v2.OK, b"body", {"colour": "blau ä"}) == (status.code, got.body, dict(got.user_properties))
        assert ("id-1", "TagA", ["k1", "k2"], "trace", 1, v2.NORMAL, v2.IDENTITY) == (
            system.message_id,
            system.tag,
            list(system.keys),
            system.trace_context,
            system.delivery_attempt,
            system.message_type,
            system.body_encoding,
        )
        assert (v2.MD5, hashlib.md5(b"body").hexdigest().upper()) == (
            system.body_digest.type,
            system.body_digest.checksum,
        )
        assert 9 == len(system.receipt_handle.split(" "))

    # a new group begins with the newest message, so it must be known before
    async def known_group(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        assert (v2.MESSAGE_NOT_FOUND, []) == ((answer := await rig.user.receive(GROUP, "Normal"))[0].code, answer[1])
        await test(rig)

    play(known_group)


def test_an_acknowledged_message_does_not_come_again_and_another_one_does() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        await rig.user.receive(GROUP, "Normal")
        for number in range(4):
            await rig.user.send(message("Normal", b"%d" % number, f"id-{number}"))
        got: list[v2.Message] = []
        while len(got) < 4:
            got += (await rig.user.receive(GROUP, "Normal", invisible_ms=10_000))[1]
        keep, *rest = got
        handles = [each.system_properties.receipt_handle for each in rest]
        assert (v2.OK, [v2.OK] * 3) == codes(await rig.user.ack(GROUP, "Normal", *handles))
        again: list[v2.Message] = []
        with trio.move_on_after(60):
            while True:
                again += (await rig.user.receive(GROUP, "Normal", poll_ms=5000, invisible_ms=600_000))[1]
        assert [(keep.body, 2)] == [(each.body, each.system_properties.delivery_attempt) for each in again]

    play(test)


def test_a_changed_time_counts_and_its_new_handle_acknowledges() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        await rig.user.receive(GROUP, "Normal")
        await rig.user.send(message("Normal"))
        _, (got,) = await rig.user.receive(GROUP, "Normal", invisible_ms=10_000)
        answer = await rig.user.change(GROUP, "Normal", got.system_properties.receipt_handle, 60_000)
        assert v2.OK == answer.status.code
        assert got.system_properties.receipt_handle.split(" ")[8] == answer.receipt_handle.split(" ")[8]
        with trio.move_on_after(40):
            while True:
                assert [] == (await rig.user.receive(GROUP, "Normal", poll_ms=5000))[1]
        assert v2.OK == (await rig.user.ack(GROUP, "Normal", answer.receipt_handle)).status.code
        with trio.move_on_after(60):
            while True:
                assert [] == (await rig.user.receive(GROUP, "Normal", poll_ms=5000))[1]

    play(test)


def test_messages_of_one_group_go_to_one_queue_in_order() -> None:
    async def test(rig: Rig) -> None:
        offsets = set()
        for number in range(10):
            answer = await rig.user.send(message("Fifo", b"%d" % number, f"id-{number}", message_group="g"))
            assert v2.OK == answer.status.code
            offsets.add(answer.entries[0].offset)
        assert set(range(10)) == offsets

    play(test, brokers=2)


def test_a_delayed_message_comes_at_its_time_and_a_recalled_one_never() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Delay")
        await rig.user.receive(GROUP, "Delay")
        now = rig.cluster.client_world().clock.wall_ms()
        handles = []
        for name in ("kept", "recalled"):
            delayed = message("Delay", name.encode(), name)
            set_ms(delayed.system_properties.delivery_timestamp, now + 20_000)
            answer = await rig.user.send(delayed)
            assert v2.OK == answer.status.code
            handles.append(answer.entries[0].recall_handle)
        await trio.sleep(2)
        request = v2.RecallMessageRequest(topic=resource("Delay"), recall_handle=handles[1])
        recalled = await rig.user.ask("RecallMessage", request, v2.RecallMessageResponse)
        assert (v2.OK, "recalled") == (recalled.status.code, recalled.message_id)
        got: list[tuple[bytes, float]] = []
        with trio.move_on_after(60):
            while True:
                for each in (await rig.user.receive(GROUP, "Delay", poll_ms=5000))[1]:
                    got.append((each.body, rig.cluster.client_world().clock.wall_ms() - now))
                    await rig.user.ack(GROUP, "Delay", each.system_properties.receipt_handle)
        assert [b"kept"] == [body for body, _ in got]
        assert 20_000 <= got[0][1] < 23_000

    play(test, broker_keys={"recallMessageEnable": "true"})


def test_a_recall_is_for_topics_of_delayed_messages_and_may_come_twice() -> None:
    async def test(rig: Rig) -> None:
        late = message("Delay")
        set_ms(late.system_properties.delivery_timestamp, rig.cluster.client_world().clock.wall_ms() + 600_000)
        handle = (await rig.user.send(late)).entries[0].recall_handle
        for topic, text, code in (
            ("Normal", handle, v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
            ("Nothing", handle, v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
            ("Delay", "nonsense", v2.INTERNAL_SERVER_ERROR),
            ("a b", handle, v2.ILLEGAL_TOPIC),
            ("Delay", handle, v2.OK),
            ("Delay", handle, v2.OK),
        ):
            request = v2.RecallMessageRequest(topic=resource(topic), recall_handle=text)
            answer = await rig.user.ask("RecallMessage", request, v2.RecallMessageResponse)
            assert code == answer.status.code, (topic, text)

    play(test, broker_keys={"recallMessageEnable": "true"})


@pytest.mark.parametrize("tries", [1, 2])
def test_a_message_may_be_given_up_for_the_dead_letters(tries: int) -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        await rig.user.receive(GROUP, "Normal")
        await rig.user.send(message("Normal", b"first", "first"))
        await rig.user.send(message("Normal", b"poison", "poison"))
        got: list[v2.Message] = []
        while len(got) < 2:
            got += (await rig.user.receive(GROUP, "Normal"))[1]
        (poison,) = (each for each in got if each.body == b"poison")
        if tries == 2:  # it comes from the retry topic then
            await rig.user.change(GROUP, "Normal", poison.system_properties.receipt_handle, 0)
            found: list[v2.Message] = []
            with trio.move_on_after(60):
                while not found:
                    found = (await rig.user.receive(GROUP, "Normal"))[1]
            (poison,) = found
        assert tries == poison.system_properties.delivery_attempt
        handle = (
            await rig.user.change(GROUP, "Normal", poison.system_properties.receipt_handle, 30_000)
        ).receipt_handle
        request = v2.ForwardMessageToDeadLetterQueueRequest(
            group=resource(GROUP), topic=resource("Normal"), receipt_handle=handle, message_id="poison"
        )
        rpc = "ForwardMessageToDeadLetterQueue"
        answer = await rig.user.ask(rpc, request, v2.ForwardMessageToDeadLetterQueueResponse)
        assert v2.OK == answer.status.code
        broker = next(iter(rig.cluster.brokers("c1").values()))
        topic = f"%DLQ%{GROUP}"
        assert 1 == broker.store.max_queue_offset(topic, 0)

    play(test)


BAD_MESSAGES: list[tuple[dict[str, Any], int]] = [
    ({"body": b""}, v2.MESSAGE_BODY_EMPTY),
    ({"body": bytes(4_194_305)}, v2.MESSAGE_BODY_TOO_LARGE),
    ({"message_id": " "}, v2.ILLEGAL_MESSAGE_ID),
    ({"tag": "a|b"}, v2.ILLEGAL_MESSAGE_TAG),
    ({"keys": ["\x01"]}, v2.ILLEGAL_MESSAGE_KEY),
    ({"message_group": "g" * 64}, v2.ILLEGAL_MESSAGE_GROUP),
    ({"message_group": "g"}, v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ({"lite_topic": "l"}, v2.UNSUPPORTED),
    ({"topic": "Nothing"}, v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ({"topic": "%RETRY%\n"}, v2.ILLEGAL_TOPIC),
    ({"users": {"UNIQ_KEY": "x"}}, v2.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ({"users": {"a": "\x02"}}, v2.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ({"users": {str(number): "x" for number in range(129)}}, v2.MESSAGE_PROPERTIES_TOO_LARGE),
    ({"users": {"a": "x" * 16_384}}, v2.MESSAGE_PROPERTIES_TOO_LARGE),
]


def test_a_message_that_breaks_a_rule_is_refused_with_its_code() -> None:
    async def test(rig: Rig) -> None:
        for changes, code in BAD_MESSAGES:
            fields = {"topic": "Normal", **changes}
            users = fields.pop("users", {})
            sent = message(**fields)
            sent.user_properties.update(users)
            assert code == (await rig.user.send(sent)).status.code, changes

    play(test)


def test_numbers_that_no_enumeration_has_are_taken_for_none_or_refused_and_the_proxy_stays_well() -> None:
    async def test(rig: Rig) -> None:
        strange = message("Normal", message_type=99, body_encoding=99)
        settings = v2.Settings(client_type=99)
        settings.subscription.group.name = GROUP
        await rig.user.settle(settings)
        wanted = v2.FilterExpression(type=99, expression="*")
        assert v2.MESSAGE_NOT_FOUND == (await rig.user.receive(GROUP, "Normal", filter_expression=wanted))[0].code
        assert v2.OK == (await rig.user.send(strange)).status.code
        _, (got,) = await rig.user.receive(GROUP, "Normal", filter_expression=wanted)
        system = got.system_properties
        assert (b"hello", v2.NORMAL, v2.IDENTITY) == (got.body, system.message_type, system.body_encoding)
        half = await rig.user.send(message("Tran", message_type=v2.TRANSACTION))
        request = v2.EndTransactionRequest(
            topic=resource("Tran"),
            message_id="m1",
            transaction_id=half.entries[0].transaction_id,
            resolution=99,
            source=99,
        )
        assert v2.OK == (await rig.user.ask("EndTransaction", request, v2.EndTransactionResponse)).status.code
        endpoints = v2.Endpoints(scheme=99, addresses=[v2.Address(host="h", port=1)])
        route = v2.QueryRouteRequest(topic=resource("Normal"), endpoints=endpoints)
        assert v2.OK == (await rig.user.ask("QueryRoute", route, v2.QueryRouteResponse)).status.code

    play(test)


def test_a_batch_is_stored_whole_and_answered_by_one_entry() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        await rig.user.receive(GROUP, "Normal")
        answer = await rig.user.send(*(message("Normal", b"%d" % number, f"id-{number}") for number in range(3)))
        assert (v2.OK, [v2.OK], "id-0,id-1,id-2") == (*codes(answer), answer.entries[0].message_id)
        _, got = await rig.user.receive(GROUP, "Normal")
        assert [(b"0", "id-0"), (b"1", "id-1"), (b"2", "id-2")] == [
            (each.body, each.system_properties.message_id) for each in got
        ]

    play(test)


# --- failures ----------------------------------------------------------------------------------------------------


def test_a_send_that_may_be_stored_is_not_sent_again_by_the_proxy() -> None:
    async def test(rig: Rig) -> None:
        assert v2.OK == (await rig.user.send(message("Normal"))).status.code
        rig.cluster.freeze("c2")
        streams = []
        for number in range(2 * QUEUES):  # each queue gets one
            request = v2.SendMessageRequest(messages=[message("Normal", message_id=f"m{number}")])
            streams.append(await rig.user.begin("SendMessage", request))
        await trio.sleep(1)
        await rig.cluster.kill("c2")
        found: Counter[int] = Counter()
        for stream in streams:
            await rig.user.connection.wait(stream)
            found[v2.SendMessageResponse.FromString(stream.messages[0]).status.code] += 1
        assert {v2.OK: QUEUES, v2.INTERNAL_SERVER_ERROR: QUEUES} == found

    play(test, brokers=2)


def test_a_message_that_was_tried_often_enough_goes_to_the_dead_letters() -> None:
    async def test(rig: Rig) -> None:
        broker = next(iter(rig.cluster.brokers("c1").values()))
        row = broker.groups.get(GROUP)
        assert row is not None
        row.retry_max_times = 0
        await rig.user.consume(GROUP, "Normal")
        await rig.user.receive(GROUP, "Normal")
        await rig.user.send(message("Normal"))
        assert 1 == len((await rig.user.receive(GROUP, "Normal", invisible_ms=10_000))[1])
        with trio.move_on_after(60):
            while True:
                assert [] == (await rig.user.receive(GROUP, "Normal"))[1]
        assert 1 == broker.store.max_queue_offset(f"%DLQ%{GROUP}", 0)

    play(test)


def test_sends_go_around_a_master_that_cannot_be_reached() -> None:
    async def test(rig: Rig) -> None:
        assert v2.OK == (await rig.user.send(message("Normal"))).status.code
        await rig.cluster.kill("c2")
        await trio.sleep(1)  # what was under way may be stored, and is left to the client
        for number in range(2 * QUEUES):
            assert v2.OK == (await rig.user.send(message("Normal", message_id=str(number)))).status.code

    play(test, brokers=2)


@pytest.mark.covers("R118")
def test_a_second_proxy_comes_and_goes_without_clients_of_the_first_noticing() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        await rig.user.receive(GROUP, "Normal")
        async with rig.another_proxy("p2") as other:
            await rig.user.send(message("Normal", message_id="1"))
            await other.send(message("Normal", message_id="2"))
        await rig.user.send(message("Normal", message_id="3"))
        got = set()
        with trio.move_on_after(20):
            while len(got) < 3:
                got |= {each.system_properties.message_id for each in (await rig.user.receive(GROUP, "Normal"))[1]}
        assert {"1", "2", "3"} == got

    play(test)


@pytest.mark.covers("R119")
def test_a_proxy_of_a_cluster_that_is_not_there_does_not_start() -> None:
    async def test(rig: Rig) -> None:
        with pytest.RaisesGroup(UnknownClusterError, flatten_subgroups=True) as caught:
            async with rig.another_proxy("p2", rocketMQClusterName="Elsewhere"):
                raise AssertionError("it serves")
        assert "rocketMQClusterName=Elsewhere" in str(caught.value.exceptions[0])

    play(test)


def test_what_one_proxy_handed_out_another_one_acknowledges() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        await rig.user.receive(GROUP, "Normal")
        await rig.user.send(message("Normal"))
        _, (got,) = await rig.user.receive(GROUP, "Normal", invisible_ms=10_000)
        async with rig.another_proxy("p2") as user:
            answer = await user.ack(GROUP, "Normal", got.system_properties.receipt_handle)
            assert (v2.OK, [v2.OK]) == codes(answer)
        with trio.move_on_after(30):
            while True:
                assert [] == (await rig.user.receive(GROUP, "Normal", poll_ms=5000))[1]

    play(test)
