"""Replicas of a group in controller mode over an in-memory network, and a controller that the test plays."""

from __future__ import annotations

import math
import random

import attrs
import trio
from ha_rig import FILE, HaSettings, Log, world_of

from understudy.ha.master import HaMaster
from understudy.ha.switch.epoch_file import EpochFile
from understudy.ha.switch.frames import Report, SlaveHandshake
from understudy.ha.switch.keeper import SyncStateKeeper
from understudy.ha.switch.slave import SwitchSlave
from understudy.runtime.network import ByteStream
from understudy.testkit.sim.disk import SimDisk
from understudy.testkit.sim.network import SimNetwork

PORT = 10912
LOOK_SECONDS = 1.0


@attrs.define
class SwitchValues:
    """Settings that stand by themselves; mutable, so that a change is seen at once."""

    all_must_ack: bool = False
    patience_s: float = 15.0
    last_file_only: bool = False
    learner: bool = False
    sync_flush: bool = False
    copies: int = 1
    trust_s: float = math.inf
    asked_s: float = 10.0


class DurableLog(Log):
    """A log of which everything is durable at once."""

    confirmed_before = 0
    """Up to where readers have seen it, in bytes."""

    @property
    def disk_failed(self) -> bool:
        return False

    @property
    def flushed_offset(self) -> int:
        return self.max_physical_offset

    async def flush(self) -> bool:
        return True

    async def wait_flushed(self, offset: int, timeout_ms: int) -> bool:
        return True


class Controller:
    """Keeps the sync-state set as the real one does: a change counts only if it names the set it was made from."""

    def __init__(self) -> None:
        self.epoch = 0
        self.master = 0
        self.members: frozenset[int] = frozenset()
        self.set_epoch = 0

    def elect(self, broker_id: int) -> None:
        self.epoch += 1
        self.set_epoch += 1
        self.master, self.members = broker_id, frozenset({broker_id})

    def alter(self, broker_id: int, epoch: int, members: frozenset[int], set_epoch: int) -> bool:
        if (broker_id, epoch, set_epoch) != (self.master, self.epoch, self.set_epoch):
            return False
        self.members, self.set_epoch = members, set_epoch + 1
        return True


class Replica:
    """One broker's half of replication: log, history, and the role it has now."""

    def __init__(self, network: SimNetwork, broker_id: int, values: SwitchValues, chance: random.Random) -> None:
        self.id = broker_id
        self.host = f"r{broker_id}"
        self.network = network
        self.values = values
        self.log = DurableLog()
        self.disk = SimDisk(random.Random(broker_id))
        self.disk.make_folder("/store")
        self.history = EpochFile(self.disk, "/store/epochs")
        self.chance = chance
        self.settings = HaSettings(
            file_bytes=FILE, batch_bytes=700, retry_ms=300, heartbeat_ms=1000, housekeeping_ms=3000
        )
        self.confirmed = 0
        self.keeper: SyncStateKeeper | None = None
        self.slave: SwitchSlave | None = None
        self._role: trio.CancelScope | None = None
        self._ended = trio.Event()

    async def stop(self) -> None:
        """End the role; log and history stay."""
        if self._role is not None:
            self._role.cancel()
            await self._ended.wait()
        self._ended = trio.Event()
        self.keeper = self.slave = self._role = None
        self.log.grown.clear()

    async def lead(self, nursery: trio.Nursery, controller: Controller) -> None:
        """Become master in the controller's epoch."""
        await self.stop()
        epoch = controller.epoch
        end = self.log.max_physical_offset
        await self.history.save(self.history.epochs.within(end).begun(epoch, end))
        world = world_of(self.network, self.host)
        keeper = SyncStateKeeper(world.clock, self.log, self.history, None, self.values, self.id, self.confirmed)
        keeper.confirm_changed.append(self._confirm)
        master = HaMaster(world, self.log, self.settings, "0.0.0.0", PORT, converse=keeper.converse)
        self.log.grown.append(master.log_grew)
        self.keeper = keeper
        keeper.accepted(controller.members, controller.set_epoch)
        self._role = trio.CancelScope()
        nursery.start_soon(self._run_master, self._role, keeper, master, controller, epoch)

    async def _run_master(
        self, role: trio.CancelScope, keeper: SyncStateKeeper, master: HaMaster, controller: Controller, epoch: int
    ) -> None:
        asked: list[frozenset[int]] = []
        keeper.wanted.append(asked.append)
        with role:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(master.run)
                while True:
                    await trio.sleep(LOOK_SECONDS * self.chance.random())
                    members = asked.pop(0) if asked else keeper.look()
                    set_epoch = keeper.state.set_epoch
                    if members == keeper.state.accepted:
                        continue
                    question = keeper.leaves(keeper.asking(members, set_epoch))
                    if question is None:
                        continue
                    done = controller.alter(self.id, epoch, members, set_epoch)
                    if not done:
                        keeper.refused(question)
                    await trio.sleep(self.chance.random() * 0.2)
                    if done and self.chance.random() < 0.8:  # else the answer is lost
                        keeper.accepted(members, set_epoch + 1)
                    elif done:
                        await trio.sleep(1)
                        keeper.accepted(controller.members, controller.set_epoch)  # the next poll
        self._ended.set()

    async def follow(self, nursery: trio.Nursery, master: int) -> None:
        """Become slave of *master*."""
        await self.stop()
        world = world_of(self.network, self.host)
        self.slave = SwitchSlave(world, self.log, self.settings, self.history, self.values, self.id)
        self.slave.confirm_changed.append(self._confirm_as_slave)
        self.slave.set_master(f"r{master}:{PORT}")
        self._role = trio.CancelScope()
        nursery.start_soon(self._run_slave, self._role, self.slave)

    async def _run_slave(self, role: trio.CancelScope, slave: SwitchSlave) -> None:
        with role:
            await slave.run()
        self._ended.set()

    def log_epoch(self) -> int:
        """Return the newest epoch that has a byte in the log."""
        return self.history.epochs.cut_at(self.log.max_physical_offset).last_epoch

    def _confirm(self, offset: int | None) -> None:
        self.confirmed = self.log.confirmed_before = self.log.max_physical_offset if offset is None else offset

    def _confirm_as_slave(self, offset: int) -> None:
        self.confirmed = max(self.confirmed, min(offset, self.log.max_physical_offset))
        self.log.confirmed_before = self.confirmed


async def elect(nursery: trio.Nursery, controller: Controller, replicas: dict[int, Replica], master: int) -> Replica:
    """Have *master* elected and everybody told."""
    controller.elect(master)
    for replica in replicas.values():
        if replica.id != master:
            await replica.follow(nursery, master)
    await replicas[master].lead(nursery, controller)
    return replicas[master]


async def greet(stream: ByteStream, broker_id: int, offset: int = 0) -> bytes:
    """Greet a master as a slave whose log ends at *offset*; return what it answers."""
    await stream.send_all(SlaveHandshake(broker_id).to_bytes())
    answer = await stream.receive_some(10_000)
    await stream.send_all(Report(offset).to_bytes())
    return answer
