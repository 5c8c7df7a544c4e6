"""A led broker with messages in its log that nobody sees yet says how many they are, and how far it is with them."""

from __future__ import annotations

import random
import re

import pytest
import trio
from trio.testing import MockClock

from understudy.broker.hidden_messages import tell_hidden
from understudy.broker.role import Role
from understudy.format.record import encode_host
from understudy.runtime.background import open_background
from understudy.runtime.tcp import TcpNetwork
from understudy.runtime.world import World
from understudy.store.config import StoreConfig
from understudy.store.message_store import MessageStore
from understudy.testkit.led.group import BROKERS, led_group
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.sim.disk import SimDisk

LOGGER = "understudy.broker.role"
PRODUCER = encode_host("10.1.2.3", 40000)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was said of hidden messages, without names."""
    lines = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    return [
        re.sub(r' (broker|role)=("[^"]*"|\S+)', "", line) for line in lines if "messages" in line or "all of" in line
    ]


async def test_it_says_how_far_it_is_while_the_number_changes(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", LOGGER)
    clock = VirtualClock()
    world = World(clock, TcpNetwork(), SimDisk(random.Random(1), now_ms=clock.wall_ms), random.Random(1))
    store = await MessageStore.open(
        world, StoreConfig("/store", mapped_file_size_commit_log=16_384), ("127.0.0.1", 10911)
    )
    async with open_background() as nursery:
        nursery.start_soon(store.run)
        # given four messages of which nobody sees one
        store.set_confirmed(0)
        ends = []
        for number in range(4):
            done = store.append("Orders", 0, b"%d" % number, b"", 1, PRODUCER)
            ends.append(done.physical_offset + done.size_bytes)
        size = ends[0]
        nursery.start_soon(tell_hidden, store, clock, "broker", Role("SYNC_MASTER", 0))
        await trio.sleep(2.5)
        assert said(caplog) == [f"readers do not see all messages yet messages=4 bytes={4 * size}"]
        # when two of them are confirmed, others come, and then all
        store.set_confirmed(ends[1])
        store.append("Orders", 0, b"later", b"", 1, PRODUCER)
        await trio.sleep(3)
        store.set_confirmed(ends[3])
        await trio.sleep(2)
        # then that is said, once
        assert said(caplog)[1:] == [
            f"messages are being shown messages_left=2 of=4 bytes_left={2 * size}",
            "readers see all of them messages=4 seconds=6.0",
        ]
    await store.close()


def test_who_is_elected_with_hidden_messages_says_how_many(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", LOGGER)

    async def scenario(source: random.Random) -> None:
        async with led_group(source, {"allAckInSyncStateSet": "true"}) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            assert [await group.send(first, b"%d" % number) for number in range(5)] == [0] * 5
            # when all processes are killed before it is noted that everybody has what was sent
            for name in BROKERS:
                await group.kill(name)
            caplog.clear()
            for name in BROKERS:
                await group.start_broker(name)
            second = await group.ready(3)
            assert len(group.bodies(second)) == 5
            await trio.sleep(2)

    run_seed(scenario, 1)
    lines = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    begun = [line for line in lines if line.startswith("readers do not see all messages yet") and "SYNC_MASTER" in line]
    assert [line.endswith(" messages=5 bytes=1010") for line in begun] == [True]
    assert said(caplog).count("readers see all of them messages=5 seconds=1.0") == 3
