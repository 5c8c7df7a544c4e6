"""A producer of half messages before a broker without a network."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

from broker_rig import NoNetwork, Rig, open_rig, properties

from understudy.format.record import Record
from understudy.remoting.command import Command
from understudy.runtime.world import World
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import SimDisk

HALF, OPS = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
FOLDER = "/store"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
TOPIC, GROUP = "T", "pg"
COMMIT, ROLLBACK, UNKNOWN = "8", "12", "0"


class Producer:
    """Sends half messages, is asked about them, and decides."""

    def __init__(self, rig: Rig, clock: VirtualClock) -> None:
        self.rig = rig
        self.clock = clock

    def beat(self, group: str = GROUP) -> None:
        """Tell the broker that this producer lives."""
        body = {"clientID": "c1", "consumerDataSet": [], "producerDataSet": [{"groupName": group}]}
        assert self.rig.ask(34, None, json.dumps(body).encode()).code == 0

    def prepare(self, key: str, queue_id: int = 0, body: bytes = b"half", **pairs: str) -> Record:
        """Send a half message; return its record."""
        header = {"f": "4", "g": str(self.clock.wall_ms())}
        text = properties(TRAN_MSG="true", PGROUP=GROUP, UNIQ_KEY=key, **pairs)
        answer = self.rig.send(TOPIC, body, text, queue_id, header=header)
        assert (answer.code, answer.remark) == (0, None)
        return self.rig.stored(HALF)[-1]

    def decide(self, half: Record, choice: str, **more: str) -> Command:
        """Decide about *half*; return the answer."""
        return self.rig.ask(37, decision(half, choice, **more))

    def checks(self) -> list[Command]:
        """Return the questions since the last call."""
        asked = [each for each in self.rig.peer.received if each.code == 39]
        self.rig.peer.received.clear()
        return asked

    def delivered(self, queue_id: int = 0) -> list[str]:
        """Return the unique keys of what consumers can read."""
        return [each.properties["UNIQ_KEY"] for each in self.rig.stored(TOPIC, queue_id)]


def decision(half: Record, choice: str, **more: str) -> dict[str, str]:
    return {
        "producerGroup": GROUP,
        "tranStateTableOffset": str(half.queue_offset),
        "commitLogOffset": str(half.physical_offset),
        "commitOrRollback": choice,
        **more,
    }


def killed(disk: SimDisk) -> SimDisk:
    """Return *disk* as it would be if the process had been killed now; the process itself may go on with its own."""
    left = copy.copy(disk)
    left.locks, left._folders, left._platter_folders = set(), set(disk._folders), set(disk._platter_folders)
    left.kill_process()
    return left


@asynccontextmanager
async def open_producer(
    disk: SimDisk, keys: dict[str, str] | None = None, clock: VirtualClock | None = None
) -> AsyncIterator[Producer]:
    """Run a broker in virtual time whose half messages are known, with a producer that lives."""
    clock = clock or VirtualClock()
    world = World(clock, cast(Any, NoNetwork()), disk, Random(7))
    async with open_rig(FOLDER, keys, world=world) as rig:
        await rig.broker.transactions.opened.wait()
        producer = Producer(rig, clock)
        producer.beat()
        yield producer
