"""How many connections wake in one turn of the event loop."""

from __future__ import annotations

import socket

import pytest
import trio
import trio.testing

from understudy.runtime.wake_limit import wake_limit

PAIRS = 100


class Turns(trio.abc.Instrument):
    """Counts turns that found something to do."""

    def __init__(self) -> None:
        self.count = 0

    def after_io_wait(self, timeout: float) -> None:
        self.count += 1


async def woken_by_turn(turns: Turns) -> list[int]:
    """Have many sockets readable at once; return how many tasks woke in each turn."""
    pairs = [socket.socketpair() for _ in range(PAIRS)]
    found: dict[int, int] = {}

    async def wait(side: socket.socket) -> None:
        await trio.lowlevel.wait_readable(side)
        found[turns.count] = found.get(turns.count, 0) + 1

    async with trio.open_nursery() as nursery:
        for side, _ in pairs:
            nursery.start_soon(wait, side)
        await trio.testing.wait_all_tasks_blocked()
        for _, other in pairs:
            other.close()  # as thousands of clients do
    for side, _ in pairs:
        side.close()
    return list(found.values())


@pytest.mark.parametrize("at_once", [1, 7, 64])
def test_no_more_than_so_many_connections_wake_in_a_turn_and_all_of_them_do(at_once: int) -> None:
    turns = Turns()
    with wake_limit(at_once) as limited:
        woken = trio.run(woken_by_turn, turns, instruments=[turns])
    assert limited, "this version of trio asks the system in another way: thousands of clients can hold a turn"
    assert sum(woken) == PAIRS
    assert max(woken) <= at_once


def test_without_the_limit_they_wake_all_at_once() -> None:
    turns = Turns()
    assert trio.run(woken_by_turn, turns, instruments=[turns]) == [PAIRS]
