"""Reading goes on while handlers wait, and up to the first bad frame."""

from __future__ import annotations

import random

import pytest
import trio
from test_remoting_connections import ECHO, SLOW, read_commands, serving, world_of
from trio.testing import MockClock

from understudy.remoting.client import open_client
from understudy.remoting.command import request
from understudy.remoting.frame import FrameError, FrameReader, encode
from understudy.remoting.limits import LaneLimits
from understudy.testkit.sim.network import SimNetwork


@pytest.mark.covers("R320")
async def test_a_slow_handler_stops_reading_neither_here_nor_on_other_connections(autojump_clock: MockClock) -> None:
    links = SimNetwork(random.Random(1))
    async with serving(world_of(links, "s")) as server:
        lane = server.lane("slow", LaneLimits(running=2, waiting=10, wait_seconds=100))
        async with open_client(world_of(links, "c")) as busy, open_client(world_of(links, "d")) as other:
            async with trio.open_nursery() as nursery:
                # given a connection whose requests occupy every handler of their kind, and more of them wait
                for _ in range(5):
                    nursery.start_soon(busy.invoke, "s:7000", request(SLOW, {"seconds": "30"}), 100_000)
                await trio.sleep(1)
                assert (2, 3) == (lane.running, lane.waiting)
                # then requests of other kinds are read and answered at once, here and on another connection
                began = trio.current_time()
                for client in (busy, other):
                    for number in range(3):
                        answer = await client.invoke("s:7000", request(ECHO, None, b"%d" % number), 1_000)
                        assert b"%d" % number == answer.body
                assert trio.current_time() - began < 0.5
                assert (2, 3) == (lane.running, lane.waiting)
            assert (0, 0) == (lane.running, lane.waiting)


async def test_whole_requests_before_a_bad_frame_are_answered_and_then_the_connection_ends(
    autojump_clock: MockClock,
) -> None:
    links = SimNetwork(random.Random(1))
    async with serving(world_of(links, "s")):
        stream = await links.host("c").connect("s", 7000, 1)
        good = [request(ECHO, None, b"%d" % number) for number in range(3)]
        await stream.send_all(b"".join(map(encode, good)) + b"\xff" * 20)
        assert [b"0", b"1", b"2"] == [answer.body for answer in await read_commands(stream, 3)]
        assert b"" == await stream.receive_some(100)


def test_a_reader_that_met_a_bad_frame_gives_what_was_whole_and_stays_broken() -> None:
    reader = FrameReader()
    whole = encode(request(ECHO, None, b"x"))
    assert [b"x"] == [command.body for command in reader.feed(whole + bytes(8))]
    assert "frame length 0 is too small" == str(reader.error)
    for _ in range(2):
        with pytest.raises(FrameError, match="too small"):
            reader.feed(whole)
