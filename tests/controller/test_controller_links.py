"""What a member sends on one connection to another: in pieces, so that a slow network is not taken for a dead one."""

from __future__ import annotations

import random
from typing import Any, cast

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from understudy.controller.raft import links
from understudy.controller.raft.links import LinkOwner, Links
from understudy.controller.raft.messages import MAX_FRAME_BYTES, FrameReader, SnapshotChunk, decode_peer_message
from understudy.controller.raft.trust import Trust
from understudy.runtime.world import World
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import SimDisk
from understudy.testkit.sim.network import SimNetwork

CHUNK_BYTES = 1 << 16


class SlowStream:
    """Takes nothing at once and so many bytes a second."""

    peer = ("n1", 7000)

    def __init__(self, bytes_per_second: int) -> None:
        self.bytes_per_second = bytes_per_second
        self.received = bytearray()
        self.longest = 0

    async def receive_some(self, max_bytes: int) -> bytes:
        await trio.sleep_forever()
        raise AssertionError

    def send_nowait(self, buffers: object) -> int:
        return 0

    async def send_all(self, data: bytes) -> None:
        await trio.sleep(len(data) / self.bytes_per_second)
        self.longest = max(self.longest, len(data))
        self.received += data

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class Owner:
    """Hears of the link only."""

    def __init__(self) -> None:
        self.said: list[tuple[str, bool]] = []

    def link(self, peer: str, up: bool) -> None:
        self.said.append((peer, up))


async def test_a_snapshot_gets_through_a_network_that_needs_longer_for_it_than_for_any_message(
    autojump_clock: MockClock,
) -> None:
    source = random.Random(1)
    world = World(VirtualClock(), SimNetwork(source).host("n0"), SimDisk(source), source)
    owner, addresses = Owner(), {"n0": ("n0", 1), "n1": ("n1", 1)}
    trust = Trust(None, certified=False, open_to_all=True, source=source)
    member = Links(world, cast(LinkOwner, owner), "sim", "n0", addresses, "n0", None, trust)
    stream = SlowStream(bytes_per_second=500_000)
    chunks = 160  # 10 MiB: 21 seconds
    async with trio.open_nursery() as nursery:
        nursery.start_soon(member._send_until_broken, "n1", cast(Any, stream))
        await wait_all_tasks_blocked()
        for number in range(chunks):
            member.send(
                "n1", SnapshotChunk(1, 9, 9, 1, number * CHUNK_BYTES, chunks * CHUNK_BYTES, bytes(CHUNK_BYTES), 1)
            )
        await trio.sleep(60)
        assert owner.said == [("n1", True)]
        nursery.cancel_scope.cancel()
    reader = FrameReader(MAX_FRAME_BYTES)
    reader.feed(stream.received)
    offsets = []
    while (body := reader.next_body()) is not None:
        message = decode_peer_message(body)
        assert isinstance(message, SnapshotChunk)
        offsets.append(message.offset_bytes)
    assert offsets == [number * CHUNK_BYTES for number in range(chunks)]
    assert stream.longest < links.MAX_SENT_AT_ONCE_BYTES + MAX_FRAME_BYTES
