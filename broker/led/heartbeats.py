"""What a broker tells all its controllers again and again, and its silence when it cannot be the master that it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from understudy.broker.led.controllers import Controllers
from understudy.broker.led.incarnation import StoreIncarnation
from understudy.broker.led.replication import LedReplication
from understudy.runtime.log import get_logger

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

log = get_logger("broker.led")


class Heartbeats:
    """The heartbeats of one broker.

    A master that cannot write, and a broker that was elected and cannot take the role, or has not taken it after the
    time in which the controllers miss a silent one (its disk hangs, say), are silent and hang up: so the controllers,
    those of the reference, too, elect another one. For a while only: nobody else may be there, and what is in the way
    may end.

    Args:
        broker: whose.
        replication: of the broker.
        controllers: who hear them.
        addresses: returns where the controllers are.
        incarnation: of the broker's store.
    """

    def __init__(
        self,
        broker: Broker,
        replication: LedReplication,
        controllers: Controllers,
        addresses: Callable[[], Iterable[str]],
        incarnation: StoreIncarnation,
    ) -> None:
        self._broker = broker
        self._replication = replication
        self._controllers = controllers
        self._addresses = addresses
        self._incarnation = incarnation
        self._silent_until = float("-inf")
        self._failed_epoch = -1
        self._taking: tuple[int, float] | None = None

    async def send(self) -> None:
        """Tell all controllers that the broker lives, unless it had better not be elected."""
        broker, replication, keys = self._broker, self._replication, self._broker.options.broker
        if broker.store.disk_failed:
            await self._incarnation.end()
        if replication.gives_up:
            self._give_up("its disk has failed, and others can lead")
        if self._taking is not None:
            epoch, since = self._taking
            if broker.world.clock.monotonic() - since >= keys.controller_heart_beat_timeout_mills / 1000:
                self._failed_epoch = epoch
                self._give_up("it was elected, and has not taken the role in time")
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
            "heartbeatInterval": str(keys.broker_heartbeat_interval),
        }
        with broker.world.clock.move_on_after(keys.send_heartbeat_timeout_millis / 1000):
            async with trio.open_nursery() as nursery:
                for address in self._addresses():
                    nursery.start_soon(self._controllers.heartbeat, address, fields)

    @contextmanager
    def taking(self, epoch: int) -> Iterator[None]:
        """While this lasts, know that this broker is to become the master of *epoch* and is not yet."""
        self._taking = (epoch, self._broker.world.clock.monotonic())
        try:
            yield
        finally:
            self._taking = None

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
        if now >= self._silent_until:
            log.error("this broker cannot lead: it is silent, so that the controllers elect another one", why=why)
        self._silent_until = now + keys.controller_heart_beat_timeout_mills / 1000
        for address in self._addresses():
            connection = self._broker.client.open_connection(address)
            if connection is not None:
                connection.close("this broker cannot lead")
