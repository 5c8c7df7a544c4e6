"""A group that controllers lead loses its master again and again, under traffic: real processes, SIGKILL and SIGSTOP.

The group is the one of :mod:`.led_replicas`; what happens to its master is in :mod:`.led_outage`. Each kind is master
and slave of the other. Senders and consumers work all the time; at the end the verdict over what they saw is given, and
the logs of the group are compared. With a number of elections nothing is killed: an operator has one replica after the
other elected, each kind in turn.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from understudy.ha.switch.epoch_file import FILE_NAME, from_text
from understudy.remoting.client import RemotingClient
from understudy.runtime.world import World
from understudy.testkit.drills.controller import GROUP, MEMBERS
from understudy.testkit.drills.equal_offsets import questions, told, with_offsets
from understudy.testkit.drills.led_judge import Reign
from understudy.testkit.drills.led_outage import Fault, play_outage
from understudy.testkit.drills.led_replicas import QUIET_SECONDS, REPLICAS, LedReplicas
from understudy.testkit.drills.process_traffic import UNTROUBLED_SECONDS, Traffic
from understudy.testkit.drills.second_copies import Life, Writers
from understudy.testkit.drills.traffic_clients import CLIENTS, Clients
from understudy.testkit.history import Verdict

SENT_AGAIN, CLIENTS_SECONDS = 10, 60.0
"""Sends that clients must have acknowledged after each fault; a real client finds a new master within half a minute."""
_WATCH_SECONDS = 0.05


class LedDrill(LedReplicas):
    """One run.

    Args:
        folder, ports, client, launcher, world, kinds, real_controllers: as of :class:`LedReplicas`.
        clients: who send and consume.

    Attributes:
        story: what happened, and when (monotonic seconds).
        traffic: of the clients, once they have begun.
        reigns: whom the controllers named as master.
        lives: of which kind each replica was since when.
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
        super().__init__(folder, ports, client, launcher, world, kinds, real_controllers, clients.broker_keys)
        self.clients = clients
        self.story: list[tuple[float, str]] = []
        self.traffic: Traffic | None = None
        self.reigns: list[Reign] = []
        self.lives: list[Life] = []

    def say(self, text: str) -> None:
        super().say(text)
        self.story.append((self.world.clock.monotonic(), text.strip()))

    def start_replica(self, number: int) -> None:
        self.lives.append(Life(self.broker_ports[number], self.world.clock.wall_ms(), self.kinds[number]))
        super().start_replica(number)

    # -- the drill -----------------------------------------------------------------------------------------------

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
        """Let the traffic come to its end and compare logs and offsets; return the verdict."""
        await self.world.clock.sleep(QUIET_SECONDS)
        await traffic.stop_sending()
        await traffic.drain()
        await self.until("equal logs in all replicas", self.logs_are_equal, 60)
        verdict = await with_offsets(traffic.verdict(), questions(self.client, self.broker_ports, self.kinds))
        self.say("\n".join([f"\nlogs of all replicas: {len(self.log(0))} equal bytes", told(verdict), *traffic.told()]))
        return verdict

    async def lose_master(self, *, suspend: bool) -> None:
        """Kill the master's process, or let it stand still until another one is master; then let it come back."""
        await play_outage(self, Fault.FROZEN if suspend else Fault.KILLED)
        await self.rejoin()
        self.happened("", f"all are in sync: {await self.now()}")
        await self._clients_send()

    async def _clients_send(self) -> None:
        """Wait until clients have sent again: without them the rest of the drill would show nothing."""
        assert self.traffic is not None
        sends, before = self.traffic.history.sends, len(self.traffic.history.sends)
        await self.until(
            "sends of the clients", lambda: sum(x.acknowledged for x in sends[before:]) >= SENT_AGAIN, CLIENTS_SECONDS
        )

    def writers(self) -> Writers:
        """Return who has written the log of replica 0."""
        masters = {reign.epoch: reign.port for reign in self.reigns}
        return Writers(from_text((self.store(0) / FILE_NAME).read_bytes()), masters, self.lives)
