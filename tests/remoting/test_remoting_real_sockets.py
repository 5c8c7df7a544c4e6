"""Server and client over real sockets: many of them, large frames, and turns between slow requests."""

from __future__ import annotations

import random
import time

import pytest
import trio

from understudy.remoting.client import open_client
from understudy.remoting.command import Command, request, response
from understudy.remoting.connection import Connection
from understudy.remoting.frame import FrameReader, encode
from understudy.remoting.server import RemotingServer
from understudy.runtime.world import real_world

ECHO, SLOW = 1, 2


def echo(connection: Connection, command: Command) -> Command:
    return response(command, 0, None, command.ext, command.body)


@pytest.mark.covers("R319")
async def test_thousand_idle_connections_do_not_delay_a_new_one() -> None:
    world = real_world()
    server = RemotingServer(world, "127.0.0.1", 0)
    server.register(ECHO, echo)
    async with trio.open_nursery() as nursery:
        host, port = await server.bind()
        nursery.start_soon(server.run)
        idle = [await world.network.connect(host, port, 5) for _ in range(1000)]
        for _ in range(10):  # a busy machine may delay anybody, but not always
            async with open_client(world) as client:
                start = trio.current_time()
                answer = await client.invoke(f"{host}:{port}", request(ECHO, None, b"hello"), 30_000)
                took = trio.current_time() - start
            if took < 1.0:
                break
        for stream in idle:
            await stream.aclose()
        nursery.cancel_scope.cancel()

    assert b"hello" == answer.body
    assert took < 1.0


async def test_frames_larger_than_a_receive_go_through_both_ways() -> None:
    world = real_world()
    server = RemotingServer(world, "127.0.0.1", 0)
    server.register(ECHO, echo)
    body = random.Random(3).randbytes(5_000_000)
    async with trio.open_nursery() as nursery:
        host, port = await server.bind()
        nursery.start_soon(server.run)
        async with open_client(world) as client:
            answer = await client.invoke(f"{host}:{port}", request(ECHO, None, body), 10_000)
        nursery.cancel_scope.cancel()
    assert body == answer.body


async def test_slow_requests_of_one_packet_leave_others_their_turn_between_them() -> None:
    world, turns, seen = real_world(), 0, list[int]()

    def slow(connection: Connection, command: Command) -> Command:
        time.sleep(0.006)  # works as long as that, in place
        seen.append(turns)
        return response(command, 0)

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    server = RemotingServer(world, "127.0.0.1", 0)
    server.register(SLOW, slow)
    async with trio.open_nursery() as nursery:
        _, port = await server.bind()
        nursery.start_soon(server.run)
        nursery.start_soon(other)
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(b"".join(encode(request(SLOW)) for _ in range(6)))
        reader, count = FrameReader(), 0
        while count < 6:
            count += len(reader.feed(await stream.receive_some(65536)))
        await stream.aclose()
        nursery.cancel_scope.cancel()
    # In a turn of the event loop either may come first.
    assert all(later > former for former, later in zip(seen, seen[2:], strict=False)), seen
