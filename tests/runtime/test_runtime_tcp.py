"""The real TCP stream: what a receive does with bytes that are there, with a peer that is gone, with a closed side."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from understudy.runtime.comeback import IdlePoll
from understudy.runtime.tcp import TcpNetwork, TcpStream
from understudy.testkit.turns import turns_beside


@asynccontextmanager
async def connected(
    idle_poll_s: float = 0.0, busy: Callable[[], bool] = bool
) -> AsyncIterator[tuple[TcpStream, TcpStream]]:
    network = TcpNetwork(idle_poll=IdlePoll(idle_poll_s, busy))
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


async def _turns(count: int) -> None:
    for _ in range(count):
        await trio.lowlevel.checkpoint()


async def _check_exchange(near: TcpStream, far: TcpStream) -> None:
    """Let *near* wait for an answer, after which a receive of *far* waits at once instead of looking first."""
    async with trio.open_nursery() as nursery:

        async def answer() -> None:
            assert b"ask" == await far.receive_some(10)
            await far.send_all(b"answer")

        nursery.start_soon(answer)
        await _turns(5)
        await near.send_all(b"ask")
        assert b"answer" == await near.receive_some(10)


async def test_a_peer_that_waited_for_answers_and_then_sends_much_is_heard_whole() -> None:
    async with connected() as (near, far), trio.open_nursery() as nursery:
        await _check_exchange(near, far)
        sent = bytes(range(256)) * 4096
        nursery.start_soon(near.send_all, sent)
        received = b""
        with trio.fail_after(30):
            while len(received) < len(sent):
                received += await far.receive_some(65536)
        assert sent == received


async def test_a_receive_on_a_stream_closed_after_an_exchange_says_so() -> None:
    async with connected() as (near, far):
        await _check_exchange(near, far)
        await far.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await far.receive_some(10)


async def test_who_looks_before_it_sleeps_hears_the_same() -> None:
    async with connected(idle_poll_s=0.0004) as (near, far):
        for _ in range(300):
            await _check_exchange(near, far)


async def test_while_a_stream_looks_others_get_their_turn_and_it_can_be_closed_or_cancelled() -> None:
    # given streams whose peers were quick, and much time to look for what comes next
    async with connected(idle_poll_s=60.0) as (near, far), connected(idle_poll_s=60.0) as (other_near, other_far):
        await _check_exchange(near, far)
        await _check_exchange(other_near, other_far)
        # when the receive of one is cancelled, and the other one is closed by its own side
        async with trio.open_nursery() as nursery:
            nursery.start_soon(far.receive_some, 10)
            await _turns(50)
            nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:

            async def receive() -> None:
                with pytest.raises(trio.ClosedResourceError):
                    await other_far.receive_some(10)

            nursery.start_soon(receive)
            await _turns(50)
            await other_far.aclose()
        # then the first one goes on
        with trio.fail_after(30):
            await _check_exchange(near, far)


async def test_nobody_looks_while_threads_work() -> None:
    works = False
    async with connected(idle_poll_s=60.0, busy=lambda: works) as (near, far):
        # given a receive that looks for the bytes of a quick peer
        await _check_exchange(near, far)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(far.receive_some, 10)
            await _turns(50)
            # when a thread begins to work, then it sleeps, and hears its peer all the same
            works = True
            with trio.fail_after(30):
                await trio.testing.wait_all_tasks_blocked()
                await near.send_all(b"more")


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

        # when they are taken one by one
        async def take() -> None:
            for _ in range(1000):
                assert b"x" == await far.receive_some(1)

        # then another task ran all the while
        assert await turns_beside(take) >= 200


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


class _Names(trio.abc.HostnameResolver):
    """A host file with one name."""

    def __init__(self, *addresses: tuple[socket.AddressFamily, str]) -> None:
        self.addresses = addresses

    async def getaddrinfo(
        self, host: object, port: object, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> Any:
        return [(family, socket.SOCK_STREAM, 6, "", (address, port)) for family, address in self.addresses]

    async def getnameinfo(self, sockaddr: object, flags: int) -> tuple[str, str]:
        raise OSError("no name for an address here")


@pytest.mark.parametrize(
    "addresses",
    [
        [(socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1")],  # as localhost stands in many a host file
        [(socket.AF_INET, "127.0.0.9"), (socket.AF_INET, "127.0.0.1")],  # nobody listens at the first
    ],
)
async def test_a_name_with_several_addresses_is_reached_at_the_one_where_somebody_listens(
    addresses: list[tuple[socket.AddressFamily, str]],
) -> None:
    network = TcpNetwork()
    listener = await network.listen("127.0.0.1", 0)
    before = trio.socket.set_custom_hostname_resolver(_Names(*addresses))
    try:
        near = await network.connect("name", listener.address[1], 5)
        assert ("127.0.0.1", listener.address[1]) == near.peer
        await near.aclose()
        # and a refusal says why
        await listener.aclose()
        with pytest.raises(ConnectionRefusedError, match="Connection refused"):
            await network.connect("name", listener.address[1], 5)
    finally:
        trio.socket.set_custom_hostname_resolver(before)


async def test_a_name_with_several_addresses_is_listened_at_in_its_first_of_ipv4() -> None:
    names = _Names((socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1"))
    before = trio.socket.set_custom_hostname_resolver(names)
    try:
        listener = await TcpNetwork().listen("name", 0)
    finally:
        trio.socket.set_custom_hostname_resolver(before)
    assert "127.0.0.1" == listener.address[0]
    await listener.aclose()


async def test_others_get_their_turn_after_each_large_receive() -> None:
    size, wanted = 256 * 1024, 40
    async with connected() as (near, far), trio.open_nursery() as nursery:

        async def take() -> None:
            large = 0
            while large < wanted:
                large += len(await far.receive_some(size)) == size

        nursery.start_soon(near.send_all, bytes(64 << 20))
        await trio.sleep(0.1)  # the system's buffers are full
        turns = await turns_beside(take)
        nursery.cancel_scope.cancel()
    assert turns >= wanted - 1
