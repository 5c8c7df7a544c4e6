"""Real replicas of a group give way to ours and come back, one by one, under traffic: processes of this machine.

A group that controllers lead hands the master's role over before its broker is replaced, so nobody misses a master.
In a group whose slaves act for their master (``--acting``) the master comes last, and a slave acts until it is there.
Nothing is killed: every broker ends by SIGTERM, and the other kind starts on its folder.

A real slave learns every ten seconds how far its master has come with delayed messages, so it puts what was due since
then a second time when it is elected; ours must not. The log tells who did.
"""

from __future__ import annotations

from pathlib import Path

import attrs
import trio

from understudy.format.json_dialect import loads
from understudy.ha.switch.epochs import Epochs
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.runtime.world import real_world
from understudy.testkit.drills.led import LedDrill
from understudy.testkit.drills.led_replicas import JOIN_SECONDS, KINDS, PORTS, QUIET_SECONDS, REPLICAS
from understudy.testkit.drills.led_runs import stores_agree, tell, tell_repeats
from understudy.testkit.drills.repeat_windows import Window
from understudy.testkit.drills.second_copies import Writers
from understudy.testkit.drills.traffic_clients import TRANSACTING
from understudy.testkit.history import Verdict
from understudy.testkit.port_blocks import PortBlocks

TABLES_SECONDS = 14.0
"""A real slave copies its master's tables 3 s after its start and then every 10 s."""
_ASK_MS = 1_000
_LED_KEYS = ("enableControllerMode", "controllerAddr", "allAckInSyncStateSet")


class ProcessMigration(LedDrill):
    """A group that controllers lead: one run."""

    async def play_migration(self) -> Verdict:
        """Play it there and back; return the verdict over the traffic. Raises ``DrillError``."""
        self.introduce()
        await self.start()
        async with self.watched_traffic() as traffic:
            await self.world.clock.sleep(QUIET_SECONDS)
            for kind in ("ours", "java"):
                for number in await self.replaced_in_turn():
                    await self.replace(number, kind)
                    self.begin(f"replica {number} is {kind} and in sync", quiet=True)
                    await self.world.clock.sleep(QUIET_SECONDS)
            return await self.end(traffic)

    async def replaced_in_turn(self) -> list[int]:
        """Return the replicas in the order in which they are replaced: the master last."""
        master = await self.master()
        return [*(number for number in range(REPLICAS) if number != master), master]

    async def replace(self, number: int, kind: str) -> None:
        """Stop a replica, and start one of the other *kind* on its folder; return when it is in sync."""
        if await self.master() == number:
            heir = (number + 1) % REPLICAS
            if self.kinds[heir] == "java":
                await self.world.clock.sleep(TABLES_SECONDS)
            await self.hand_over(heir)
            await self._clients_send()  # so that what they begin again is seen while it is the election's doing
        began = self.world.clock.monotonic()
        what = f"slave {number} ({self.kinds[number]}) gives way to {kind}"
        self.windows.append(Window(began, what, master_stays=True))
        await self.processes.stop(f"broker{number}")
        self.kinds[number] = kind
        self.start_replica(number)
        await self.in_sync(REPLICAS)
        took = self.world.clock.monotonic() - began
        self.say(f"replica {number} is {kind}, in sync after {took:.1f} s: {', '.join(self.kinds)}")


class PlainMigration(ProcessMigration):
    """The same of a group in plain replication, whose slaves act for their master: no controllers, no elections."""

    def settings(self, number: int) -> dict[str, str]:
        keys = {key: value for key, value in super().settings(number).items() if key not in _LED_KEYS}
        return keys | {
            "brokerId": str(number),
            "brokerRole": "SLAVE" if number else "SYNC_MASTER",
            "enableSlaveActingMaster": "true",
            "minInSyncReplicas": "1",
            # Without its timer a real slave refuses a question of its returning master, which never comes online then.
            "timerWheelEnable": "true",
        }

    def introduce(self) -> None:
        self.say(f"a group of {', '.join(self.kinds)} whose slaves act, {self.clients.title}; output in {self.folder}")

    async def start(self) -> None:
        self.start_name_server(supportActingMaster="true")
        for number in range(REPLICAS):
            self.start_replica(number)
        await self.in_sync(REPLICAS)
        await self.make_topic()

    def writers(self) -> Writers:
        return Writers(Epochs.of([(0, 0)]), {0: self.broker_ports[0]}, self.lives)

    async def master(self) -> int:
        return 0

    async def replace(self, number: int, kind: str) -> None:
        if number:
            await super().replace(number, kind)
            return
        began = self.world.clock.monotonic()
        self.begin(f"the master ({self.kinds[0]}) gives way to {kind}")
        await self.processes.stop("broker0")
        self.kinds[0] = kind
        self.start_replica(0)
        await self.until("the master in the route", lambda: self.shown(0), JOIN_SECONDS)
        await self.in_sync(REPLICAS)
        took = self.world.clock.monotonic() - began
        self.say(f"the master is {kind}, in sync after {took:.1f} s: {', '.join(self.kinds)}")

    async def in_sync(self, count: int, seconds: float = JOIN_SECONDS) -> None:
        """Wait until the master says that its slaves have its log."""

        async def reached() -> bool:
            question = request(RequestCode.GET_BROKER_HA_STATUS)
            try:
                answer = await self.client.invoke(f"127.0.0.1:{self.broker_ports[0]}", question, _ASK_MS)
            except RemotingError:
                return False
            return answer.code == 0 and int(loads(answer.body).get("inSyncSlaveNums", 0)) == count - 1

        await self.until(f"{count - 1} slaves in sync", reached, seconds)


@attrs.frozen
class Wish:
    """What is to be played.

    Attributes:
        clients: whose clients make the traffic, a key of ``TRANSACTING``.
        acting: the group is in plain replication, and its slaves act.
        verify: have the stores looked at by Spark at the end.
    """

    clients: str = "java"
    acting: bool = False
    verify: bool = False


async def play(folder: Path, launcher: Path, wish: Wish) -> bool:
    """Play the drill and print the verdict; return whether nothing was violated.

    Args:
        folder: for the stores and logs of all processes.
        launcher: starts real servers.
        wish: what is to be played.
    """
    world, agree = real_world(), True
    made = PlainMigration if wish.acting else ProcessMigration
    with PortBlocks(20) as blocks:
        async with open_client(world) as client, trio.open_nursery():  # what goes wrong comes as a group
            ports, clients = blocks.middles(PORTS), TRANSACTING[wish.clients]
            drill = made(folder, ports, client, launcher, world, KINDS["java"], clients=clients)
            try:
                verdict = await drill.play_migration()
                if wish.verify:
                    agree = await stores_agree(drill)
            finally:
                drill.processes.kill_all()
    right = tell(drill, verdict)
    return tell_repeats(drill) and right and agree
