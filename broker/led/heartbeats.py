"""What a broker tells all its controllers again and again, and its silence when it cannot be the master that it is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import trio

from understudy.broker.led.controllers import Controllers, RefusedError, UnansweredError
from understudy.broker.led.following import Elected
from understudy.broker.led.incarnation import StoreIncarnation
from understudy.broker.led.replication import LedReplication
from understudy.runtime.log import get_logger

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

log = get_logger("broker.led")

SHORTEST_PAUSE_MS = 50


class Heartbeats:
    """The heartbeats of one broker.

    A master that cannot write, and a broker that was elected and cannot take the role, or has not taken it after the
    time in which the controllers miss a silent one (its disk hangs, say), are silent and hang up: so the controllers,
    those of the reference, too, elect another one. Only as long as something is in the way, or, when that cannot be
    seen, for a while: nobody else may be there. A master is silent only while the controllers hear another one of its
    set: else it would be taken out of its place for nobody, and could not take in who comes back.

    Args:
        broker: whose.
        replication: of the broker.
        controllers: who hear them.
        addresses: returns where the controllers are.
        leader: returns where the one who leads is; "": it is not known.
        incarnation: of the broker's store.
        elected: returns for which role this broker is the one elected, and has it not yet.
    """

    def __init__(
        self,
        broker: Broker,
        replication: LedReplication,
        controllers: Controllers,
        addresses: Callable[[], Iterable[str]],
        leader: Callable[[], str],
        incarnation: StoreIncarnation,
        elected: Callable[[], Elected | None],
    ) -> None:
        self._broker = broker
        self._replication = replication
        self._controllers = controllers
        self._addresses = addresses
        self._leader = leader
        self._incarnation = incarnation
        self._elected = elected
        self._silent_until = float("-inf")
        self._failed_epoch = -1
        self._in_the_way = ""
        self._asking = self._needed = False
        self._others_live: bool | None = None

    @property
    def pause_ms(self) -> int:
        """How often they are sent, whatever the settings say."""
        return max(self._broker.options.broker.broker_heartbeat_interval, SHORTEST_PAUSE_MS)

    async def send(self) -> None:
        """Tell all controllers that the broker lives, unless it had better not be elected."""
        broker, replication, keys = self._broker, self._replication, self._broker.options.broker
        if broker.store.disk_failed:
            await self._incarnation.end()
        obstacle = await self._obstacle()
        before, self._in_the_way = self._in_the_way, obstacle
        if self._in_the_way:
            self._hang_up("" if before else self._in_the_way)
            replication.doubt()  # controllers that do not hear it may elect another one whenever they are asked
            return
        if broker.world.clock.monotonic() < self._silent_until:
            return
        fields = {
            "brokerAddr": broker.identity.address,
            "brokerId": str(replication.own_id),
            "epoch": str(replication.last_epoch()),
            "maxOffset": str(replication.max_offset()),
            "confirmOffset": str(replication.confirm_offset()),
            "heartbeatTimeoutMills": str(keys.controller_heart_beat_timeout_mills),
            "electionPriority": str(keys.broker_election_priority),
            "confirmsElection": "true",
            "heartbeatInterval": str(self.pause_ms),
        }
        with broker.world.clock.move_on_after(keys.send_heartbeat_timeout_millis / 1000):
            async with trio.open_nursery() as nursery:
                for address in self._addresses():
                    nursery.start_soon(self._controllers.heartbeat, address, fields)
        if before:
            replication.doubt()  # what was said before this was said of one that was not heard

    async def _obstacle(self) -> str:
        """Why this broker had better not be master now; "": it may."""
        elected, patience_s = self._elected(), self._broker.options.broker.controller_heart_beat_timeout_mills / 1000
        if elected is not None and self._broker.world.clock.monotonic() - elected.since >= patience_s:
            self._failed_epoch = elected.epoch
            return "it was elected, and has not taken the role in time"
        if not self._replication.gives_up:
            self._others_live = None  # a later question begins anew
            return ""
        if not self._asking:
            self._asking = True
            try:
                await self._ask_who_lives()
            finally:
                self._asking = False
        why = self._replication.gives_up  # the disk may have answered meanwhile
        needed = bool(why) and not self._others_live
        if needed and not self._needed and self._others_live is not None:
            log.error("this master stays: the controllers hear nobody else of its set", in_the_way=why)
        self._needed = needed and self._others_live is not None
        return "" if needed else why

    async def _ask_who_lives(self) -> None:
        """Learn whether another one may be elected; while no controller says so, what was said last counts."""
        leader = self._leader()
        if leader:
            with contextlib.suppress(UnansweredError, RefusedError):
                living = await self._controllers.living_members(leader)
                self._others_live = bool(living - {self._replication.own_id})

    def led(self, epoch: int) -> None:
        """Know that the role of *epoch* is in force."""
        if epoch >= self._failed_epoch >= 0:
            self._failed_epoch, self._silent_until = -1, float("-inf")

    def cannot_lead(self, epoch: int, why: str) -> None:
        """Know that this broker cannot become the master of *epoch*; after the second try another one is to lead."""
        if epoch == self._failed_epoch:
            self._give_up(why)
        self._failed_epoch = epoch

    def _give_up(self, why: str) -> None:
        now, keys = self._broker.world.clock.monotonic(), self._broker.options.broker
        self._hang_up(why if now >= self._silent_until else "")
        self._silent_until = now + keys.controller_heart_beat_timeout_mills / 1000

    def _hang_up(self, why: str) -> None:
        if why:
            log.error("this broker cannot lead: it is silent, so that the controllers elect another one", why=why)
        for address in self._addresses():
            connection = self._broker.client.open_connection(address)
            if connection is not None:
                connection.close("this broker cannot lead")
