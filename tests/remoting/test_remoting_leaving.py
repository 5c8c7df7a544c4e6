"""What is left of connections that have ended: nothing, without any look for garbage."""

from __future__ import annotations

import gc
import weakref

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import Command, request, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError
from understudy.remoting.frame import encode
from understudy.remoting.server import RemotingServer
from understudy.runtime.world import real_world

ECHO, LATER, FAIL = 1, 2, 3


@pytest.mark.parametrize("close_first", ["peer", "server"])
async def test_an_ended_connection_is_gone_at_once(close_first: str) -> None:
    """A circle of objects for each connection would wait for a look for garbage, through which a server goes rarely."""
    world = real_world()
    server = RemotingServer(world, "127.0.0.1", 0)
    known: list[weakref.ref[Connection]] = []
    server.on_connect.append(lambda connection: known.append(weakref.ref(connection)))
    ended = trio.Event()
    server.on_close.append(lambda connection: ended.set())
    server.register(ECHO, lambda connection, command: response(command, 0))

    async def later(connection: Connection, command: Command) -> Command:
        await trio.lowlevel.checkpoint()
        return response(command, 0)

    def fail(connection: Connection, command: Command) -> Command:
        raise CommandError(ResponseCode.NO_PERMISSION, "no")

    server.register_async(LATER, later, "later")
    server.register(FAIL, fail)
    async with trio.open_nursery() as nursery:
        _, port = await server.bind()
        nursery.start_soon(server.run)
        await wait_all_tasks_blocked()
        gc.collect()
        gc.disable()
        try:
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            for code in (ECHO, LATER, FAIL):
                await stream.send_all(encode(request(code)))
                assert await stream.receive_some(1000)
            if close_first == "server":
                for connection in list(server.connections):
                    connection.close("enough")
                del connection
                assert await stream.receive_some(1000) == b""
            await stream.aclose()
            with trio.fail_after(5):
                await ended.wait()
            await wait_all_tasks_blocked(0.01)
            assert [each() for each in known] == [None]
        finally:
            gc.enable()
        nursery.cancel_scope.cancel()
