"""The gRPC server alone, over the network and clock of a simulated host: calls, bounds, and bad clients."""

from __future__ import annotations

import gzip

import attrs
import pytest
import trio
from grpc_client import GrpcClient, open_client
from grpc_rig import LIMITS, Rig, play
from h2.errors import ErrorCodes
from hyperframe.frame import GoAwayFrame

from understudy.proxy.grpc.status import StatusCode

# --- calls -------------------------------------------------------------------------------------------------------


def test_a_call_with_one_request_is_answered_with_status_ok() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        stream = await client.call("/t/Echo", b"hello")
        assert ([b"hello"], 0, "200", "application/grpc") == (
            stream.messages,
            stream.status,
            stream.headers[":status"],
            stream.headers["content-type"],
        )

    play(test)


def test_messages_beyond_every_window_arrive_whole_in_both_directions() -> None:
    body = bytes(range(256)) * 4000

    async def test(rig: Rig, client: GrpcClient) -> None:
        assert [body] == (await client.call("/t/Echo", body)).messages
        assert [body] * 10 == (await client.call("/t/Many", body)).messages

    play(test)


def test_a_stream_in_both_directions_is_answered_message_by_message() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        stream = await client.begin("/t/Both")
        for number in range(3):
            await client.send(stream, b"%d" % number)
            await client.until(lambda number=number: len(stream.messages) == number + 1)
        assert not stream.ended
        await client.end(stream)
        await client.wait(stream)
        assert ([b"0", b"1", b"2"], 0) == (stream.messages, stream.status)

    play(test)


def test_a_refusal_travels_percent_encoded_and_a_fault_tells_nothing_of_the_server() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        refused = await client.call("/t/Refuse", b"")
        assert (3, "schlecht: %C3%A4%25") == (refused.status, refused.headers["grpc-message"])
        failed = await client.call("/t/Fail", b"")
        assert failed.status == StatusCode.INTERNAL
        assert "secret" not in failed.headers["grpc-message"]
        assert [b"x"] == (await client.call("/t/Echo", b"x")).messages

    play(test)


def test_what_is_no_call_is_told_so() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        assert (await client.call("/t/Nothing", b"")).status == StatusCode.UNIMPLEMENTED
        html = await client.call("/t/Echo", b"", content_type="text/html")
        assert "415" == html.headers[":status"]
        assert (await client.call("/t/Echo", b"", grpc_encoding="snappy")).status == StatusCode.UNIMPLEMENTED
        assert (await client.call("/t/Echo", b"", grpc_timeout="soon")).status == StatusCode.INTERNAL
        empty = await client.begin("/t/Echo")
        await client.end(empty)
        assert (await client.wait(empty)).status == StatusCode.INTERNAL

    play(test)


def test_a_deadline_ends_the_call_with_its_status() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        begin = rig.world.clock.monotonic()
        stream = await client.call("/t/Forever", b"", grpc_timeout="2500m")
        assert stream.status == StatusCode.DEADLINE_EXCEEDED
        assert rig.world.clock.monotonic() - begin == pytest.approx(2.5, abs=0.1)
        assert ["forever"] == rig.ended

    play(test)


def test_a_cancelled_call_ends_its_handler_and_no_other() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        first, second = await client.begin("/t/Forever"), await client.begin("/t/Slow")
        await client.send(first, b"", end=True)
        await client.send(second, b"s", end=True)
        await trio.sleep(0.1)
        await client.cancel(first)
        assert [b"s"] == (await client.wait(second)).messages
        assert ["forever"] == rig.ended

    play(test)


def test_a_compressed_message_is_inflated_up_to_the_limit() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        for body, status in ((b"z" * 1000, 0), (b"z" * (LIMITS.message_bytes + 1), StatusCode.RESOURCE_EXHAUSTED)):
            stream = await client.begin("/t/Echo", grpc_encoding="gzip")
            packed = gzip.compress(body)
            client.h2.send_data(stream.number, b"\x01" + len(packed).to_bytes(4, "big") + packed, end_stream=True)
            await client.flush()
            await client.wait(stream)
            assert (status, [] if status else [body]) == (stream.status, stream.messages)

    play(test)


# --- bounds ------------------------------------------------------------------------------------------------------


def test_a_message_above_the_limit_is_refused_before_it_has_come() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        stream = await client.begin("/t/Echo")
        client.h2.send_data(stream.number, b"\x00" + (LIMITS.message_bytes + 1).to_bytes(4, "big"))
        await client.flush()
        await client.wait(stream)
        assert stream.status == StatusCode.RESOURCE_EXHAUSTED
        assert [b"x"] == (await client.call("/t/Echo", b"x")).messages

    play(test)


def test_requests_that_hold_more_than_the_process_may_are_refused_and_others_are_not() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        rig.load.incoming.limit = 200_000
        assert (await client.call("/t/Echo", bytes(300_000))).status == StatusCode.RESOURCE_EXHAUSTED
        assert [b"x"] == (await client.call("/t/Echo", b"x")).messages
        assert 0 == rig.load.incoming.used

    play(test)


def test_a_request_that_is_only_begun_costs_no_task_and_ends_in_time() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        streams = [await client.begin("/t/Slow") for _ in range(100)]
        await trio.sleep(1)
        assert [] == rig.began
        for stream in streams:
            await client.wait(stream)
        assert {StatusCode.DEADLINE_EXCEEDED} == {stream.status for stream in streams}

    play(test)


def test_a_client_that_opens_too_many_calls_at_once_is_disconnected() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        client.h2.remote_settings.update({3: 1000})  # it does as if it had not read the limit
        client.h2.remote_settings.acknowledge()
        for _ in range(12):
            await client.begin("/t/Forever")
        await client.until(lambda: client.closed)
        assert [] == rig.began

    play(test, attrs.evolve(LIMITS, calls=10))


def test_messages_that_nobody_takes_wait_at_the_client() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        stream = await client.begin("/t/Deaf")
        message, sent = bytes(100_000), 0
        with trio.move_on_after(5):
            for _ in range(100):
                await client.send(stream, message)
                sent += 1
        # what was sent is what may be unread, and the window
        assert sent <= LIMITS.unread_messages + LIMITS.window_bytes // len(message) + 1
        assert rig.server.connections

    play(test)


def test_answers_for_a_client_that_gives_no_window_back_wait_without_memory_for_them() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        stream = await client.begin("/t/Many")
        await client.send(stream, bytes(60_000), end=True)
        await trio.sleep(1)
        assert 1 == len(stream.messages)  # the window is 65,535 bytes
        async with open_client(rig.world, rig.address) as other:
            assert [b"x"] == (await other.call("/t/Echo", b"x")).messages

    play(test, reads=False)


@pytest.mark.parametrize("flood", ["pings", "resets", "settings", "priorities", "empty data"])
def test_a_flood_of_control_frames_ends_the_connection(flood: str) -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        stream = await client.begin("/t/Deaf")
        for _ in range(40):
            if flood == "empty data":
                client.h2.send_data(stream.number, b"")
            elif flood == "pings":
                client.h2.ping(b"12345678")
            elif flood == "settings":
                client.h2.update_settings({4: 65535})
            elif flood == "priorities":
                client.h2.prioritize(1, weight=16)
            else:
                await client.cancel(await client.begin("/t/Forever"))
            await client.flush()
            if client.closed:
                break
            await trio.sleep(0.001)
        await client.until(lambda: client.closed)
        assert [ErrorCodes.ENHANCE_YOUR_CALM] == client.goodbyes

    play(test, attrs.evolve(LIMITS, control_frames=20))


@pytest.mark.parametrize("weight", [None, 16])
def test_a_client_that_pings_with_each_answer_stays_though_its_calls_have_priorities(weight: int | None) -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        client.weight = weight
        for _ in range(100):
            assert [b"x"] == (await client.call("/t/Echo", b"x")).messages
            client.h2.ping(b"12345678")
            await client.flush()
        assert [b"x"] == (await client.call("/t/Echo", b"x")).messages
        assert not client.closed

    play(test, attrs.evolve(LIMITS, control_frames=20))


def test_what_nobody_has_read_of_calls_that_were_cancelled_takes_no_window() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        for _ in range(40):
            stream = await client.begin("/t/Deaf")
            for _ in range(LIMITS.unread_messages + 4):
                await client.send(stream, bytes(15_000))
            await client.cancel(stream)
        assert [b"x"] == (await client.call("/t/Echo", b"x")).messages

    play(test)


def test_header_fields_above_the_limit_end_the_connection() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        await client.begin("/t/Echo", [("x-large", "y" * 9000)])
        await client.until(lambda: client.closed)

    play(test)


@pytest.mark.parametrize("text", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00" * 64, b"PROXY TCP4 nonsense\r\n" * 2])
def test_bytes_that_are_no_http_2_are_turned_away(text: bytes) -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        stream = await rig.world.network.connect(*rig.address, 5)
        await stream.send_all(text)
        while await stream.receive_some(65536):
            pass
        assert [b"x"] == (await client.call("/t/Echo", b"x")).messages

    play(test)


def test_a_proxy_preamble_names_the_client() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        stream = await rig.world.network.connect(*rig.address, 5)
        await stream.send_all(b"PROXY TCP4 203.0.113.9 10.0.0.1 4711 8081\r\n")
        proxied = GrpcClient(stream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(proxied.run)
            assert [b"x"] == (await proxied.call("/t/Echo", b"x")).messages
            assert ("203.0.113.9", 4711) in {connection.peer for connection in rig.server.connections}
            nursery.cancel_scope.cancel()

    play(test)


# --- life --------------------------------------------------------------------------------------------------------


def test_a_client_without_calls_is_sent_away_after_a_while() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        await client.call("/t/Echo", b"x")
        begin = rig.world.clock.monotonic()
        await client.until(lambda: client.closed)
        assert [0] == client.goodbyes
        assert rig.world.clock.monotonic() - begin == pytest.approx(LIMITS.idle_seconds, abs=6)

    play(test)


def test_a_client_that_lost_its_power_is_forgotten() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        await client.send(await client.begin("/t/Forever"), b"", end=True)
        await trio.sleep(1)
        assert ["forever"] == rig.began
        rig.cluster.partition(["server"], ["client"])
        await trio.sleep(LIMITS.silent_seconds + LIMITS.ping_seconds + 60)
        assert (["forever"], set()) == (rig.ended, rig.server.connections)

    play(test)


def test_a_stop_says_goodbye_ends_what_is_endless_and_lets_calls_under_way_end() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        endless, stream = await client.begin("/t/Forever"), await client.begin("/t/Slow")
        await client.send(endless, b"", end=True)
        await client.send(stream, b"s", end=True)
        await trio.sleep(0.1)
        rig.scope.cancel()
        await client.wait(endless)
        assert endless.status == StatusCode.UNAVAILABLE
        await client.wait(stream)
        assert ([b"s"], 0, [0]) == (stream.messages, stream.status, client.goodbyes)
        await client.until(lambda: client.closed)

    play(test)


def test_a_client_that_says_goodbye_gets_the_answers_of_its_calls_and_its_endless_ones_end() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        endless, stream = await client.begin("/t/Both"), await client.begin("/t/Slow")
        await client.send(stream, b"s", end=True)
        await trio.sleep(0.1)
        await client.stream.send_all(GoAwayFrame(0).serialize())  # h2 has it that nothing comes after one
        await client.wait(endless)
        await client.wait(stream)
        assert (0, [b"s"], 0) == (endless.status, stream.messages, stream.status)

    play(test)


def test_a_client_that_says_goodbye_and_has_no_calls_is_let_go() -> None:
    async def test(rig: Rig, client: GrpcClient) -> None:
        assert [b"x"] == (await client.call("/t/Echo", b"x")).messages
        begin = rig.world.clock.monotonic()
        await client.stream.send_all(GoAwayFrame(0).serialize())
        await client.until(lambda: client.closed)
        assert rig.world.clock.monotonic() - begin < 1

    play(test)
