"""A group of three replicas that controllers lead, each in a process of its own, and what can be asked of it.

Three controllers, a name server and three brokers of one group: ours, real ones, or two of ours and a real one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from understudy.format.json_dialect import dumps, loads
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import RemotingError
from understudy.runtime.world import World
from understudy.testkit.drills.controller import GROUP, MEMBERS, Drill
from understudy.testkit.drills.controller_processes import ids_of, java_broker_settings, properties
from understudy.testkit.drills.process_traffic import TOPIC
from understudy.testkit.drills.repeat_windows import Window
from understudy.testkit.drills.ring_processes import DrillError
from understudy.testkit.topic_fields import topic_fields

REPLICAS = 3
PORTS = 2 * len(MEMBERS) + 1 + REPLICAS
KINDS = {"ours": ("ours",) * 3, "java": ("java",) * 3, "mixed": ("ours", "ours", "java")}
KINDS |= {"mixed-java": ("ours", "java", "java")}
TIMEOUT_MS = 3_000
QUIET_SECONDS = 2.0
JOIN_SECONDS = 300.0
"""Real slaves of a real master may find it half a minute after it was elected, and more on a busy machine."""
TAKE_OVER_SECONDS = 150.0
ASTRAY_SECONDS = 120.0  # longer than a real slave needs that has found its way
ASK_MS = 1_000


def probe(body: bytes = b"x", *, topic: str = "probe", oneway: bool = False) -> Command:
    """Return a message of no topic of the drill's clients, to be sent to a master."""
    values = ("probe", topic, "TBW102", "1", "0", "0", "1", "0", "", "0", "false", "false")
    fields = dict(zip("abcdefghijkm", values, strict=True))
    return request(RequestCode.SEND_MESSAGE_V2, fields, body, oneway=oneway)


class LedReplicas(Drill):
    """The processes of one run.

    Args:
        folder, ports, client, launcher, world: as of :class:`Drill`, with :data:`PORTS` ports.
        kinds: ``ours`` or ``java`` of each replica.
        real_controllers: let *launcher* start the controllers, too.
        broker_keys: further settings of all brokers.

    Attributes:
        timeout_ms: after how long the controllers take a silent broker for dead.
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
        broker_keys: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder, ports, client, launcher, world, real_controllers)
        self.kinds = list(kinds)
        self.broker_keys = dict(broker_keys or {})
        self.timeout_ms = TIMEOUT_MS
        self.windows: list[Window] = []

    def begin(self, what: str, *, quiet: bool = False) -> None:
        """Begin a window of the run."""
        self.windows.append(Window(self.world.clock.monotonic(), what, quiet))

    def fault(self, text: str) -> None:
        super().fault(text)
        self.begin(text)

    # -- processes -----------------------------------------------------------------------------------------------

    def start_replica(self, number: int) -> None:
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
            **self.broker_keys,
        }
        if self.kinds[number] == "ours":
            del found["brokerId"], found["brokerRole"]
        return found

    def store(self, number: int) -> Path:
        """Return the folder of a replica's store."""
        return self.folder / f"store{number}"

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

    async def ask_replica(self, number: int, question: Command) -> Command | None:
        """Return the good answer of a replica; ``None`` for a refusal, or none within a second."""
        try:
            answer = await self.client.invoke(self.address(number), question, ASK_MS)
        except RemotingError:
            return None
        return answer if answer.code == 0 else None

    def address(self, number: int) -> str:
        """Return where a replica listens, ``host:port``."""
        return f"127.0.0.1:{self.broker_ports[number]}"

    async def accepts(self, number: int) -> bool:
        """Return whether a message that is sent to this replica is stored and acknowledged."""
        return await self.ask_replica(number, probe()) is not None

    async def listens(self, number: int) -> bool:
        """Return whether the port of this replica is open."""
        try:
            await self.client.connection(self.address(number), ASK_MS)
        except RemotingError:
            return False
        return True

    async def log_end(self, number: int) -> int:
        """Return up to which byte this replica has a log, as it says itself; -1 while it does not answer."""
        answer = await self.ask_replica(number, request(RequestCode.GET_BROKER_RUNTIME_INFO))
        return -1 if answer is None else int(loads(answer.body)["table"]["commitLogMaxOffset"])

    async def shown(self, number: int) -> bool:
        """Return whether the name server shows this replica as master."""
        question = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
        try:
            answer = await self.client.invoke(f"127.0.0.1:{self.name_server}", question, ASK_MS)
        except RemotingError:
            return False
        return f'0:"{self.address(number)}"'.encode() in answer.body.replace(b'"0"', b"0")

    async def make_topic(self) -> None:
        """Create the topic at the master."""

        async def made() -> bool:
            question = request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC, 2) | {"topicSysFlag": "0"})
            return await self.ask_replica(await self.master(), question) is not None

        await self.until("the topic at the master", made, 60)

    async def ids(self, leader: str) -> dict[str, int]:
        """Return the broker id of each address, as the controller that leads has them."""
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        answer = await self.ask(leader, code, body=dumps([GROUP]))
        if answer is None or answer.code != 0:
            return {}  # another one leads by now
        return ids_of(loads(answer.body)["replicasInfoTable"][GROUP])

    async def now(self) -> str:
        """Return the master, its epoch and the set as the controllers have them, as text."""
        group = await self.group(MEMBERS)
        return "unknown" if group is None else f"broker {group[0]} epoch {group[1]} sync state set {group[2]}"

    # -- what operators do ---------------------------------------------------------------------------------------

    async def hand_over(self, number: int) -> None:
        """Have this replica elected, as an operator does."""
        if await self.master() == number:
            return
        await self.rejoin()
        self.begin(f"replica {number} ({self.kinds[number]}) is elected")

        async def elected() -> bool:
            leader = await self.wait_leader(MEMBERS)
            broker_id = (await self.ids(leader)).get(self.address(number))
            if broker_id is None:
                return False
            fields = {"clusterName": "drill", "brokerName": GROUP, "designateElect": "true"}
            await self.ask(leader, RequestCode.CONTROLLER_ELECT_MASTER, fields | {"brokerId": str(broker_id)})
            return await self.master() == number and await self.accepts(number)

        await self.until(f"replica {number} as master", elected, TAKE_OVER_SECONDS)
        await self.rejoin()
        self.say(f"\nmaster is replica {number} ({self.kinds[number]}): {await self.now()}")

    async def rejoin(self, broker_id: int | None = None) -> None:
        """Wait until all are in sync; a real slave that has gone astray is started again, as an operator does.

        One that is connected to a former master stays there when that one is a slave itself: it copies from it, and
        nobody counts it.

        Args:
            broker_id: wait for this one only.
        """
        what = "all replicas in the sync state set" if broker_id is None else f"broker {broker_id} in the set"

        async def reached() -> bool:
            group = await self.group(MEMBERS)
            if group is None or group[0] is None:
                return False
            return len(group[2]) == REPLICAS if broker_id is None else broker_id in group[2]

        if "java" not in self.kinds:
            await self.until(what, reached, JOIN_SECONDS)
            return
        try:
            await self.until(what, reached, ASTRAY_SECONDS)
        except DrillError:
            await self._start_strays_again()
            await self.until(what, reached, JOIN_SECONDS)

    async def _start_strays_again(self) -> None:
        ids = await self.ids(await self.wait_leader(MEMBERS))
        group = await self.group(MEMBERS)
        members = [] if group is None else group[2]
        for number in range(REPLICAS):
            if self.kinds[number] == "java" and ids.get(self.address(number)) not in members:
                self.happened("ASTRAY", f"replica {number} (java) is not in sync: it is started again")
                self.processes.kill(f"broker{number}")
                self.start_replica(number)

    # -- logs ----------------------------------------------------------------------------------------------------

    def log(self, number: int) -> bytes:
        """Return the log of a replica, without the zeros at its end."""
        files = sorted((self.store(number) / "commitlog").glob("[0-9]*"))
        return b"".join(path.read_bytes() for path in files).rstrip(b"\0")

    def logs_are_equal(self) -> bool:
        """Return whether all replicas have the same bytes."""
        return len({*map(self.log, range(REPLICAS))}) == 1
