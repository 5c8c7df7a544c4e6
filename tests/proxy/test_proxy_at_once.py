"""Sends and acknowledgements that are rows while a broker works: no task each, one write for many, every end told."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio
from grpc_client import Stream
from proxy_rig import GROUP, QUEUES, Rig, message, play

from understudy.proxy.grpc.call import Call, Handler
from understudy.proxy.grpc.connection import GrpcConnection
from understudy.proxy.grpc.limits import GrpcLimits
from understudy.proxy.grpc.status import StatusCode
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.remoting.connection import Connection
from understudy.runtime.outbox import Outbox


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Tasks that were started for calls, by method."""
    counts: Counter[str] = Counter()
    start = GrpcConnection._start

    def noted(self: GrpcConnection, call: Call, handler: Handler) -> None:
        counts[call.metadata.get(":path", "/parked").rpartition("/")[2]] += 1
        start(self, call, handler)

    monkeypatch.setattr(GrpcConnection, "_start", noted)
    return counts


def send_request(number: int = 0, topic: str = "Normal") -> v2.SendMessageRequest:
    return v2.SendMessageRequest(messages=[message(topic, message_id=f"m{number}")])


async def ended(rig: Rig, stream: Stream) -> v2.SendMessageResponse:
    await rig.user.connection.wait(stream)
    assert (0, 1) == (stream.status, len(stream.messages))
    return v2.SendMessageResponse.FromString(stream.messages[0])


def test_what_is_sent_and_acknowledged_again_and_again_takes_no_tasks(started: Counter[str]) -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        await rig.user.receive(GROUP, "Normal")
        for number in range(20):
            assert v2.OK == (await rig.user.send(message("Normal", b"%d" % number))).status.code
        assert 1 == started["SendMessage"]  # which asked for the route
        got: list[v2.Message] = []
        while len(got) < 20:
            got += (await rig.user.receive(GROUP, "Normal"))[1]
        for each in got:
            acked = await rig.user.ack(GROUP, "Normal", each.system_properties.receipt_handle)
            assert (v2.OK, [v2.OK]) == (acked.status.code, [entry.status.code for entry in acked.entries])
        assert 0 == started["AckMessage"]
        assert {str(number).encode() for number in range(20)} == {each.body for each in got}
        await trio.sleep(60)
        assert [] == (await rig.user.receive(GROUP, "Normal"))[1]

    play(test)


def test_what_a_client_sends_at_once_goes_to_the_broker_in_one_write_and_is_answered_in_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[int] = []
    release, send = Connection.release, Outbox.send

    def released(self: Connection) -> None:
        written.append(len(self._cork or ()))
        release(self)

    async def test(rig: Rig) -> None:
        assert v2.OK == (await rig.user.send(message("Normal"))).status.code
        client = rig.user.connection
        await rig.user.consume(GROUP, "Normal")
        (connection,) = {stream.connection for each in rig.proxy.clients for stream in each.streams}
        flush, streams, answers = client.flush, list[Stream](), list[int]()

        async def later() -> None:
            """Keep what is said."""

        def noted(self: Outbox, parts: Any, size_bytes: int) -> None:
            if self is connection._outbox:
                answers.append(size_bytes)
            send(self, parts, size_bytes)

        client.flush = later  # type: ignore[method-assign]
        for number in range(8):
            streams.append(await rig.user.begin("SendMessage", send_request(number)))
        client.flush = flush  # type: ignore[method-assign]
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "release", released)
            patched.setattr(Outbox, "send", noted)
            await flush()
            for stream in streams:
                assert v2.OK == (await ended(rig, stream)).status.code
        assert 8 == sum(written) and len(written) <= 3
        assert len(answers) <= 4

    play(test)


@pytest.mark.parametrize(("timeout", "seconds"), [("1S", 1.0), (None, 3.0)])
def test_a_broker_that_says_nothing_is_waited_for_as_long_as_the_client_wants_and_no_longer(
    timeout: str | None, seconds: float
) -> None:
    async def test(rig: Rig) -> None:
        assert v2.OK == (await rig.user.send(message("Normal"))).status.code
        rig.cluster.freeze("c1")
        begin = trio.current_time()
        stream = await rig.user.begin("SendMessage", send_request(), timeout=timeout)
        await rig.user.connection.wait(stream)
        assert trio.current_time() - begin == pytest.approx(seconds, abs=0.3)
        if timeout:
            assert StatusCode.DEADLINE_EXCEEDED == stream.status
        else:
            assert v2.PROXY_TIMEOUT == (await ended(rig, stream)).status.code

    play(test)


def test_the_queue_that_was_chosen_for_a_message_is_its_own_though_its_broker_is_not_connected_yet() -> None:
    async def test(rig: Rig) -> None:
        names: Counter[str] = Counter()
        for number in range(4 * QUEUES):
            assert v2.OK == (await rig.user.send(message("Normal", message_id=f"m{number}"))).status.code
        for index in (1, 2):
            (broker,) = rig.cluster.brokers(f"c{index}").values()
            for queue in range(QUEUES):
                names[f"c{index} {queue}"] = broker.store.max_queue_offset("Normal", queue)
        assert {2} == set(names.values())

    play(test, brokers=2)


def test_a_client_that_gives_no_room_gets_its_answer_when_it_does() -> None:
    async def test(rig: Rig) -> None:
        assert v2.OK == (await rig.user.send(message("Normal"))).status.code
        client = rig.user.connection
        client.h2.update_settings({4: 0})  # the window of each call
        await client.flush()
        await trio.sleep(0.1)
        stream = await rig.user.begin("SendMessage", send_request())
        await trio.sleep(1)
        assert not stream.ended
        client.h2.increment_flow_control_window(1 << 16, stream.number)
        await client.flush()
        assert v2.OK == (await ended(rig, stream)).status.code

    play(test)


def test_a_client_that_ends_its_call_while_the_broker_works_costs_others_nothing() -> None:
    async def test(rig: Rig) -> None:
        assert v2.OK == (await rig.user.send(message("Normal"))).status.code
        for number in range(20):
            stream = await rig.user.begin("SendMessage", send_request(number))
            await rig.user.connection.cancel(stream)
        assert v2.OK == (await rig.user.send(message("Normal"))).status.code
        load = rig.proxy._world.load
        await trio.sleep(1)
        assert (0, 0) == (load.incoming.used, load.parked.used)

    play(test)


def test_what_fails_in_an_answer_is_told_to_its_client_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(rig: Rig) -> None:
        assert v2.OK == (await rig.user.send(message("Normal"))).status.code

        def fail(*_: object) -> v2.SendMessageResponse:
            raise ZeroDivisionError("secret")

        with monkeypatch.context() as patched:
            patched.setattr("understudy.proxy.rpcs.sends.send_answer", fail)
            answer = await rig.user.send(message("Normal"))
        assert v2.INTERNAL_SERVER_ERROR == answer.status.code
        assert "secret" not in answer.status.message
        assert v2.OK == (await rig.user.send(message("Normal"))).status.code

    play(test)
    assert 1 == sum("call failed" in each.getMessage() for each in caplog.records)


def test_a_message_that_is_kept_for_its_client_and_cannot_be_acknowledged_is_kept_on() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        await rig.user.receive(GROUP, "Normal")
        await rig.user.send(message("Normal"))
        _, (got,) = await rig.user.receive(GROUP, "Normal", auto_renew=True)
        handle, renewals = got.system_properties.receipt_handle, rig.receives._receipts.renewals
        assert 1 == len(renewals)
        rig.cluster.freeze("c1")
        assert v2.PROXY_TIMEOUT == (await rig.user.ack(GROUP, "Normal", handle)).status.code
        assert 1 == len(renewals)
        rig.cluster.unfreeze("c1")
        assert v2.OK == (await rig.user.ack(GROUP, "Normal", handle)).status.code
        assert 0 == len(renewals)

    play(test)


def test_what_is_sent_to_two_brokers_at_once_leaves_to_both() -> None:
    async def test(rig: Rig) -> None:
        for number in range(2 * QUEUES):  # both are connected
            assert v2.OK == (await rig.user.send(message("Normal", message_id=f"m{number}"))).status.code
        client, flush = rig.user.connection, rig.user.connection.flush

        async def later() -> None:
            """Keep what is said."""

        client.flush = later  # type: ignore[method-assign]
        streams = [await rig.user.begin("SendMessage", send_request(number)) for number in range(4 * QUEUES)]
        client.flush = flush  # type: ignore[method-assign]
        begin = trio.current_time()
        await flush()
        for stream in streams:
            assert v2.OK == (await ended(rig, stream)).status.code
        assert trio.current_time() - begin < 1

    play(test, brokers=2)


def test_a_client_that_pings_with_each_answer_stays_whose_sends_take_no_tasks() -> None:
    async def test(rig: Rig) -> None:
        client = rig.user.connection
        for _ in range(GrpcLimits().control_frames + 100):
            stream = await rig.user.begin("SendMessage", send_request())
            client.h2.ping(b"12345678")
            await client.flush()
            await ended(rig, stream)
        assert not client.closed

    play(test)


def test_a_client_that_waits_for_less_than_a_broker_is_given_makes_nobody_avoid_the_broker() -> None:
    async def test(rig: Rig) -> None:
        for number in range(2 * QUEUES):
            assert v2.OK == (await rig.user.send(message("Normal", message_id=f"m{number}"))).status.code
        rig.cluster.freeze("c1")
        hurried = [await rig.user.begin("SendMessage", send_request(number), timeout="10m") for number in range(4)]
        for stream in hurried:
            await rig.user.connection.wait(stream)
        rig.cluster.unfreeze("c1")
        for number in range(2 * QUEUES):
            assert v2.OK == (await rig.user.send(message("Normal", message_id=f"n{number}"))).status.code
        counts = []
        for index in (1, 2):
            (broker,) = rig.cluster.brokers(f"c{index}").values()
            counts.append(sum(broker.store.max_queue_offset("Normal", queue) for queue in range(QUEUES)))
        assert abs(counts[0] - counts[1]) <= 4

    play(test, brokers=2)


def test_an_answer_waits_while_its_client_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def drained(self: Outbox) -> None:
        await trio.sleep(0.5)

    async def test(rig: Rig) -> None:
        assert v2.OK == (await rig.user.send(message("Normal"))).status.code
        with monkeypatch.context() as patched:
            patched.setattr(Outbox, "choked", property(lambda self: True))
            patched.setattr(Outbox, "wait_drained", drained)
            stream = await rig.user.begin("SendMessage", send_request())
            await trio.sleep(2)
            assert not stream.ended
        assert v2.OK == (await ended(rig, stream)).status.code

    play(test)
