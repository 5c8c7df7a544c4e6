"""Servers and clients: pipelining, pushes, bounds, failures; on virtual time and an in-memory network."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from understudy.remoting.client import open_client
from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import Command, request, response
from understudy.remoting.connection import Connection
from understudy.remoting.errors import ConnectFailedError, ConnectionLostError, InvokeTimeoutError
from understudy.remoting.fields import CommandError
from understudy.remoting.frame import FrameReader, encode
from understudy.remoting.limits import ConnectionLimits, LaneLimits
from understudy.remoting.server import RemotingServer
from understudy.runtime.background import open_background
from understudy.runtime.disk import RealDisk
from understudy.runtime.network import ByteStream
from understudy.runtime.world import World
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.network import SimNetwork

ECHO, SLOW, FAIL, REFUSE, LATER, BIG = 1, 2, 3, 4, 5, 6


@pytest.fixture
def network() -> SimNetwork:
    return SimNetwork(random.Random(1))


def world_of(network: SimNetwork, host: str) -> World:
    return World(VirtualClock(), network.host(host), RealDisk(), random.Random(2))


def echo(connection: Connection, command: Command) -> Command:
    return response(command, 0, None, command.ext, command.body)


def fail(connection: Connection, command: Command) -> Command:
    raise ZeroDivisionError("one by nought")


def refuse(connection: Connection, command: Command) -> Command:
    raise CommandError(ResponseCode.NO_PERMISSION, "not for you; ask the owner")


@asynccontextmanager
async def serving(world: World, limits: ConnectionLimits | None = None) -> AsyncIterator[RemotingServer]:
    server = RemotingServer(world, "0.0.0.0", 7000, limits=limits)
    server.register(ECHO, echo)
    server.register(FAIL, fail)
    server.register(REFUSE, refuse)
    server.register(BIG, lambda connection, command: response(command, 0, None, None, b"x" * 500_000))

    async def slow(connection: Connection, command: Command) -> Command:
        await world.clock.sleep(float((command.ext or {}).get("seconds", "1")))
        return response(command, 0, "slept")

    server.register_async(SLOW, slow, "slow")
    async with open_background() as nursery:
        await server.bind()
        nursery.start_soon(server.run)
        yield server


async def read_commands(stream: ByteStream, count: int) -> list[Command]:
    reader, found = FrameReader(), list[Command]()
    while len(found) < count:
        data = await stream.receive_some(65536)
        if not data:
            break
        found += reader.feed(data)
    return found


@pytest.mark.covers("R322")
async def test_interleaved_requests_get_their_own_answers(network: SimNetwork, autojump_clock: MockClock) -> None:
    async with serving(world_of(network, "s")), open_client(world_of(network, "c")) as client:
        answers: dict[int, bytes] = {}

        async def ask(number: int) -> None:
            code, ext = (SLOW, {"seconds": str(number % 3)}) if number % 2 else (ECHO, None)
            answer = await client.invoke("s:7000", request(code, ext, b"%d" % number), 10_000)
            answers[number] = answer.body if code == ECHO else (answer.remark or "").encode()

        async with trio.open_nursery() as nursery:
            for number in range(40):
                nursery.start_soon(ask, number)

        assert {n: b"slept" if n % 2 else b"%d" % n for n in range(40)} == answers
        assert 1 == network.connections


async def test_errors_of_handlers_are_answers_and_end_nothing(network: SimNetwork, autojump_clock: MockClock) -> None:
    async with serving(world_of(network, "s")), open_client(world_of(network, "c")) as client:
        failed = await client.invoke("s:7000", request(FAIL), 1000)
        refused = await client.invoke("s:7000", request(REFUSE), 1000)
        unknown = await client.invoke("s:7000", request(9999), 1000)
        fine = await client.invoke("s:7000", request(ECHO, None, b"on"), 1000)

        assert (1, "ZeroDivisionError: one by nought") == (failed.code, failed.remark)
        assert (16, "not for you; ask the owner") == (refused.code, refused.remark)
        assert (3, " request type 9999 not supported") == (unknown.code, unknown.remark)
        assert b"on" == fine.body


async def test_oneway_requests_are_never_answered(network: SimNetwork, autojump_clock: MockClock) -> None:
    async with serving(world_of(network, "s")):
        stream = await network.host("c").connect("s", 7000, 1)
        for code in (ECHO, FAIL, REFUSE, SLOW, 9999):
            await stream.send_all(encode(request(code, oneway=True)))
        last = request(ECHO, None, b"last")
        await stream.send_all(encode(last))

        (answer,) = await read_commands(stream, 1)
        assert (last.opaque, b"last") == (answer.opaque, answer.body)


async def test_the_owner_hears_of_a_receive_before_and_after_its_answers_are_sent(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    # given a connection that waits for what others send
    async with serving(world_of(network, "s")) as server:
        events: list[str] = []

        def noted(connection: Connection, command: Command) -> Command:
            events.append(command.body.decode())
            return response(command, 0)

        server.register(ECHO, noted)
        server.handed_on = lambda: events.append("handed on")
        server.answered = lambda: events.append("answered")
        stream = await network.host("c").connect("s", 7000, 1)
        # when two requests come in one receive
        await stream.send_all(encode(request(ECHO, None, b"one")) + encode(request(ECHO, None, b"two")))
        await read_commands(stream, 2)
        # then the owner heard once after both, and once after their answers
        assert ["one", "two", "handed on", "answered"] == events


async def test_a_bad_frame_closes_its_connection_only(
    network: SimNetwork, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(world_of(network, "s")), open_client(world_of(network, "c")) as client:
        good = await client.connection("s:7000", 1000)
        bad = await network.host("c").connect("s", 7000, 1)
        await bad.send_all(b"GET / HTTP/1.1\r\nHost: s\r\n\r\n")

        assert b"" == await bad.receive_some(100)
        assert 0 == (await good.invoke(request(ECHO), 1000)).code
        assert "looks like HTTP" in caplog.text


async def test_very_many_bad_frames_are_few_lines_in_the_log(
    network: SimNetwork, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(world_of(network, "s")):
        for count in (100, 1):
            for _ in range(count):
                bad = await network.host("c").connect("s", 7000, 1)
                await bad.send_all(b"GET / HTTP/1.1\r\n\r\n")
                await bad.aclose()
            await trio.sleep(5)
    lines = [record.getMessage() for record in caplog.records if "bad frame" in record.getMessage()]
    assert 2 <= len(lines) <= 10
    told = sum(int(line.rpartition("left_out=")[2]) for line in lines if "left_out=" in line)
    assert 101 == len(lines) + told


async def test_a_server_asks_its_client_on_the_same_connection(network: SimNetwork, autojump_clock: MockClock) -> None:
    seen: list[bytes] = []

    def pushed(connection: Connection, command: Command) -> Command:
        seen.append(command.body)
        return response(command, 0, "thanks")

    async with (
        serving(world_of(network, "s")) as server,
        open_client(world_of(network, "c"), handlers={40: pushed}) as client,
    ):
        await client.invoke("s:7000", request(ECHO), 1000)
        (connection,) = server.connections
        asked = request(40, None, b"news")
        asked.opaque = 0  # numbers of the two directions do not meet
        answer = await connection.invoke(asked, 1000)
        connection.notify(request(40, None, b"more"))
        await client.invoke("s:7000", request(ECHO), 1000)

        assert "thanks" == answer.remark
        assert [b"news", b"more"] == seen


@pytest.mark.covers("R321", "R323")
async def test_a_flood_of_one_kind_is_refused_early_and_leaves_others_alone(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    async with serving(world_of(network, "s")) as server, open_client(world_of(network, "c")) as client:
        lane = server.lane("slow", LaneLimits(running=2, waiting=3, wait_seconds=100))
        codes: list[tuple[int, str]] = []

        async def ask() -> None:
            answer = await client.invoke("s:7000", request(SLOW, {"seconds": "5"}), 60_000)
            codes.append((answer.code, (answer.remark or "")[:10]))

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(ask)
            await trio.sleep(1)
            assert (2, 3) == (lane.running, lane.waiting)
            assert 0 == (await client.invoke("s:7000", request(ECHO), 1000)).code

        assert 5 == codes.count((0, "slept"))
        assert 5 == codes.count((2, "[OVERLOAD]"))


@pytest.mark.covers("R321")
async def test_waiting_requests_are_bounded_in_bytes_too(network: SimNetwork, autojump_clock: MockClock) -> None:
    async with serving(world_of(network, "s")) as server, open_client(world_of(network, "c")) as client:
        lane = server.lane("slow", LaneLimits(running=1, waiting=100, wait_seconds=100, waiting_bytes=2500))
        codes: list[int] = []

        async def ask() -> None:
            codes.append((await client.invoke("s:7000", request(SLOW, {"seconds": "5"}, bytes(1000)), 60_000)).code)

        for _ in range(2):  # the second round finds the room of the first one given back
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(ask)
                await trio.sleep(1)
                assert (1, 2) == (lane.running, lane.waiting)

        assert (6, 4) == (codes.count(0), codes.count(2))


@pytest.mark.covers("R324")
async def test_the_oldest_waiting_request_is_refused_after_its_wait_limit(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    async with serving(world_of(network, "s")) as server, open_client(world_of(network, "c")) as client:
        server.lane("slow", LaneLimits(running=1, waiting=10, wait_seconds=0.2))
        refused_at: list[float] = []

        async def ask() -> None:
            answer = await client.invoke("s:7000", request(SLOW, {"seconds": "30"}), 60_000)
            if answer.code == 2:
                assert (answer.remark or "").startswith("[TIMEOUT_CLEAN_QUEUE]")
                refused_at.append(trio.current_time())

        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)

        assert 2 == len(refused_at)
        assert all(0.2 <= at - start < 0.3 for at in refused_at)


async def test_a_peer_that_does_not_read_is_not_read_from_and_then_cut_off(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    limits = ConnectionLimits(pause_bytes=1_000_000, outbox_bytes=64_000_000, stall_seconds=10)
    async with serving(world_of(network, "s"), limits) as server:
        stream = await network.host("c").connect("s", 7000, 1)
        await stream.send_all(b"".join(encode(request(BIG)) for _ in range(4)))
        await trio.sleep(1)
        (connection,) = server.connections
        await stream.send_all(b"".join(encode(request(BIG)) for _ in range(50)))
        await trio.sleep(5)
        assert connection.alive
        assert network.sent_bytes < 2_000_000  # the 50 later requests were left unread

        await trio.sleep(10)
        assert not connection.alive
        assert connection.close_reason == "slow reader: took nothing for 10 s"
        assert set() == server.connections


async def test_an_idle_connection_is_closed(network: SimNetwork, autojump_clock: MockClock) -> None:
    async with serving(world_of(network, "s")) as server, open_client(world_of(network, "c")) as client:
        await client.invoke("s:7000", request(ECHO), 1000)
        (connection,) = server.connections
        await trio.sleep(100)
        await client.invoke("s:7000", request(ECHO), 1000)
        await trio.sleep(100)
        assert connection.alive
        await trio.sleep(30)

        assert not connection.alive
        assert "idle for 120 s" == connection.close_reason
        assert client.open_connection("s:7000") is None


async def test_calls_fail_with_what_happened(network: SimNetwork, autojump_clock: MockClock) -> None:
    async with serving(world_of(network, "s")) as server, open_client(world_of(network, "c")) as client:
        with pytest.raises(ConnectFailedError, match="nowhere:1"):
            await client.invoke("nowhere:1", request(ECHO), 2000)
        with pytest.raises(ConnectFailedError, match="host:port"):
            await client.invoke("nonsense", request(ECHO), 2000)
        with pytest.raises(InvokeTimeoutError, match="no answer from s:7000 to request 2"):
            await client.invoke("s:7000", request(SLOW), 500)

        async def cut() -> None:
            await trio.sleep(0.3)
            for connection in list(server.connections):
                connection.close("test")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cut)
            with pytest.raises(ConnectionLostError, match="ended before the answer"):
                await client.invoke("s:7000", request(SLOW), 5000)
        assert 0 == (await client.invoke("s:7000", request(ECHO), 1000)).code


async def test_what_may_be_executed_twice_is_sent_again_over_a_new_connection_when_the_old_one_was_dead(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    async with open_client(world_of(network, "c")) as client:
        async with serving(world_of(network, "s")):
            await client.invoke_repeatable("s:7000", request(ECHO), 1000)
            await client.invoke_repeatable("s:7000", request(ECHO), 1000)
            assert 1 == network.connections
            network.power_off("s")
        network.power_on("s")
        # given: the client has not heard that the connection is dead
        assert client.current("s:7000") is not None
        async with serving(world_of(network, "s")) as server:
            # then what may change something is not repeated, and says so; a question is, once
            with pytest.raises(ConnectionLostError, match="broken by the peer"):
                await client.invoke("s:7000", request(ECHO), 1000)
            assert 0 == (await client.invoke_repeatable("s:7000", request(ECHO), 1000)).code
            network.power_off("s")
            network.power_on("s")
        async with serving(world_of(network, "s")):
            assert 0 == (await client.invoke_repeatable("s:7000", request(ECHO), 1000)).code

    # and: a connection that ends while it is new is the peer's answer; nor does a second attempt get more time
    async with serving(world_of(network, "s")) as server, open_client(world_of(network, "d")) as client:
        asked = list[Connection]()

        async def leave(connection: Connection, command: Command) -> Command:
            asked.append(connection)
            await trio.sleep(0.4)
            connection.close("test")
            await trio.sleep_forever()
            raise AssertionError

        server.register_async(LATER, leave, "later")
        with pytest.raises(ConnectionLostError):
            await client.invoke_repeatable("s:7000", request(LATER), 5000)
        assert 1 == len(asked)
        await client.invoke_repeatable("s:7000", request(ECHO), 1000)
        begun = trio.current_time()
        with pytest.raises(InvokeTimeoutError):
            await client.invoke_repeatable("s:7000", request(LATER), 600)
        assert 3 == len(asked)
        assert trio.current_time() - begun == pytest.approx(0.6, abs=0.01)


@pytest.mark.covers("R97")
async def test_the_next_name_server_is_asked_when_the_chosen_one_fails(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    async with open_client(world_of(network, "c")) as client:
        client.set_name_servers(["n1:7000", "n2:7000", "n3:7000"])
        async with serving(world_of(network, "n2")):
            assert b"1" == (await client.invoke_name_server(request(ECHO, None, b"1"), 1000)).body
            before = network.connections
            assert b"2" == (await client.invoke_name_server(request(ECHO, None, b"2"), 1000)).body
            assert before == network.connections  # the chosen one is kept
        async with serving(world_of(network, "n3")):
            assert b"3" == (await client.invoke_name_server(request(ECHO, None, b"3"), 1000)).body
        with pytest.raises(ConnectFailedError):
            await client.invoke_name_server(request(ECHO), 1000)


async def first_frame_in_pieces(send: Callable[[bytes], Awaitable[None]], frame: bytes) -> None:
    for at in range(len(frame)):
        await send(frame[at : at + 1])


@pytest.mark.parametrize("preamble", [b"", b"PROXY TCP4 10.1.2.3 10.0.0.1 5555 9876\r\n"])
async def test_the_first_bytes_may_come_one_by_one(
    network: SimNetwork, autojump_clock: MockClock, preamble: bytes
) -> None:
    async with serving(world_of(network, "s")) as server:
        stream = await network.host("c").connect("s", 7000, 1)
        await first_frame_in_pieces(stream.send_all, preamble + encode(request(ECHO, None, b"slowly")))
        (answer,) = await read_commands(stream, 1)
        (connection,) = server.connections

        assert b"slowly" == answer.body
        assert (("10.1.2.3", 5555) if preamble else stream.local) == connection.peer
