"""Thousands of connections that come at once leave those that are there their turns."""

from __future__ import annotations

import contextlib
import socket

import trio

from understudy.remoting.command import Command, request, response
from understudy.remoting.connection import Connection
from understudy.remoting.frame import encode
from understudy.remoting.server import RemotingServer
from understudy.runtime.load import NEWCOMERS
from understudy.runtime.world import real_world

FIRST, LATER = 1, 2
COUNT = 30


class Turns(trio.abc.Instrument):
    """Counts the turns of the loop."""

    number = 0

    def before_io_wait(self, timeout: float) -> None:
        self.number += 1


async def test_the_first_requests_of_connections_have_a_share_of_each_turn() -> None:
    turns, served = Turns(), dict[int, list[int]]()
    server = RemotingServer(real_world(), "127.0.0.1", 0)

    def handle(connection: Connection, command: Command) -> Command:
        served.setdefault(command.code, []).append(turns.number)
        return response(command)

    server.register(FIRST, handle)
    server.register(LATER, handle)
    trio.lowlevel.add_instrument(turns)
    with contextlib.ExitStack() as stack:
        stack.callback(trio.lowlevel.remove_instrument, turns)
        async with trio.open_nursery() as nursery:
            _, port = await server.bind()
            nursery.start_soon(server.run)
            peers = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(COUNT)]
            with trio.fail_after(10):
                while len(server.connections) < COUNT:
                    await trio.lowlevel.checkpoint()
                for code in (FIRST, LATER):
                    for peer in peers:  # all of them before the loop has a turn
                        peer.sendall(encode(request(code)))
                    for peer in peers:
                        await trio.lowlevel.wait_readable(peer)
                        assert peer.recv(1000)
            nursery.cancel_scope.cancel()
    most = {code: max(numbers.count(number) for number in numbers) for code, numbers in served.items()}
    assert {FIRST: COUNT, LATER: COUNT} == {code: len(numbers) for code, numbers in served.items()}
    assert most[FIRST] <= NEWCOMERS
    assert most[LATER] > NEWCOMERS  # once they are there, they are served as they come
