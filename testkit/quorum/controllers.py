"""Whole controllers with stub brokers on a virtual clock and a faulty network, with checkers.

Three production controllers (quorum, API, failover, notifications) and stub brokers on hosts of their own. Checked at
every moment, from what any controller ever applied:

* two masters in one epoch of a group
* a master elected from outside the sync state set while unclean election is off
* epochs that go back
* two leaders in one term
* at the end: controllers that differ, or a group whose in-sync brokers live and that has no master
"""

from __future__ import annotations

import random
from collections import Counter

import attrs
import trio

from understudy.controller.commands import (
    AlterSyncStateSet,
    Command,
    ElectMaster,
    Outcome,
    decode_outcome,
    read_command,
)
from understudy.controller.configuration import ControllerConfig
from understudy.controller.group import Group
from understudy.controller.metadata import Metadata
from understudy.controller.raft.errors import FatalError
from understudy.controller.server import Controller
from understudy.runtime.world import World
from understudy.testkit.quorum.settings import API_PORT, member_settings
from understudy.testkit.quorum.simulation import give_secret
from understudy.testkit.quorum.stub_broker import StubBroker, StubSettings
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.connection import LinkQuality
from understudy.testkit.sim.determinism import Trace
from understudy.testkit.sim.disk import SimDisk
from understudy.testkit.sim.network import SimNetwork

BROKER_PORT = 10911


@attrs.define
class ControllersResult:
    """What one seed showed."""

    seed: int
    violations: list[str] = attrs.field(factory=list)
    counts: Counter[str] = attrs.field(factory=Counter)
    digest: str = ""
    newest: list[str] = attrs.field(factory=list)


class WatchedMetadata(Metadata):
    """The production state machine with a checker behind every command."""

    def __init__(self, cluster: SimControllers) -> None:
        super().__init__()
        self._cluster = cluster

    def apply(self, index: int, now_ms: int, features: int, payload: bytes) -> bytes:
        command = read_command(payload)
        before = self.groups.get(command.broker_name)
        former = None
        if before is not None:
            former = (before.master_id, before.master_epoch, before.set_epoch, list(before.sync_state_set))
        result = super().apply(index, now_ms, features, payload)
        self._cluster.check(index, command, former, self, decode_outcome.decode(result))
        return result

    def restore(self, data: bytes) -> None:
        super().restore(data)
        for group in self.groups.values():
            self._cluster.check_master(group)


class ControllerHost:
    """One host with one controller."""

    def __init__(self, cluster: SimControllers, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.source = random.Random(cluster.source.getrandbits(64))
        self.disk = SimDisk(self.source, sync_seconds=0.0001, spread_seconds=0.001)
        self.world = World(VirtualClock(), cluster.network.host(name), self.disk, self.source)
        self.controller: Controller | None = None
        self._scope = trio.CancelScope()
        self._gone = trio.Event()

    def start(self) -> None:
        """Start the process."""
        give_secret(self.disk)
        controller = Controller(self.world, self.cluster.config(self.name))
        metadata = WatchedMetadata(self.cluster)
        controller.metadata = metadata
        controller.member.state.machine = metadata
        self.controller = controller
        self._scope, self._gone = trio.CancelScope(), trio.Event()
        self.cluster.nursery.start_soon(self._run, controller, self._scope, self._gone)

    async def _run(self, controller: Controller, scope: trio.CancelScope, gone: trio.Event) -> None:
        try:
            with scope:
                await controller.run()
        except* FatalError as errors:
            self.cluster.violation(f"{self.name} stopped: {errors.exceptions[0]}")
        finally:
            self.controller = None
            gone.set()

    async def kill(self, *, power: bool) -> None:
        """End the process, with *power* the host's power too."""
        if power:
            self.cluster.network.power_off(self.name)
        else:
            self.cluster.network.kill(self.name)
        self._scope.cancel()
        await self._gone.wait()
        if power:
            self.disk.lose_power()
            self.cluster.network.power_on(self.name)
        else:
            self.disk.kill_process()

    @property
    def leads(self) -> bool:
        return self.controller is not None and self.controller.member.leads()


class BrokerHost:
    """One host with one stub broker; its id outlives the process, as the identity file does."""

    def __init__(self, cluster: SimControllers, group: str, number: int) -> None:
        self.cluster = cluster
        self.name = f"{group}-{number}"
        source = random.Random(cluster.source.getrandbits(64))
        self.world = World(VirtualClock(), cluster.network.host(self.name), SimDisk(source), source)
        self.settings = StubSettings(
            "C",
            group,
            self.name,
            BROKER_PORT,
            tuple(f"{name}:{API_PORT}" for name in cluster.names),
            f"{self.name}:{BROKER_PORT};1",
        )
        self.broker: StubBroker | None = None
        self.broker_id: int | None = None
        self._scope = trio.CancelScope()
        self._gone = trio.Event()

    def start(self) -> None:
        """Start the process."""
        self.broker = StubBroker(self.world, self.settings, self.broker_id)
        self._scope, self._gone = trio.CancelScope(), trio.Event()
        self.cluster.nursery.start_soon(self._run, self.broker, self._scope, self._gone)

    async def _run(self, broker: StubBroker, scope: trio.CancelScope, gone: trio.Event) -> None:
        try:
            with scope:
                await broker.run()
        finally:
            self.broker_id = broker.broker_id
            self.broker = None
            gone.set()

    async def kill(self) -> None:
        """End the process."""
        self.cluster.network.kill(self.name)
        self._scope.cancel()
        await self._gone.wait()


class SimControllers:
    """A simulated controller group with its brokers.

    Args:
        source: everything is drawn from it.
        nursery: where hosts run.
        result: where violations go.
        groups: number of brokers per group name.
        size: number of controllers.
        quality: of all links.
    """

    def __init__(
        self,
        source: random.Random,
        nursery: trio.Nursery,
        result: ControllersResult,
        groups: dict[str, int],
        size: int = 3,
        quality: LinkQuality | None = None,
    ) -> None:
        self.source = source
        self.nursery = nursery
        self.result = result
        self.trace = Trace()
        self.unclean = False
        self.masters: dict[tuple[str, int], int | None] = {}
        self.applied: dict[int, tuple[str, int | None, int]] = {}
        self.network = SimNetwork(random.Random(source.getrandbits(64)), quality)
        self.names = [f"n{index}" for index in range(size)]
        self.controllers = {name: ControllerHost(self, name) for name in self.names}
        self.brokers = {
            f"{group}-{number}": BrokerHost(self, group, number)
            for group, count in groups.items()
            for number in range(1, count + 1)
        }

    def config(self, name: str) -> ControllerConfig:
        """Return the settings of one controller."""
        return member_settings(name, {each: each for each in self.names}, unclean=self.unclean)

    def start(self) -> None:
        """Start everything."""
        for controller in self.controllers.values():
            controller.start()
        for broker in self.brokers.values():
            broker.start()

    def violation(self, text: str) -> None:
        self.result.violations.append(f"at {trio.current_time():.3f} s: {text}")

    def check(
        self,
        index: int,
        command: Command,
        former: tuple[int | None, int, int, list[int]] | None,
        metadata: Metadata,
        outcome: Outcome,
    ) -> None:
        """Look at what one command did on one controller.

        Args:
            index: of the log entry.
            command: that was applied.
            former: master id, its epoch, epoch of the set and the set itself before the command; ``None`` for a new
                group.
            metadata: the controller's facts after it.
            outcome: what came of it.
        """
        name = command.broker_name
        group = metadata.groups.get(name)
        if group is None:
            return
        entry = (name, group.master_id, group.master_epoch)
        if self.applied.setdefault(index, entry) != entry:
            self.violation(f"log entry {index} gave {entry} here and {self.applied[index]} elsewhere")
        self.check_master(group)
        if former is None:
            return
        if group.master_epoch < former[1] or group.set_epoch < former[2]:
            self.violation(f"epochs of {name} went back")
        if isinstance(command, ElectMaster) and outcome.code == 0:
            self.result.counts["elections applied"] += 1
            if former[1] > 0 and not self.unclean and group.master_id not in former[3]:
                self.violation(f"{name}: master {group.master_id} comes from outside the set {former[3]}")
        if isinstance(command, AlterSyncStateSet) and outcome.code == 0:
            self.result.counts["set changes applied"] += 1

    def check_master(self, group: Group) -> None:
        """Look whether *group* had another master in this epoch, here or elsewhere."""
        if group.master_id is not None:
            name, epoch = group.broker_name, group.master_epoch
            first = self.masters.setdefault((name, epoch), group.master_id)
            if first != group.master_id:
                self.violation(f"two masters in epoch {epoch} of {name}: {first} and {group.master_id}")

    def active(self) -> ControllerHost | None:
        """Return the controller that leads, if exactly one believes so."""
        leading = [host for host in self.controllers.values() if host.leads]
        return leading[0] if len(leading) == 1 else None

    async def wait_active(self, timeout_seconds: float = 10) -> ControllerHost:
        """Wait for one active controller. Raises ``trio.TooSlowError``."""
        with trio.fail_after(timeout_seconds):
            while True:
                host = self.active()
                if host is not None:
                    return host
                await trio.sleep(0.02)

    def metadata(self) -> Metadata | None:
        """Return the metadata of the active controller."""
        host = self.active()
        return None if host is None or host.controller is None else host.controller.metadata

    async def wait_in_sync(self, group: str, count: int, timeout_seconds: float = 30) -> None:
        """Wait until *group* has a master and *count* brokers in its set. Raises ``trio.TooSlowError``."""
        with trio.fail_after(timeout_seconds):
            while True:
                metadata = self.metadata()
                facts = None if metadata is None else metadata.groups.get(group)
                if facts is not None and facts.master_id is not None and len(facts.sync_state_set) == count:
                    return
                await trio.sleep(0.02)

    def master_host(self, group: str) -> BrokerHost:
        """Return the host of the group's master, as the active controller has it."""
        metadata = self.metadata()
        address = None if metadata is None else metadata.groups[group].master_address()
        for host in self.brokers.values():
            if host.settings.address == address:
                return host
        raise LookupError(f"group {group} has no master")
