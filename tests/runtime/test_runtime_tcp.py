"""The real TCP stream: what a receive does with bytes that are there, with a peer that is gone, with a closed side."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from understudy.runtime.network import TcpNetwork, TcpStream


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[TcpStream, TcpStream]]:
    network = TcpNetwork()
    listener = await network.listen("127.0.0.1", 0)
    near = await network.connect(*listener.address, 5)
    far = await listener.accept()
    await listener.aclose()
    try:
        yield near, far
    finally:
        await near.aclose()
        await far.aclose()


async def test_bytes_arrive_in_order_and_the_end_is_an_empty_receive() -> None:
    async with connected() as (near, far):
        await near.send_all(b"one")
        await near.send_all(b"two")
        received = b""
        while len(received) < 6:
            received += await far.receive_some(2)
        await near.aclose()
        assert (b"onetwo", b"") == (received, await far.receive_some(10))


async def test_a_receive_that_waits_ends_when_its_own_side_closes() -> None:
    async with connected() as (_, far), trio.open_nursery() as nursery:

        async def receive() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await far.receive_some(10)

        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        await far.aclose()


async def test_a_receive_on_a_closed_stream_says_so() -> None:
    async with connected() as (_, far):
        await far.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await far.receive_some(10)


async def test_a_peer_that_resets_breaks_the_receive() -> None:
    async with connected() as (near, far):
        # given unread bytes at the peer, which make its close a reset
        await far.send_all(b"unread")
        await trio.testing.wait_all_tasks_blocked()
        await near.aclose()
        with pytest.raises(trio.BrokenResourceError):
            await far.receive_some(10)


async def test_a_peer_that_never_stops_leaves_others_their_turn() -> None:
    # given more bytes than one receive takes
    async with connected() as (near, far):
        await near.send_all(b"x" * 1000)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        # when they are taken one by one
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            for _ in range(1000):
                assert b"x" == await far.receive_some(1)
            nursery.cancel_scope.cancel()
        # then another task ran all the while
        assert turns >= 200


async def test_cancelling_loses_no_bytes() -> None:
    async with connected() as (near, far):
        await near.send_all(b"abcdef")
        received = b""
        for _ in range(20):
            with trio.CancelScope() as scope:
                scope.cancel()
                received += await far.receive_some(1)
        with trio.move_on_after(5):
            while len(received) < 6:
                received += await far.receive_some(1)
        assert b"abcdef" == received
