"""Reading goes on while handlers wait."""

from __future__ import annotations

import random

import pytest
import trio
from test_remoting_connections import ECHO, SLOW, serving, world_of
from trio.testing import MockClock

from understudy.remoting.client import open_client
from understudy.remoting.command import request
from understudy.remoting.limits import LaneLimits
from understudy.testkit.sim_network import SimNetwork


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
