"""What a client cannot do to a proxy: keep its loop, fill its memory with calls, or with requests that grow."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable
from itertools import pairwise

import attrs
import pytest
import trio
from grpc_client import GrpcClient, open_client
from grpc_rig import LIMITS, Rig, play
from hyperframe.frame import ContinuationFrame, HeadersFrame, SettingsFrame
from hypothesis import given
from hypothesis import strategies as st
from proxy_rig import Rig as ProxyRig
from proxy_rig import message
from proxy_rig import play as play_proxy

from understudy.proxy.core.request_parts import check_parts, fields
from understudy.proxy.core.statuses import ProxyError
from understudy.proxy.grpc.call import Call
from understudy.proxy.grpc.connection import _ENDED_AT_ONCE, GrpcConnection
from understudy.proxy.grpc.framing import AT_ONCE_BYTES, Inflating, MessageReader, framed
from understudy.proxy.grpc.status import RpcError, StatusCode
from understudy.proxy.messages import rocketmq_v2 as v2

PREAMBLE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SettingsFrame(0).serialize()


def connection_of(rig: Rig) -> GrpcConnection:
    (connection,) = rig.server.connections
    return connection


# --- turns -------------------------------------------------------------------------------------------------------


def test_a_client_that_leaves_with_very_many_calls_leaves_others_their_turns() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        fields = [(":method", "POST"), (":scheme", "http"), (":path", "/t/Forever"), (":authority", "test")]
        fields += [("content-type", "application/grpc"), ("te", "trailers")]
        for _ in range(200):
            stream = client.h2.get_next_available_stream_id()
            client.h2.send_headers(stream, fields)
            client.h2.send_data(stream, framed(b"x"), end_stream=True)
        await client.flush()
        await trio.sleep(1)
        assert len(rig.began) == 200
        turns, ended = list[int](), rig.ended
        connection = connection_of(rig)
        connection.close("enough")
        while len(ended) < 200:
            turns.append(len(ended))
            await trio.lowlevel.checkpoint()
        steps = [later - sooner for sooner, later in pairwise(turns)]
        assert max(steps) <= 2 * _ENDED_AT_ONCE  # this task may be the first of one turn and the last of another
        assert not rig.load.parked.used and not rig.load.incoming.used

    play(test)


def test_calls_that_cost_much_have_no_longer_turns() -> None:
    """Hundreds of calls may come at once: each costs time, and the turn ends when it has had its own."""

    async def test(rig: Rig, client: GrpcClient) -> None:
        await client.call("/t/Echo", b"x")
        connection, now, turns = connection_of(rig), 0.0, list[float]()
        take, stop, usual = connection.on_request, rig.load.turn.release, connection.clock

        class Slow:
            def monotonic(self) -> float:
                return now

        def noted(stream_id: int, fields: dict[str, str]) -> None:
            nonlocal now
            now += LIMITS.turn_seconds / 16
            take(stream_id, fields)

        def released() -> None:
            turns.append(now)
            stop()

        connection.on_request = noted  # type: ignore[method-assign]
        connection.clock = Slow()  # type: ignore[assignment]
        rig.load.turn.release = released  # type: ignore[method-assign]
        fields = [(":method", "POST"), (":scheme", "http"), (":path", "/t/No"), (":authority", "test")]
        for _ in range(300):
            client.h2.send_headers(client.h2.get_next_available_stream_id(), fields, end_stream=True)
        await client.flush()
        await trio.sleep(1)
        connection.clock = usual
        longest = max(later - sooner for sooner, later in pairwise(turns))
        assert len(turns) > 10
        assert longest <= 2 * LIMITS.turn_seconds

    play(test)


def test_who_sends_much_at_once_leaves_others_their_turns() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        await client.call("/t/Echo", b"x")
        seen, turn = list[int](), rig.load.turn
        connection = connection_of(rig)
        take = connection._deals_with

        def noted(data: bytes = b"", until: float = -math.inf) -> bool:
            if not data:  # what was left
                seen.append(turn.statistics().tasks_waiting)
            return take(data, until)

        connection._deals_with = noted  # type: ignore[method-assign]
        fields = [(":method", "POST"), (":scheme", "http"), (":path", "/t/No"), (":authority", "test")]
        for _ in range(100):
            client.h2.send_headers(client.h2.get_next_available_stream_id(), fields, end_stream=True)
        async with open_client(rig.world, rig.address) as other:
            async with turn:  # somebody else works
                await client.flush()
                await trio.sleep(1)
                assert [b"x"] == (await other.call("/t/Echo", b"x")).messages
                assert seen == []
            async with trio.open_nursery() as nursery:
                for _ in range(3):

                    async def work() -> None:
                        async with turn:
                            await trio.lowlevel.checkpoint()

                    nursery.start_soon(work)
        await trio.sleep(1)
        assert len(seen) > 3  # some frames in each, with a turn of its own
        assert seen[-1] == 0
        assert [b"x"] == (await client.call("/t/Echo", b"x")).messages

    play(test, attrs.evolve(LIMITS, turn_seconds=-1.0))


def test_next_to_no_room_wakes_nobody_when_many_wait_for_it() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        streams = [await client.begin("/t/Echo") for _ in range(40)]
        for stream in streams:
            await client.send(stream, bytes(10_000), end=True)
        await trio.sleep(1)
        writing, asked = connection_of(rig)._writing, list[int]()
        send = writing.send

        def noted(stream_id: int, data: bytes, at: int) -> int:
            asked.append(stream_id)
            return send(stream_id, data, at)

        writing.send = noted  # type: ignore[method-assign]
        for _ in range(100):
            client.h2.increment_flow_control_window(1)
            await client.flush()
            await trio.sleep(0.01)
        assert asked == []
        client.h2.increment_flow_control_window(1 << 20)
        await client.flush()
        for stream in streams:
            await client.wait(stream)
        assert {0} == {stream.status for stream in streams}

    play(test, reads=False)


# --- memory ------------------------------------------------------------------------------------------------------


def test_header_fields_that_go_on_in_frame_after_frame_end_the_connection() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        stream = await rig.world.network.connect(*rig.address, 5)
        first = HeadersFrame(1, b"\x00" * 10_000)
        await stream.send_all(PREAMBLE + first.serialize() + ContinuationFrame(1, b"\x00" * 10_000).serialize())
        with trio.fail_after(5):
            while await stream.receive_some(65536):
                pass
        assert [b"x"] == (await client.call("/t/Echo", b"x")).messages

    play(test)


def test_open_calls_have_a_total_and_the_greedy_are_refused_first() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        rig.load.parked.limit = 100 * LIMITS.call_bytes
        greedy = [await client.begin("/t/Both") for _ in range(60)]
        await trio.sleep(1)
        refused = [stream for stream in greedy if stream.ended]
        assert {StatusCode.RESOURCE_EXHAUSTED} == {stream.status for stream in refused}
        assert 60 - len(refused) == 50
        async with open_client(rig.world, rig.address) as other:
            assert [b"x"] == (await other.call("/t/Echo", b"x")).messages
        for stream in greedy:
            if not stream.ended:
                await client.cancel(stream)
        await trio.sleep(1)
        assert 0 == rig.load.parked.used
        assert [b"x"] == (await client.call("/t/Echo", b"x")).messages

    play(test)


def test_a_method_may_take_less_than_the_server() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        assert [b"x" * 100] == (await client.call("/t/Small", b"x" * 100)).messages
        assert StatusCode.RESOURCE_EXHAUSTED == (await client.call("/t/Small", b"x" * 101)).status

    play(test)


def test_a_large_compressed_message_is_inflated_beside_the_event_loop() -> None:
    sizes = list[int]()

    class Threads:
        async def run(self, function: Callable[[], bytes]) -> bytes:
            await trio.lowlevel.checkpoint()
            found = function()
            sizes.append(len(found))
            return found

    async def test(rig: Rig, client: GrpcClient) -> None:
        await client.call("/t/Echo", b"x")
        connection_of(rig).threads = Threads()  # type: ignore[assignment]
        for size, status in ((1_000, 0), (AT_ONCE_BYTES, 0), (AT_ONCE_BYTES + 1, 0), (1 << 20, 0), ((1 << 20) + 1, 8)):
            stream = await client.begin("/t/Length", grpc_encoding="gzip")
            data = gzip.compress(bytes(size))
            client.h2.send_data(stream.number, b"\x01" + len(data).to_bytes(4, "big") + data, end_stream=True)
            await client.flush()
            await client.wait(stream)
            assert status == stream.status
            assert status or [b"%d" % size] == stream.messages
        assert [AT_ONCE_BYTES + 1, 1 << 20] == sizes

    play(test)


def test_what_requests_hold_is_counted_as_they_are_inflated_and_until_they_are_read() -> None:
    data = gzip.compress(bytes(1_000_000))
    whole = b"\x01" + len(data).to_bytes(4, "big") + data

    async def test(rig: Rig, client: GrpcClient) -> None:
        rig.load.incoming.limit = 3_500_000
        streams = [await client.begin("/t/Slow", grpc_encoding="gzip") for _ in range(8)]
        for stream in streams:
            client.h2.send_data(stream.number, whole, end_stream=True)
        await client.flush()
        for stream in streams:
            await client.wait(stream)
        statuses = [stream.status for stream in streams]
        assert {StatusCode.OK, StatusCode.RESOURCE_EXHAUSTED} == set(statuses)
        assert statuses.count(StatusCode.OK) <= 3
        assert 0 == rig.load.incoming.used
        stream = await client.begin("/t/Slow")
        await client.send(stream, bytes(50_000))
        await trio.sleep(0.1)
        client.h2.send_data(stream.number, b"")  # says nothing new
        await client.flush()
        await trio.sleep(0.1)
        assert 50_000 == rig.load.incoming.used
        await client.cancel(stream)
        await trio.sleep(0.1)
        assert 0 == rig.load.incoming.used

    play(test)


def test_a_connection_that_has_ended_is_looked_at_no_more() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        await client.call("/t/Echo", b"x")
        connection = connection_of(rig)
        await client.stream.aclose()
        await trio.sleep(1)
        assert not rig.server.connections
        assert math.inf == connection.look(rig.world.clock.monotonic() + 1_000)

    play(test)


@given(st.integers(AT_ONCE_BYTES + 1, 1 << 20), st.integers(1, 100))
def test_what_is_inflated_later_is_the_same_or_refused(size: int, cut: int) -> None:
    data = gzip.compress(bytes(size))
    reader = MessageReader(1 << 20, "gzip")
    (found,) = reader.feed(b"\x01" + len(data).to_bytes(4, "big") + data)
    assert isinstance(found, Inflating) and AT_ONCE_BYTES <= len(found) < AT_ONCE_BYTES + len(data)
    assert bytes(size) == found.whole()
    short = data[:-cut]
    (found,) = reader.feed(b"\x01" + len(short).to_bytes(4, "big") + short)
    assert isinstance(found, Inflating)
    with pytest.raises(RpcError):
        found.whole()


def send_request(*bodies: int, **properties: str) -> bytes:
    messages = [
        v2.Message(topic=v2.Resource(name="T"), body=bytes(size), user_properties=properties) for size in bodies
    ]
    return bytes(v2.SendMessageRequest(messages=messages).SerializeToString())


@pytest.mark.parametrize("request_", [send_request(4 << 20), send_request(*[100] * 4096, a="b"), send_request(0), b""])
def test_what_a_client_may_send_has_few_enough_parts(request_: bytes) -> None:
    check_parts(request_)


@pytest.mark.parametrize(
    "request_",
    [
        b"\x0a\x00" * 50_000,  # messages
        b"\x0a\xc0\x84\x3d" + b"\x0a\x00" * 500_000,  # fields of one message
        send_request(1, a="x" * (1 << 20)),
        b"\x12\x80\x80\x80\x01" + bytes(1 << 21),  # a field nobody knows
        b"\x1b\x1c" + b"\x0a\x00" * 50_000,  # behind a group
        b"\x0a\xc2\x84\x3d\x1b\x1c" + b"\x0a\x00" * 500_000,  # behind a group in a message
    ],
)
def test_a_request_of_very_many_parts_is_refused_unread(request_: bytes) -> None:
    with pytest.raises(ProxyError, match="send less"):
        check_parts(request_)


@given(st.binary(max_size=300))
def test_any_bytes_have_fields_up_to_the_first_that_is_none(data: bytes) -> None:
    found = list(fields(data, 0, len(data)))
    assert all(0 <= begin <= end <= len(data) for _, begin, end in found)
    assert [each[2] for each in found] == sorted({each[2] for each in found})
    check_parts(data)


def test_a_send_is_looked_at_before_it_is_read() -> None:
    async def test(rig: ProxyRig) -> None:
        user = rig.user.connection
        stream = await user.call(
            "/apache.rocketmq.v2.MessagingService/SendMessage", b"\x0a\x00" * 50_000, [("x-mq-client-id", "c")]
        )
        assert v2.MESSAGE_CORRUPTED == v2.SendMessageResponse.FromString(stream.messages[0]).status.code

    play_proxy(test)


def test_messages_that_wait_for_their_client_have_a_total_and_come_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(rig: ProxyRig) -> None:
        await rig.user.consume("g", "Normal")
        await rig.user.send(message("Normal", b"x" * 1_000))
        sizes = list[int]()

        def no_room(call: Call, size: int) -> bool:
            if size < 1_000:  # what it subscribes to has room
                return True
            sizes.append(size)
            return False

        with monkeypatch.context() as patched:
            patched.setattr(Call, "keeps", no_room)
            status, found = await rig.user.receive("g", "Normal")
        assert (v2.TOO_MANY_REQUESTS, [], [1_000]) == (status.code, found, sizes)
        await trio.sleep(2)
        status, found = await rig.user.receive("g", "Normal")
        assert (v2.OK, [b"x" * 1_000]) == (status.code, [each.body for each in found])

    play_proxy(test)
