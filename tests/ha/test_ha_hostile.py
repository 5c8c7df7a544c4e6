"""The HA port under hostile peers: a slave is served beside them, and nothing of them is left."""

from __future__ import annotations

import random
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
from ha_rig import FILE, HaSettings, Log, master_of, slave_of, world_of
from switch_rig import SwitchValues, greet
from trio.testing import MockClock

from understudy.ha import wire
from understudy.ha.master import MOST_CONNECTIONS, HaMaster
from understudy.ha.switch.epoch_file import EpochFile
from understudy.ha.switch.epochs import Epochs
from understudy.ha.switch.frames import SlaveHandshake
from understudy.ha.switch.keeper import SyncStateKeeper
from understudy.runtime.background import open_background
from understudy.runtime.network import ByteStream
from understudy.testkit.sim.disk import SimDisk
from understudy.testkit.sim.network import SimNetwork

SILENCE_S = HaSettings().housekeeping_ms / 1000
HOSTILE = [
    b"",
    b"\x00",
    wire.report(0)[:7],
    wire.report(-1),
    wire.report(-(1 << 63)),
    wire.report((1 << 63) - 1),
    wire.report(1 << 40) * 1000,
    wire.report(0) * 5000,
    b"GET / HTTP/1.1\r\n\r\n",
    bytes.fromhex("160301020001000001fc0303") + bytes(300),
    struct.pack(">ihhq", 1, 0, 0, 7) * 1000,
    struct.pack(">ihhq", 1, 0, 0, -7),
    struct.pack(">ihhq", 1, 9, 9, 7),
    struct.pack(">ihhq", 1, 0, 0, 7)[:15],
    struct.pack(">iq", 2, 0) * 1000,
    struct.pack(">iq", 2, -1),
    struct.pack(">iq", 2, 1 << 62),
    b"".join(struct.pack(">ihhq", 1, 0, 0, number) for number in range(1000)),
]


@asynccontextmanager
async def led_master(network: SimNetwork, log: Log) -> AsyncIterator[tuple[HaMaster, SyncStateKeeper]]:
    """Run the master of a group that controllers lead."""
    world, disk = world_of(network, "m"), SimDisk(random.Random(1))
    disk.make_folder("/store")
    history = EpochFile(disk, "/store/epochs")
    history.epochs = Epochs.of([(1, 0)])
    keeper = SyncStateKeeper(world.clock, log, history, None, SwitchValues(), 1, None)
    master = HaMaster(world, log, HaSettings(file_bytes=FILE), "0.0.0.0", 10912, converse=keeper.converse)
    log.grown.append(master.log_grew)
    async with open_background() as nursery:
        await master.bind()
        nursery.start_soon(master.run)
        yield master, keeper


async def connected(network: SimNetwork, host: str) -> ByteStream:
    return await network.host(host).connect("m", 10912, 1)


async def is_closed(stream: ByteStream) -> bool:
    """Tell whether the master closes the connection before it could be for silence."""
    with trio.move_on_after(SILENCE_S / 2):
        try:
            while await stream.receive_some(1 << 16):
                continue
        except trio.BrokenResourceError:
            pass
        return True
    return False


async def test_idle_connections_shut_no_slave_out_and_are_bounded(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    data = random.Random(1).randbytes(20_000)
    ours, theirs = Log(data), Log(data[:100])
    async with master_of(network, ours) as master:
        # given far more connections of two hosts than there are seats, all of which say nothing
        silent = [await connected(network, f"idle{number % 2}") for number in range(10 * MOST_CONNECTIONS)]
        await trio.sleep(0.5)
        assert master.connection_count <= MOST_CONNECTIONS
        # when a slave comes, it is served at once
        async with slave_of(network, theirs):
            await trio.sleep(1)
            assert data == theirs.data
            # and more of them, from its own host, too, do not throw it out
            silent += [await connected(network, "s") for _ in range(2 * MOST_CONNECTIONS)]
            ours.append(b"more")
            await trio.sleep(0.5)
            assert (ours.data, 2) == (theirs.data, master.copies_of(len(ours.data)))
            assert master.connection_count <= MOST_CONNECTIONS
        # then the first of them are gone long before their silence is noticed
        assert await is_closed(silent[0])
        await trio.sleep(SILENCE_S + 1)
        assert 0 == master.connection_count


async def test_slaves_that_never_read_or_never_confirm_hold_nobody_up(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    ours, theirs = Log(b"x" * FILE), Log()
    whole = HaSettings(file_bytes=FILE, whole_log=True)
    async with master_of(network, ours, whole) as master, slave_of(network, theirs):
        for number in range(MOST_CONNECTIONS):
            stream = await connected(network, f"deaf{number % 3}")
            await stream.send_all(wire.report(0))
        await trio.sleep(1)
        for _ in range(100):
            ours.append(b"y" * 1000)
        await trio.sleep(1)
        assert ours.data == theirs.data
        # what they were sent and never confirmed is no copy
        assert 2 == master.copies_of(len(ours.data))
        assert 1 <= master.connection_count <= MOST_CONNECTIONS


async def test_connections_without_end_are_few_lines_in_the_log(
    network: SimNetwork, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with master_of(network, Log(b"x" * 1000)) as master:
        for _ in range(200):
            stream = await connected(network, "rude")
            await stream.send_all(wire.report(1 << 62))  # a slave that is ahead is refused
            await stream.aclose()
        await trio.sleep(1)
        assert 0 == master.connection_count
    lines = [record.getMessage() for record in caplog.records]
    for kind in ("slave connected", "slave refused", "slave gone"):
        assert 1 <= sum(line.startswith(kind) for line in lines) <= 10, kind


@pytest.mark.parametrize("led", [False, True], ids=["plain", "led"])
@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
async def test_whatever_a_peer_sends_the_next_one_is_served_and_nothing_is_left(
    network: SimNetwork, autojump_clock: MockClock, led: bool, data: bytes
) -> None:
    ours = Log(b"x" * 1000)
    keeper: SyncStateKeeper | None = None
    async with AsyncExitStack() as running:
        if led:
            master, keeper = await running.enter_async_context(led_master(network, ours))
        else:
            master = await running.enter_async_context(master_of(network, ours))
        # given peers that send it whole, in pieces, and leave in the middle
        for number, size in enumerate((len(data) or 1, 5, 5)):
            stream = await connected(network, f"h{number}")
            try:
                for at in range(0, min(len(data), 1000), size):
                    await stream.send_all(data[at : at + size])
                if number < 2:
                    await trio.sleep(0.1)
            except trio.BrokenResourceError:
                pass
            await stream.aclose()
        await trio.sleep(SILENCE_S + 2)
        # then nothing of them is left
        assert (0, 1) == (master.connection_count, master.in_sync_count())
        if keeper is not None:
            assert [] == list(keeper.followers)
            assert frozenset({1}) == keeper.state.latest
        # and the next one is served
        stream = await connected(network, "next")
        if led:
            await greet(stream, 2, 500)
        else:
            await stream.send_all(wire.report(500))
        received = b""
        with trio.fail_after(5):
            while not received.endswith(b"x" * 500):
                received += await stream.receive_some(1 << 16)
        await stream.aclose()


async def test_a_slave_that_greets_as_another_one_is_refused_and_leaves_no_ghost(
    network: SimNetwork, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with led_master(network, Log(b"x" * 1000)) as (_, keeper):
        stream = await connected(network, "s")
        await stream.send_all(SlaveHandshake(7).to_bytes() * 3)
        await trio.sleep(0.1)
        assert [7] == list(keeper.followers)
        await stream.send_all(SlaveHandshake(8).to_bytes())
        assert await is_closed(stream)
        assert [] == list(keeper.followers)
        assert "broker id 7 greets anew as another one" in caplog.text
