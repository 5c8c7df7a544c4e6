"""Receives of gRPC clients and the handles of what they got, played against a whole cluster on virtual time."""

from __future__ import annotations

from typing import Any

import trio
from proxy_rig import GROUP, Rig, codes, message, play, receive_request, resource

from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.testkit.waiting import until


def test_a_receive_waits_for_a_message() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        await rig.user.receive(GROUP, "Normal")
        stream = await rig.user.begin("ReceiveMessage", receive_request(GROUP, "Normal", 15_000))
        await trio.sleep(7)
        assert not stream.messages
        await rig.user.send(message("Normal"))
        with trio.fail_after(1):
            await rig.user.connection.wait(stream)
        assert 3 == len(stream.messages)

    play(test)


def test_what_comes_for_a_client_that_has_gone_is_given_to_others_at_once() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        await rig.user.receive(GROUP, "Normal")
        stream = await rig.user.begin("ReceiveMessage", receive_request(GROUP, "Normal", 20_000, 600_000))
        await trio.sleep(1)
        await rig.user.connection.cancel(stream)
        await rig.user.send(message("Normal"))
        got: list[v2.Message] = []
        with trio.move_on_after(30):
            while not got:
                got += (await rig.user.receive(GROUP, "Normal", poll_ms=5000))[1]
        assert [b"hello"] == [each.body for each in got]

    play(test)


BAD_RECEIVES: list[tuple[dict[str, Any], int]] = [
    ({"invisible_ms": 9_999}, v2.ILLEGAL_INVISIBLE_TIME),
    ({"invisible_ms": 43_200_001}, v2.ILLEGAL_INVISIBLE_TIME),
    ({"filter_expression": v2.FilterExpression(type=v2.TAG, expression="||")}, v2.ILLEGAL_FILTER_EXPRESSION),
    ({"filter_expression": v2.FilterExpression(type=v2.SQL, expression="a >")}, v2.ILLEGAL_FILTER_EXPRESSION),
    ({"batch": 0}, v2.MESSAGE_NOT_FOUND),
    ({"topic": "Nothing"}, v2.TOPIC_NOT_FOUND),
    ({"group": "a b"}, v2.ILLEGAL_CONSUMER_GROUP),
]


def test_a_receive_that_breaks_a_rule_is_refused_with_its_code() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        for fields, code in BAD_RECEIVES:
            status, got = await rig.user.receive(**{"group": GROUP, "topic": "Normal", **fields})
            assert (code, []) == (status.code, got), fields

    play(test)


def test_a_receive_waits_a_moment_for_settings_and_is_served_without_them() -> None:
    async def test(rig: Rig) -> None:
        stream = await rig.user.begin("ReceiveMessage", receive_request(GROUP, "Normal"))
        await trio.sleep(1)
        assert 0 == len(rig.receives)
        await rig.user.consume(GROUP, "Normal")
        await trio.sleep(0.1)
        assert 1 == len(rig.receives)
        await rig.user.connection.wait(stream)
        async with rig.another_user("of a proxy that was restarted") as other:
            begin = trio.current_time()
            stream = await other.begin("ReceiveMessage", receive_request(GROUP, "Fifo"))
            await until(lambda: len(rig.receives) == 1)
            assert 3 <= trio.current_time() - begin < 3.5
            sent = await rig.user.send(message("Fifo", message_group="g"))
            assert v2.OK == sent.status.code
            await other.connection.wait(stream)
            assert v2.OK == v2.ReceiveMessageResponse.FromString(stream.messages[0]).status.code
            begin = trio.current_time()
            await other.receive(GROUP, "Fifo", auto_renew=True)  # it is not waited for them again
            assert trio.current_time() - begin < 5.5
            heartbeat = v2.HeartbeatRequest(group=resource(GROUP))  # and is told that they are wanted
            answer = await other.ask("Heartbeat", heartbeat, v2.HeartbeatResponse)
            assert v2.UNRECOGNIZED_CLIENT_TYPE == answer.status.code
            end = v2.NotifyClientTerminationRequest(group=resource(GROUP))
            ended = await other.ask("NotifyClientTermination", end, v2.NotifyClientTerminationResponse)
            assert (v2.OK, 1) == (ended.status.code, len(rig.proxy.clients))

    play(test)


def test_a_receive_whose_client_does_not_wait_long_enough_is_refused() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        stream = await rig.user.begin("ReceiveMessage", receive_request(GROUP, "Normal"), timeout="3S")
        await rig.user.connection.wait(stream)
        status = v2.ReceiveMessageResponse.FromString(stream.messages[0]).status
        assert v2.ILLEGAL_POLLING_TIME == status.code

    play(test)


def test_tags_are_compared_and_not_only_their_hashes() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        expression = v2.FilterExpression(type=v2.TAG, expression="AaAa")
        await rig.user.receive(GROUP, "Normal", filter_expression=expression)
        for tag in ("BBBB", "AaAa", "other"):  # the first two have one hash
            await rig.user.send(message("Normal", tag.encode(), tag, tag=tag))
        got: list[bytes] = []
        with trio.move_on_after(30):
            while True:
                found = await rig.user.receive(GROUP, "Normal", poll_ms=5000, filter_expression=expression)
                got += [each.body for each in found[1]]
        assert [b"AaAa"] == got

    play(test)


def test_a_condition_in_sql_chooses_by_properties() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        wanted = v2.FilterExpression(type=v2.SQL, expression="colour = 'red' AND size > 3")
        await rig.user.receive(GROUP, "Normal", filter_expression=wanted)
        for colour, size in (("red", 3), ("red", 4), ("blue", 5), ("red", 10)):
            sent = message("Normal", f"{colour} {size}".encode(), f"{colour}{size}")
            sent.user_properties.update({"colour": colour, "size": str(size)})
            await rig.user.send(sent)
        got: list[bytes] = []
        with trio.move_on_after(30):
            while True:
                found = await rig.user.receive(GROUP, "Normal", poll_ms=5000, filter_expression=wanted)
                got += [each.body for each in found[1]]
        assert [b"red 10", b"red 4"] == sorted(got)

    play(test, broker_keys={"enablePropertyFilter": "true"})


def test_a_group_in_order_gets_no_message_of_a_queue_before_those_in_front_are_acknowledged() -> None:
    async def test(rig: Rig) -> None:
        broker = next(iter(rig.cluster.brokers("c1").values()))
        row = broker.groups.get(GROUP)
        assert row is not None
        row.consume_message_orderly = True
        await rig.user.consume(GROUP, "Fifo")
        await rig.user.receive(GROUP, "Fifo")
        for number in range(3):
            sent = message("Fifo", b"%d" % number, f"m{number}", message_group="g")
            assert v2.OK == (await rig.user.send(sent)).status.code
        got = []
        for _ in range(3):
            _, (one,) = await rig.user.receive(GROUP, "Fifo", batch=1, invisible_ms=600_000)
            assert (v2.MESSAGE_NOT_FOUND, []) == await code_and_messages(rig)  # also for another attempt
            got.append((one.body, one.system_properties.message_group, one.system_properties.message_type))
            assert v2.OK == (await rig.user.ack(GROUP, "Fifo", one.system_properties.receipt_handle)).status.code
        assert [(b"0", "g", v2.FIFO), (b"1", "g", v2.FIFO), (b"2", "g", v2.FIFO)] == got

    play(test)


async def code_and_messages(rig: Rig) -> tuple[int, list[v2.Message]]:
    status, messages = await rig.user.receive(GROUP, "Fifo", batch=1, attempt_id="another")
    return status.code, messages


# --- receipt handles ---------------------------------------------------------------------------------------------


def test_a_handle_that_is_none_or_expired_is_refused() -> None:
    handles = ["", "nonsense", "0 1 2 3 4 5 6", "0 0 1 0 0 broker-a 0 0 0", "x " * 9, "1 " * 4000]
    handles.append("0 1 2 3 0 broker-a 0 0 -1")

    async def test(rig: Rig) -> None:
        for handle in handles:
            answer = await rig.user.ack(GROUP, "Normal", handle)
            assert (v2.INVALID_RECEIPT_HANDLE, [v2.INVALID_RECEIPT_HANDLE]) == codes(answer)
            changed = await rig.user.change(GROUP, "Normal", handle, 1000)
            assert v2.INVALID_RECEIPT_HANDLE == changed.status.code

    play(test)


def test_entries_of_one_request_have_their_own_results() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        await rig.user.receive(GROUP, "Normal")
        await rig.user.send(message("Normal"))
        _, (got,) = await rig.user.receive(GROUP, "Normal")
        good = got.system_properties.receipt_handle
        elsewhere = good.replace("broker-a", "broker-z")
        answer = await rig.user.ack(GROUP, "Normal", good, elsewhere, good)
        assert (v2.MULTIPLE_RESULTS, [v2.OK, v2.INVALID_RECEIPT_HANDLE, v2.OK]) == codes(answer)

    play(test)


def test_a_time_of_zero_gives_a_message_back_at_once_and_its_old_handle_is_no_error() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        await rig.user.receive(GROUP, "Normal")
        await rig.user.send(message("Normal"))
        _, (got,) = await rig.user.receive(GROUP, "Normal", invisible_ms=600_000)
        handle = got.system_properties.receipt_handle
        for ms in (-1, 43_200_001):
            assert v2.ILLEGAL_INVISIBLE_TIME == (await rig.user.change(GROUP, "Normal", handle, ms)).status.code
        assert v2.OK == (await rig.user.change(GROUP, "Normal", handle, 0)).status.code
        assert (
            v2.OK == (await rig.user.ack(GROUP, "Normal", handle)).status.code
        )  # of a message that is not held any more
        begin = trio.current_time()
        again: list[v2.Message] = []
        with trio.move_on_after(60):
            while not again:
                again = (await rig.user.receive(GROUP, "Normal"))[1]
        assert [2] == [each.system_properties.delivery_attempt for each in again]
        assert trio.current_time() - begin < 10

    play(test)


def test_a_handle_that_says_not_or_falsely_where_its_message_is_cannot_be_given_up() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        await rig.user.receive(GROUP, "Normal")
        await rig.user.send(message("Fifo", b"not for this group", message_group="g"))
        await rig.user.send(message("Normal"))
        _, (got,) = await rig.user.receive(GROUP, "Normal")
        receipt = got.system_properties.receipt_handle.rpartition(" ")[0]
        broker = next(iter(rig.cluster.brokers("c1").values()))
        elsewhere = broker.store.min_physical_offset
        for forged in (receipt, f"{receipt} {elsewhere}"):
            request = v2.ForwardMessageToDeadLetterQueueRequest(
                group=resource(GROUP), topic=resource("Normal"), message_id="m1", receipt_handle=forged
            )
            rpc = "ForwardMessageToDeadLetterQueue"
            answer = await rig.user.ask(rpc, request, v2.ForwardMessageToDeadLetterQueueResponse)
            assert v2.INVALID_RECEIPT_HANDLE == answer.status.code
        assert 0 == broker.store.max_queue_offset(f"%DLQ%{GROUP}", 0)

    play(test)
