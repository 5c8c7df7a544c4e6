"""Where a consumer's progress is told: to whoever serves the queue, and to each no more often than it moves."""

from __future__ import annotations

import random
from typing import Any, cast

from understudy.mqclient.errors import ClientError
from understudy.mqclient.offsets import BrokerOffsets, FileOffsets
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.route import BrokerAddresses
from understudy.mqclient.session import Session
from understudy.runtime.disk import Disk
from understudy.testkit.sim.disk import SimDisk

QUEUE = MessageQueue("orders", "g0", 0)


class PlayedSession:
    """Knows one broker group, and notes what is committed where."""

    def __init__(self) -> None:
        self.addresses = {0: "master:1"}
        self.told: list[tuple[str, object]] = []
        self.down = False

    def broker(self, name: str) -> BrokerAddresses:
        return BrokerAddresses(name, "c", self.addresses)

    async def call(self, address: str, code: int, ext: dict[str, Any], **_: object) -> None:
        if self.down:
            raise ClientError("no answer")
        self.told.append((address, ext["commitOffset"]))


async def test_a_slave_that_serves_now_is_told_what_only_the_master_knew() -> None:
    session = PlayedSession()
    offsets = BrokerOffsets(cast(Session, session), "readers")
    offsets.update(QUEUE, 7)
    await offsets.persist([QUEUE])
    await offsets.persist([QUEUE])
    assert session.told == [("master:1", 7)]
    # when the route shows a slave in the master's place, and the master again
    session.addresses = {0: "slave:1"}
    await offsets.persist([QUEUE])
    session.addresses = {0: "master:1"}
    await offsets.persist([QUEUE])
    assert session.told == [("master:1", 7), ("slave:1", 7), ("master:1", 7)]


async def test_what_was_not_stored_is_told_again_and_what_was_given_back_is_forgotten() -> None:
    session = PlayedSession()
    offsets = BrokerOffsets(cast(Session, session), "readers")
    offsets.update(QUEUE, 7)
    session.down = True
    await offsets.persist([QUEUE])
    session.down = False
    await offsets.persist([QUEUE])
    offsets.forget(QUEUE)
    await offsets.persist([QUEUE])
    # whoever gets the queue once more tells where it begins
    offsets.update(QUEUE, 7)
    await offsets.persist([QUEUE])
    assert session.told == [("master:1", 7)] * 2


async def test_a_file_is_written_when_an_offset_has_moved() -> None:
    disk = SimDisk(random.Random(1), now_ms=lambda: 0, sync_seconds=0.0)
    offsets = FileOffsets(cast(Disk, disk), "/client")
    await offsets.load()
    offsets.update(QUEUE, 7)
    await offsets.persist([QUEUE])
    disk.remove("/client/offsets.json")
    await offsets.persist([QUEUE])
    assert not disk.exists("/client/offsets.json")
    offsets.update(QUEUE, 8)
    await offsets.persist([QUEUE])
    again = FileOffsets(cast(Disk, disk), "/client")
    await again.load()
    assert await again.stored(QUEUE) == 8
