"""A group that controllers lead loses its master again and again, under traffic: real processes, SIGKILL and SIGSTOP.

Three controllers, a name server and three brokers of one group: ours, real ones, or two of ours and a real one. Each
kind is master and slave of the other. Senders and consumers work all the time; at the end the verdict over what they
saw is given, and the logs of the group are compared. With a number of elections nothing is killed: an operator has one
replica after the other elected, each kind in turn.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from understudy.format.json_dialect import dumps, loads
from understudy.ha.switch.epoch_file import FILE_NAME, from_text
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.runtime.world import World
from understudy.testkit.drills.controller import GROUP, MEMBERS, Drill
from understudy.testkit.drills.controller_processes import ids_of, java_broker_settings, properties
from understudy.testkit.drills.led_judge import Reign
from understudy.testkit.drills.process_traffic import TOPIC, UNTROUBLED_SECONDS, Traffic
from understudy.testkit.drills.repeat_windows import Window
from understudy.testkit.drills.ring_processes import DrillError
from understudy.testkit.drills.second_copies import Life, Writers
from understudy.testkit.drills.traffic_clients import CLIENTS, Clients
from understudy.testkit.history import Verdict
from understudy.testkit.topic_fields import topic_fields

REPLICAS = 3
PORTS = 2 * len(MEMBERS) + 1 + REPLICAS
KINDS = {"ours": ("ours",) * 3, "java": ("java",) * 3, "mixed": ("ours", "ours", "java")}
TIMEOUT_MS = 3_000
QUIET_SECONDS = 2.0
JOIN_SECONDS = 300.0
"""Real slaves of a real master may find it half a minute after it was elected, and more on a busy machine."""
TAKE_OVER_SECONDS = 150.0
PATIENCE_SECONDS = 15.0
ASTRAY_SECONDS = 120.0  # longer than a real slave needs that has found its way
SENT_AGAIN, CLIENTS_SECONDS = 10, 60.0
"""Sends that clients must have acknowledged after each fault; a real client finds a new master within half a minute."""
_PROBE_MS, _WATCH_SECONDS = 1_000, 0.05


class LedDrill(Drill):
    """One run.

    Args:
        folder, ports, client, launcher, world: as of :class:`Drill`, with :data:`PORTS` ports.
        kinds: ``ours`` or ``java`` of each replica.
        real_controllers: let *launcher* start the controllers, too.
        clients: who send and consume.

    Attributes:
        story: what happened, and when (monotonic seconds).
        traffic: of the clients, once they have begun.
        reigns: whom the controllers named as master.
        lives: of which kind each replica was since when.
        windows: what happened when.
    """

    def __init__(
        self,
        folder: Path,
        ports: Sequence[int],
        client: RemotingClient,
        launcher: Path | None,
        world: World,
        kinds: Sequence[str],
        real_controllers: bool = False,
        clients: Clients = CLIENTS["ours"],
    ) -> None:
        super().__init__(folder, ports, client, launcher, world, real_controllers)
        self.kinds = list(kinds)
        self.clients = clients
        self.timeout_ms = TIMEOUT_MS
        self.story: list[tuple[float, str]] = []
        self.traffic: Traffic | None = None
        self.reigns: list[Reign] = []
        self.lives: list[Life] = []
        self.windows: list[Window] = []

    def say(self, text: str) -> None:
        super().say(text)
        self.story.append((self.world.clock.monotonic(), text.strip()))

    def fault(self, text: str) -> None:
        super().fault(text)
        self.begin(text)

    # -- processes -----------------------------------------------------------------------------------------------

    def begin(self, what: str, *, quiet: bool = False) -> None:
        """Begin a window of the run."""
        self.windows.append(Window(self.world.clock.monotonic(), what, quiet))

    def start_replica(self, number: int) -> None:
        self.lives.append(Life(self.broker_ports[number], self.world.clock.wall_ms(), self.kinds[number]))
        path = self.folder / f"broker{number}.conf"
        path.write_text(properties(self.settings(number)))
        command = [sys.executable, "-m", "understudy.programs.mqbroker", "-c", str(path)]
        if self.kinds[number] == "java":
            home = str(self.folder / f"home{number}")
            command = [str(self.launcher), "broker", "--conf", str(path), "--heap", "384m", "--home", home]
        self.processes.start(f"broker{number}", command)

    def start_name_server(self, **keys: str) -> None:
        path = self.folder / "namesrv.conf"
        place = {"listenPort": str(self.name_server), "kvConfigPath": f"{self.folder}/kvConfig.json"}
        path.write_text(properties({**place, **keys}))
        self.processes.start("namesrv", [sys.executable, "-m", "understudy.programs.mqnamesrv", "-c", str(path)])

    def settings(self, number: int) -> dict[str, str]:
        """Return the keys of a replica."""
        controllers = ";".join(f"127.0.0.1:{each}" for each in self.api.values())
        name_server = f"127.0.0.1:{self.name_server}"
        found = {
            **java_broker_settings(GROUP, self.broker_ports[number], name_server, controllers, self.store(number)),
            "controllerHeartBeatTimeoutMills": str(self.timeout_ms),
            "totalReplicas": str(REPLICAS),
            "inSyncReplicas": "2",
            "minInSyncReplicas": "2",
            **self.clients.broker_keys,
        }
        if self.kinds[number] == "ours":
            del found["brokerId"], found["brokerRole"]
        return found

    def store(self, number: int) -> Path:
        """Return the folder of a replica's store."""
        return self.folder / f"store{number}"

    # -- questions -----------------------------------------------------------------------------------------------

    async def in_sync(self, count: int, seconds: float = JOIN_SECONDS) -> None:
        """Wait until there is a master and *count* members in the set."""

        async def reached() -> bool:
            group = await self.group(MEMBERS)
            return group is not None and group[0] is not None and len(group[2]) == count

        await self.until(f"a sync state set of {count}", reached, seconds)

    async def master(self) -> int:
        """Return the number of the replica that is master, once there is one and somebody who knows it."""
        found: list[int] = []

        async def known() -> bool:
            group = await self.group(MEMBERS)
            found.extend([] if group is None or group[0] is None else [group[3]])
            return bool(found)

        await self.until("a master", known, 60)
        return self.broker_ports.index(found[-1])

    async def accepts(self, number: int) -> bool:
        """Return whether a message that is sent to this replica is stored and acknowledged."""
        values = ("probe", "probe", "TBW102", "1", "0", "0", "1", "0", "", "0", "false", "false")
        fields = dict(zip("abcdefghijkm", values, strict=True))
        try:
            answer = await self.client.invoke(
                f"127.0.0.1:{self.broker_ports[number]}", request(RequestCode.SEND_MESSAGE_V2, fields, b"x"), _PROBE_MS
            )
        except RemotingError:
            return False
        return answer.code == 0

    async def shown(self, number: int) -> bool:
        """Return whether the name server shows this replica as master."""
        question = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
        try:
            answer = await self.client.invoke(f"127.0.0.1:{self.name_server}", question, _PROBE_MS)
        except RemotingError:
            return False
        return f'0:"127.0.0.1:{self.broker_ports[number]}"'.encode() in answer.body.replace(b'"0"', b"0")

    async def make_topic(self) -> None:
        """Create the topic at the master."""

        async def made() -> bool:
            question = request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC, 2) | {"topicSysFlag": "0"})
            try:
                address = f"127.0.0.1:{self.broker_ports[await self.master()]}"
                return (await self.client.invoke(address, question, _PROBE_MS)).code == 0
            except RemotingError:
                return False

        await self.until("the topic at the master", made, 60)

    # -- the drill -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start everything, replica after replica; return when all are in sync."""
        for member in MEMBERS:
            self.start_controller(member)
        await self.wait_leader(MEMBERS)
        self.start_name_server()
        for number in range(REPLICAS):
            self.start_replica(number)
            await self.in_sync(number + 1)
        await self.make_topic()

    async def play_led(self, *, short: bool = False) -> Verdict:
        """Play it; return the verdict over the traffic. Raises ``DrillError``.

        Args:
            short: one replica is killed, and that is all.
        """
        self.introduce()
        await self.start()
        async with self.watched_traffic() as traffic:
            masters = dict.fromkeys([0, self.kinds.index("java") if "java" in self.kinds else 1])
            with traffic.troubled():
                for number in [0] if short else masters:
                    await self.hand_over(number)
                    for suspend in [False] if short else [False, True]:
                        await self.world.clock.sleep(QUIET_SECONDS)
                        await self.lose_master(suspend=suspend)
                        await self.in_sync(REPLICAS)
                        await self.hand_over(number)
            return await self.end(traffic)

    async def play_elections(self, count: int) -> Verdict:
        """Have *count* masters elected under traffic, each kind in turn; return the verdict. Raises ``DrillError``."""
        self.introduce()
        await self.start()
        async with self.watched_traffic() as traffic:
            with traffic.troubled():
                for elected in range(count):
                    await self.world.clock.sleep(QUIET_SECONDS)
                    await self.hand_over(self.next_master(elected))
            return await self.end(traffic)

    @asynccontextmanager
    async def watched_traffic(self) -> AsyncIterator[Traffic]:
        """Have clients send and consume until the block ends; note meanwhile whom the controllers name as master."""
        self.begin("before anything is done", quiet=True)
        async with (
            self.clients.open(f"127.0.0.1:{self.name_server}") as self.traffic,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(self._watch_masters)
            await self.world.clock.sleep(UNTROUBLED_SECONDS)
            yield self.traffic
            nursery.cancel_scope.cancel()

    async def _watch_masters(self) -> None:
        since = self.world.clock.monotonic()
        while True:
            asked_at, group = self.world.clock.monotonic(), await self.group(MEMBERS)
            if group is not None and group[0] is not None and group[1] > max((r.epoch for r in self.reigns), default=0):
                self.reigns.append(Reign(group[3], group[1], self.world.clock.monotonic(), since))
            since = since if group is None else asked_at
            await self.world.clock.sleep(_WATCH_SECONDS)

    def next_master(self, elected: int) -> int:
        """Return which replica is to be master after *elected* others were: real ones and ours in turn."""
        kinds = [kind for kind in ("java", "ours") if kind in self.kinds]
        members = [number for number in (1, 2, 0) if self.kinds[number] == kinds[elected % len(kinds)]]
        return members[elected // len(kinds) % len(members)]

    def introduce(self) -> None:
        """Say what is played."""
        brokers = ", ".join(self.kinds)
        self.say(f"three controllers, group {GROUP} of {brokers}, {self.clients.title}; output in {self.folder}")

    async def end(self, traffic: Traffic) -> Verdict:
        """Let the traffic come to its end and compare the logs; return the verdict."""
        await self.world.clock.sleep(QUIET_SECONDS)
        await traffic.stop_sending()
        await traffic.drain()
        await self.until("equal logs in all replicas", self.logs_are_equal, 60)
        self.say(f"\nlogs of all replicas: equal, {len(self.log(0))} bytes")
        for line in traffic.told():
            self.say(line)
        return traffic.verdict()

    async def hand_over(self, number: int) -> None:
        """Have this replica elected, as an operator does."""
        if await self.master() == number:
            return
        await self._rejoin()
        self.begin(f"replica {number} ({self.kinds[number]}) is elected")
        address = f"127.0.0.1:{self.broker_ports[number]}"

        async def elected() -> bool:
            leader = await self.wait_leader(MEMBERS)
            broker_id = (await self._ids(leader)).get(address)
            if broker_id is None:
                return False
            fields = {"clusterName": "drill", "brokerName": GROUP, "designateElect": "true"}
            await self.ask(leader, RequestCode.CONTROLLER_ELECT_MASTER, fields | {"brokerId": str(broker_id)})
            return await self.master() == number and await self.accepts(number)

        await self.until(f"replica {number} as master", elected, TAKE_OVER_SECONDS)
        await self._rejoin()
        self.say(f"\nmaster is replica {number} ({self.kinds[number]}): {await self._now()}")

    async def _ids(self, leader: str) -> dict[str, int]:
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        answer = await self.ask(leader, code, body=dumps([GROUP]))
        if answer is None or answer.code != 0:
            return {}  # another one leads by now
        return ids_of(loads(answer.body)["replicasInfoTable"][GROUP])

    async def _now(self) -> str:
        group = await self.group(MEMBERS)
        return "unknown" if group is None else f"broker {group[0]} epoch {group[1]} sync state set {group[2]}"

    async def lose_master(self, *, suspend: bool) -> None:
        """Kill the master's process, or let it stand still until another one is master; then let it come back."""
        number, group = await self.master(), await self.group(MEMBERS)
        assert group is not None
        epoch, name = group[1], f"broker{number}"
        if suspend:
            self.processes.signal(name, signal.SIGSTOP)
        else:
            self.processes.kill(name)
        self.fault(f"T0 {'SIGSTOP' if suspend else 'SIGKILL'} of the master, replica {number} ({self.kinds[number]})")

        async def decided() -> bool:
            now = await self.group(MEMBERS)
            return now is not None and now[0] is not None and now[1] > epoch and now[3] != self.broker_ports[number]

        await self.until("a new master", decided, 60)
        self.happened("T1", f"decided: {await self._now()}")
        heir = await self.master()
        stands_still = suspend
        if suspend and not await self._soon_accepts(heir):
            # A real slave that was told of a new master asks a name server for its address, often before that one is
            # registered; so it connects to the former one, and waits for its word as long as that stands still.
            self.happened("", "nothing is acknowledged: slaves wait at the port of the master that stands still")
            self.processes.signal(name, signal.SIGCONT)
            stands_still = False
        await self.until("an accepted send", lambda: self.accepts(heir), 60)
        self.happened("T2", f"replica {heir} ({self.kinds[heir]}) has acknowledged a message")
        await self.until("the new master in the route", lambda: self.shown(heir), 60)
        self.happened("T3", "the name server shows it")
        await self.why(await self.wait_leader(MEMBERS))
        if stands_still:
            self.processes.signal(name, signal.SIGCONT)
        elif not suspend:
            self.start_replica(number)
        self.fault(f"R0 replica {number} {'goes on' if suspend else 'is started again'}")
        await self._rejoin()
        self.happened("R1", f"in sync again: {await self._now()}")
        await self._clients_send()

    async def _clients_send(self) -> None:
        """Wait until clients have sent again: without them the rest of the drill would show nothing."""
        assert self.traffic is not None
        sends, before = self.traffic.history.sends, len(self.traffic.history.sends)
        await self.until(
            "sends of the clients", lambda: sum(x.acknowledged for x in sends[before:]) >= SENT_AGAIN, CLIENTS_SECONDS
        )

    async def _soon_accepts(self, number: int) -> bool:
        with trio.move_on_after(PATIENCE_SECONDS):
            await self.until("an accepted send", lambda: self.accepts(number), 2 * PATIENCE_SECONDS)
            return True
        return False

    async def _rejoin(self) -> None:
        """Wait until all are in sync; a real slave that has gone astray is started again, as an operator does.

        One that is connected to a former master stays there when that one is a slave itself: it copies from it, and
        nobody counts it.
        """
        if "java" not in self.kinds:
            await self.in_sync(REPLICAS)
            return
        try:
            await self.in_sync(REPLICAS, ASTRAY_SECONDS)
        except DrillError:
            ids = await self._ids(await self.wait_leader(MEMBERS))
            group = await self.group(MEMBERS)
            members = [] if group is None else group[2]
            for number, port in enumerate(self.broker_ports):
                if self.kinds[number] == "java" and ids.get(f"127.0.0.1:{port}") not in members:
                    self.happened("ASTRAY", f"replica {number} (java) is not in sync: it is started again")
                    self.processes.kill(f"broker{number}")
                    self.start_replica(number)
            await self.in_sync(REPLICAS)

    # -- logs ----------------------------------------------------------------------------------------------------

    def writers(self) -> Writers:
        """Return who has written the log of replica 0."""
        masters = {reign.epoch: reign.port for reign in self.reigns}
        return Writers(from_text((self.store(0) / FILE_NAME).read_bytes()), masters, self.lives)

    def log(self, number: int) -> bytes:
        """Return the log of a replica, without the zeros at its end."""
        files = sorted((self.store(number) / "commitlog").glob("[0-9]*"))
        return b"".join(path.read_bytes() for path in files).rstrip(b"\0")

    def logs_are_equal(self) -> bool:
        """Return whether all replicas have the same bytes."""
        return len({*map(self.log, range(REPLICAS))}) == 1
