"""The cable that a test can pull: what passes, what waits, and what ends."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from understudy.runtime.memory_stream import MemoryStream, memory_connection
from understudy.runtime.network import ByteStream
from understudy.testkit.cut_network import Cable, CutNetwork, CutStream


class OneConnection:
    """A network on which everybody gets the same connection."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    async def connect(self, host: str, port: int, timeout_seconds: float) -> ByteStream:
        await trio.lowlevel.checkpoint()
        return self._stream

    async def listen(self, host: str, port: int) -> None:
        raise AssertionError("nobody listens here")

    async def resolve(self, host: str, timeout_seconds: float) -> list[str]:
        await trio.lowlevel.checkpoint()
        return [host]


@pytest.fixture
def cable() -> Cable:
    return Cable()


@pytest.fixture
def ends(cable: Cable) -> tuple[CutStream, MemoryStream]:
    ours, theirs = memory_connection(("a", 1), ("b", 2))
    return CutStream(ours, cable), theirs


async def test_a_whole_cable_passes_everything(ends: tuple[CutStream, MemoryStream]) -> None:
    ours, theirs = ends
    assert ours.send_nowait([b"to ", b"you"]) == 6
    await ours.send_all(b"!")
    assert await theirs.receive_some(100) == b"to you!"
    await theirs.send_all(b"to me")
    assert (await ours.receive_some(3), await ours.receive_some(100)) == (b"to ", b"me")
    await theirs.aclose()
    assert await ours.receive_some(10) == b""


async def test_what_is_sent_while_it_is_cut_arrives_when_it_is_mended(
    ends: tuple[CutStream, MemoryStream], cable: Cable, autojump_clock: trio.testing.MockClock
) -> None:
    ours, theirs = ends
    got: list[bytes] = []

    async def receive() -> None:
        got.append(await ours.receive_some(100))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        cable.cut()
        assert ours.send_nowait([b"unheard"]) == 0
        nursery.start_soon(ours.send_all, b"late")
        await theirs.send_all(b"unseen")
        await trio.sleep(100)
        assert got == []
        with trio.move_on_after(1) as scope:
            await theirs.receive_some(100)
        assert scope.cancelled_caught
        cable.mend()
    assert got == [b"unseen"]
    assert await theirs.receive_some(100) == b"late"


async def test_nothing_is_lost_with_somebody_who_is_cancelled_while_it_is_cut(
    ends: tuple[CutStream, MemoryStream], cable: Cable, autojump_clock: trio.testing.MockClock
) -> None:
    ours, theirs = ends
    cable.cut()
    await theirs.send_all(b"kept")
    with trio.move_on_after(1):
        await ours.receive_some(100)
    cable.mend()
    assert await ours.receive_some(100) == b"kept"


async def test_an_end_is_seen_by_the_peer_only_when_it_is_mended(
    ends: tuple[CutStream, MemoryStream], cable: Cable, autojump_clock: trio.testing.MockClock
) -> None:
    ours, theirs = ends

    async def receive() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await ours.receive_some(100)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        cable.cut()
        await trio.testing.wait_all_tasks_blocked()
        await ours.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await ours.send_all(b"x")
    with trio.move_on_after(5) as scope:
        await theirs.receive_some(100)
    assert scope.cancelled_caught
    cable.mend()
    assert await theirs.receive_some(100) == b""


async def test_nobody_is_reached_while_it_is_cut(cable: Cable, autojump_clock: trio.testing.MockClock) -> None:
    network = CutNetwork(OneConnection(memory_connection(("a", 1), ("b", 2))[0]), cable)  # type: ignore[arg-type]
    cable.cut()
    with pytest.raises(TimeoutError):
        await network.connect("b", 2, 3.0)
    with pytest.raises(TimeoutError):
        await network.resolve("b", 3.0)
    cable.mend()
    assert (await network.connect("b", 2, 3.0)).peer == ("b", 2)
    assert await network.resolve("b", 3.0) == ["b"]
