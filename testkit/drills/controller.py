"""A controller drill on this machine: kills the active controller, then a broker master, then the majority.

    understudy drill controller [--java LAUNCHER] [--controllers java] [--keep]
    understudy drill controller --brokers ours|java|mixed|mixed-java [--clients java|grpc] [--keep]
    understudy drill controller --brokers mixed --elections 10 [--verify]

Three ``mqcontroller`` processes and one group of two brokers: real Java brokers when a launcher for them is given or
found in the checkout, stub brokers otherwise. Prints who decided what, why, and how long after the fault; TOLD is when
the new master's notification arrived there. With ``--controllers java`` the real controllers are played instead, so
that the times can be compared.

With ``--brokers`` a group of three loses its master again and again under traffic, or has masters elected by an
operator (:mod:`.led`); ``--clients`` alone means ``--brokers ours``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import trio

from understudy.controller.requests import EXPLAIN_MASTER, QUORUM_FACTS
from understudy.format.json_dialect import loads
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import RemotingError
from understudy.runtime.world import World, real_world
from understudy.testkit.drills.controller_processes import (
    Processes,
    controller_settings,
    find_launcher,
    in_folder,
    java_broker_settings,
    properties,
)
from understudy.testkit.drills.request_relay import RELAYED_HOST, Relays
from understudy.testkit.drills.ring_processes import DrillError
from understudy.testkit.drills.traffic_clients import CLIENTS
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.quorum.stub_broker import StubBroker, StubSettings

GROUP = "broker-a"
MEMBERS = ("n0", "n1", "n2")
PORTS = 2 * len(MEMBERS) + 3
"""Two of each controller, one of the name server, two of brokers."""


class Drill:
    """One run.

    Args:
        folder: for settings, data and output.
        ports: :data:`PORTS` free ones, with free ones beside them.
        client: to ask controllers.
        launcher: starts Java brokers, or ``None`` for stubs.
        real_controllers: let *launcher* start the controllers, too.
    """

    def __init__(
        self,
        folder: Path,
        ports: Sequence[int],
        client: RemotingClient,
        launcher: Path | None,
        world: World,
        real_controllers: bool = False,
    ) -> None:
        self.folder = folder
        self.client = client
        self.launcher = launcher
        self.real_controllers = real_controllers
        self.more_controller_keys: dict[str, str] = {}
        self.world = world
        self.processes = Processes(folder)
        self.api = dict(zip(MEMBERS, ports[:3], strict=True))
        self.raft = dict(zip(MEMBERS, ports[3:6], strict=True))
        self.name_server = ports[6]
        self.broker_ports = list(ports[7:])
        self.brokers: dict[int, tuple[trio.CancelScope, StubBroker]] = {}
        #: In front of Java brokers, so that both kinds of controllers are seen to tell them of their roles.
        self.relays = Relays(world, {RequestCode.NOTIFY_BROKER_ROLE_CHANGED})
        self._fault_at = 0.0

    # -- what is said --------------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        print(text, flush=True)

    def fault(self, text: str) -> None:
        self._fault_at = self.world.clock.monotonic()
        self.say(f"\n{0.0:9.3f} s  FAULT     {text}")

    def happened(self, what: str, text: str) -> float:
        """Say what happened just now; return how many seconds after the fault."""
        seconds = self.world.clock.monotonic() - self._fault_at
        self.say(f"{seconds:9.3f} s  {what:9} {text}")
        return seconds

    # -- controllers ---------------------------------------------------------------------------------------------

    def start_controller(self, member: str) -> None:
        settings = controller_settings(member, self.api, self.raft, self.folder) | self.more_controller_keys
        path = self.folder / f"{member}.conf"
        path.write_text(properties(settings))
        command = [sys.executable, "-m", "understudy.programs.mqcontroller", "-c", str(path)]
        if self.real_controllers:
            home = str(self.folder / f"home-{member}")
            command = [str(self.launcher), "controller", "--conf", str(path), "--heap", "256m", "--home", home]
        self.processes.start(member, command)

    async def ask(self, member: str, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command | None:
        try:
            return await self.client.invoke(f"127.0.0.1:{self.api[member]}", request(code, ext, body), 1000)
        except RemotingError:
            return None

    async def answered(self, member: str, code: int, ext: dict[str, str] | None = None) -> Command:
        """Ask until there is an answer."""
        found: list[Command] = []

        async def asked() -> bool:
            answer = await self.ask(member, code, ext)
            found.extend([] if answer is None else [answer])
            return answer is not None

        await self.until(f"an answer of {member}", asked, 30)
        return found[-1]

    async def leader(self, among: Sequence[str]) -> str | None:
        for member in among:
            answer = await self.ask(member, RequestCode.CONTROLLER_GET_METADATA_INFO)
            if answer is not None and (answer.ext or {}).get("isLeader") == "true":
                return member
        return None

    async def wait_leader(self, among: Sequence[str], seconds: float = 30) -> str:
        found: list[str] = []

        async def is_active() -> bool:
            member = await self.leader(among)
            found.extend([member] if member else [])
            return member is not None

        await self.until("an active controller", is_active, seconds)
        return found[-1]

    async def group(self, among: Sequence[str]) -> tuple[int | None, int, list[int], int] | None:
        """Return master, epoch, sync state set and the master's port as the active controller has them, if any."""
        leader = await self.leader(among)
        answer = None if leader is None else await self.ask(leader, 1004, {"brokerName": GROUP})
        if answer is None or answer.code != 0:
            return None
        fields = answer.ext or {}
        master = fields.get("masterBrokerId")
        members = list(loads(answer.body)["syncStateSet"])
        port = int((fields.get("masterAddress") or ":0").rpartition(":")[2])
        return (None if master is None else int(master)), int(fields["masterEpoch"]), members, port

    async def until(self, what: str, condition: Callable[[], object], seconds: float) -> None:
        with trio.move_on_after(seconds):
            while True:
                result = condition()
                if await result if hasattr(result, "__await__") else result:
                    return
                ended = self.processes.ended()
                if ended:
                    raise DrillError(f"{', '.join(ended)} ended; see {self.folder}/{ended[0]}.out")
                await self.world.clock.sleep(0.01)
        raise DrillError(f"{what} did not appear within {seconds:g} s; see {self.folder}")

    async def why(self, leader: str) -> None:
        """Print the newest decision of the active controller, and the explanation of the group."""
        lines = (await self.answered(leader, QUORUM_FACTS)).body.decode().splitlines()
        for kind in ("#Round", "#Election"):
            newest = [line.partition("\t")[2] for line in lines if line.startswith(kind)]
            if newest:
                self.say(f"             {newest[-1]}")
        explained = await self.answered(leader, EXPLAIN_MASTER, {"brokerName": GROUP})
        for line in explained.body.decode().splitlines():
            if line.startswith(("#Candidate", "#NextStep", "#Master\t")):
                self.say(f"             {line}")

    # -- brokers -------------------------------------------------------------------------------------------------

    def start_broker(self, nursery: trio.Nursery, number: int, port: int) -> None:
        if self.launcher is not None:
            self._start_java_broker(number, port)
            return
        former = self.brokers.get(number)
        addresses = tuple(f"127.0.0.1:{p}" for p in self.api.values())
        settings = StubSettings("drill", GROUP, "127.0.0.1", port, addresses, f"127.0.0.1:{port};{number}")
        broker = StubBroker(self.world, settings, former[1].broker_id if former else None)
        scope = trio.CancelScope()
        self.brokers[number] = (scope, broker)

        async def run() -> None:
            with scope:
                await broker.run()

        nursery.start_soon(run)

    def _start_java_broker(self, number: int, port: int) -> None:
        controllers = ";".join(f"127.0.0.1:{port}" for port in self.api.values())
        store = self.folder / f"store{number}"
        name_server = f"127.0.0.1:{self.name_server}"
        settings = java_broker_settings(GROUP, port, name_server, controllers, store, RELAYED_HOST)
        path = self.folder / f"broker{number}.conf"
        path.write_text(properties(settings))
        home = str(self.folder / f"home{number}")
        command = [str(self.launcher), "broker", "--conf", str(path), "--heap", "384m", "--home", home]
        self.processes.start(f"broker{number}", command)

    async def kill_broker(self, number: int) -> None:
        if self.launcher is not None:
            self.processes.kill(f"broker{number}")
        else:
            self.brokers[number][0].cancel()
            await trio.lowlevel.checkpoint()

    # -- the drill -----------------------------------------------------------------------------------------------

    async def play(self, nursery: trio.Nursery) -> None:
        kind = "Java" if self.launcher is not None else "stub"
        self.say(f"three controllers {self.api}, two {kind} brokers, group {GROUP}; output in {self.folder}")
        for member in MEMBERS:
            self.start_controller(member)
        first = await self.wait_leader(MEMBERS)
        self.say(f"active controller: {first}")
        if self.launcher is not None:
            path = self.folder / "namesrv.conf"
            path.write_text(f"listenPort={self.name_server}\n")
            self.processes.start("namesrv", [sys.executable, "-m", "understudy.programs.mqnamesrv", "-c", str(path)])
        ports = self.broker_ports
        if self.launcher is not None:
            await self.relays.start(nursery, ports)
        for number, port in enumerate(ports):
            self.start_broker(nursery, number, port)
            count = number + 1

            async def joined(count: int = count) -> bool:
                group = await self.group(MEMBERS)
                return group is not None and group[0] is not None and len(group[2]) == count

            await self.until(f"sync state set of {count}", joined, 180)
        await self._lose_active_controller()
        await self._lose_master(nursery, ports)
        await self._lose_majority()

    async def _lose_active_controller(self) -> None:
        before = await self.group(MEMBERS)
        active = await self.wait_leader(MEMBERS)
        rest = [member for member in MEMBERS if member != active]
        self.processes.kill(active)
        self.fault(f"kill -9 of the active controller {active}")
        leader = await self.wait_leader(rest)
        self.happened("LEADER", f"{leader} is active")

        async def same() -> bool:
            return await self.group(rest) == before

        await self.until("the same metadata on the new leader", same, 20)
        self.happened("METADATA", f"complete on {leader}: {_text(before)}")
        await self.why(leader)
        self.start_controller(active)

    async def _lose_master(self, nursery: trio.Nursery, ports: list[int]) -> None:
        async def whole() -> bool:
            now = await self.group(MEMBERS)
            return now is not None and len(now[2]) == len(ports)

        # a slave that a busy machine held up may have left it: nobody could follow then
        await self.until("both brokers in the sync state set", whole, 120)
        group = await self.group(MEMBERS)
        master = group[0] if group is not None else None
        if group is None or master is None:
            raise DrillError("the group has no master before the drill's second fault")
        epoch, number = group[1], ports.index(group[3])
        await self.kill_broker(number)
        self.fault(f"broker {master}, master of {GROUP}, is killed")

        async def replaced() -> bool:
            now = await self.group(MEMBERS)
            return now is not None and now[0] not in (None, master) and now[1] > epoch

        await self.until("a new master", replaced, 60)
        self.happened("DECIDED", _text(await self.group(MEMBERS)))
        other = 1 - number
        await self.until("the new master's notification", lambda: self._told(other, ports[other], epoch), 10)
        at, how = self._told(other, ports[other], epoch) or (0.0, "")
        self.say(f"{at - self._fault_at:9.3f} s  TOLD      the new master was {how}")
        leader = await self.wait_leader(MEMBERS)
        await self.why(leader)
        self.start_broker(nursery, number, ports[number])

        await self.until("the old master in the sync state set", whole, 120)
        self.happened("REJOINED", f"broker {master} is in the sync state set again: {_text(await self.group(MEMBERS))}")

    def _told(self, number: int, port: int, epoch: int) -> tuple[float, str] | None:
        """Return when a broker learned of a role later than *epoch* (monotonic seconds), and how, if it has."""
        if self.launcher is None:
            changes = self.brokers[number][1].changes
            return next(((change.at, change.how) for change in changes if change.master_epoch > epoch), None)
        words = (asked for asked in self.relays.asked if asked.port == port)
        return next(((word.at, "pushed") for word in words if int(word.ext["masterEpoch"]) > epoch), None)

    async def _lose_majority(self) -> None:
        active = await self.wait_leader(MEMBERS)
        rest = [member for member in MEMBERS if member != active]
        for member in rest:
            self.processes.kill(member)
        self.fault(f"kill -9 of {' and '.join(rest)}: the majority is gone")

        async def refused() -> bool:
            answer = await self.ask(active, 1004, {"brokerName": GROUP})
            return answer is not None and answer.code == 2007

        await self.until("the refusal of the last controller", refused, 30)
        answer = await self.ask(active, 1004, {"brokerName": GROUP})
        self.happened("REFUSED", f"{active} says: {answer.remark if answer is not None else ''}")
        if self.launcher is None:
            roles = {broker.broker_id: "master" if broker.is_master else "slave" for _, broker in self.brokers.values()}
            self.happened("GOES ON", f"brokers keep their roles: {roles}")
        for member in rest:
            self.start_controller(member)
        leader = await self.wait_leader(MEMBERS)
        self.happened("RESTORED", f"{leader} is active, {_text(await self.group(MEMBERS))}")


def _text(group: tuple[int | None, int, list[int], int] | None) -> str:
    if group is None:
        return "unknown"
    return f"master {group[0]} epoch {group[1]} sync state set {group[2]}"


async def _play(folder: Path, launcher: Path | None, real_controllers: bool) -> bool:
    world = real_world()
    with PortBlocks(10) as blocks:
        async with open_client(world) as client, trio.open_nursery() as nursery:
            drill = Drill(folder, blocks.middles(PORTS), client, launcher, world, real_controllers)
            try:
                await drill.play(nursery)
            finally:
                drill.processes.kill_all()
            nursery.cancel_scope.cancel()
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the drill; return the exit code: 0 when everything happened in time."""
    parser = argparse.ArgumentParser(prog="understudy drill controller", description=__doc__.partition("\n")[0])
    parser.add_argument("--java", metavar="LAUNCHER", help="launcher of Java brokers; 'none' for stub brokers")
    parser.add_argument("--controllers", choices=("ours", "java"), default="ours", help="whose controllers are played")
    kinds = ("ours", "java", "mixed", "mixed-java")
    parser.add_argument("--brokers", choices=kinds, help="a group of three under traffic; mixed-java: two are real")
    parser.add_argument("--clients", choices=tuple(CLIENTS), help="whose clients work at a group under traffic (ours)")
    parser.add_argument(
        "--elections", type=int, default=0, metavar="N", help="with --brokers: N masters are elected, nothing is killed"
    )
    parser.add_argument("--slow", action="store_true", help="with --brokers: timeouts for a machine that is busy")
    parser.add_argument("--verify", action="store_true", help="with --brokers: compare the stores by Spark at the end")
    parser.add_argument("--keep", action="store_true", help="keep settings, data and output")
    options = parser.parse_args(arguments)
    launcher, real = find_launcher(options.java), options.controllers == "java"
    if real and launcher is None:
        parser.error(
            "--controllers java needs the real system: run ./understudy test once, or name its launcher by --java"
        )
    from understudy.testkit.drills import led_runs  # it is built on this one

    if options.brokers not in (None, "ours") and launcher is None:
        parser.error("Java brokers need the real system: run ./understudy test once")
    lack = None if options.clients is None else CLIENTS[options.clients].missing()
    if lack is not None:
        parser.error(f"not {CLIENTS[options.clients].title}: {lack}")
    brokers = options.brokers or ("ours" if options.clients else None)
    if brokers is None and (options.elections or options.verify or options.slow):
        parser.error(
            "--elections, --slow and --verify belong to --brokers, or to --clients: say of which kind they are"
        )
    if brokers is None:
        return in_folder(partial(_play, launcher=launcher, real_controllers=real), keep=options.keep)
    wish = led_runs.Wish(brokers, options.clients or "ours", options.elections, options.verify, options.slow)
    return in_folder(partial(led_runs.play, launcher=launcher, real_controllers=real, wish=wish), keep=options.keep)


if __name__ == "__main__":
    sys.exit(main())
