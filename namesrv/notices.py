"""Telling brokers that the smallest id of their group has changed (code 905)."""

from __future__ import annotations

from collections import deque

import trio

from understudy.namesrv.records import MinBrokerIdNotice
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import RemotingError
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal
from understudy.runtime.world import World
from understudy.security.settings import SecuritySettings, secure_calls

log = get_logger("namesrv.notices")

CONNECT_TIMEOUT_MS = 300  # RouteInfoManager.java
QUEUE_PER_TARGET = 64
TARGETS = 1024


def to_command(notice: MinBrokerIdNotice) -> Command:
    """Make the one-way request of *notice* (NotifyMinBrokerIdChangeRequestHeader.java); the name is never filled."""
    ext = {"minBrokerAddr": notice.address, "minBrokerId": str(notice.broker_id)}
    if notice.ha_address is not None:
        ext["haBrokerAddr"] = notice.ha_address
    if notice.offline_address is not None:
        ext["offlineBrokerAddr"] = notice.offline_address
    return request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, ext, oneway=True)


class Notifier:
    """Sends notices in order to each broker, to all brokers at the same time.

    A broker that cannot be reached delays nobody but itself; its notice is lost, as in the reference, and its own
    member poll brings the change a second later. At most :data:`QUEUE_PER_TARGET` wait for one broker.

    Args:
        world: clock and network.
        security: what notices are signed and secured with.
    """

    def __init__(self, world: World, security: SecuritySettings | None = None) -> None:
        self._world = world
        self._security = security or SecuritySettings()
        self._waiting: dict[str, deque[MinBrokerIdNotice]] = {}
        self._new: list[str] = []  # targets without a task
        self._wake = Signal()

    def tell(self, notices: tuple[MinBrokerIdNotice, ...]) -> None:
        """Queue *notices* for their targets."""
        for notice in notices:
            for target in notice.targets:
                self._queue(target, notice)

    def _queue(self, target: str, notice: MinBrokerIdNotice) -> None:
        waiting = self._waiting.get(target)
        if waiting is None:
            if len(self._waiting) >= TARGETS:
                log.warning("notice dropped, too many brokers wait for theirs", target=target, limit=TARGETS)
                return
            waiting = self._waiting[target] = deque(maxlen=QUEUE_PER_TARGET)
            self._new.append(target)
            self._wake.set()
        waiting.append(notice)

    async def run(self) -> None:
        """Send what is queued until cancelled."""
        async with open_client(self._world) as client, trio.open_nursery() as nursery:
            secure_calls(client, self._security)
            while True:
                if not self._new:
                    await self._wake.wait()
                new, self._new = self._new, []
                for target in new:
                    nursery.start_soon(self._send_all, client, target)

    async def _send_all(self, client: RemotingClient, target: str) -> None:
        waiting = self._waiting[target]
        while waiting:
            notice = waiting.popleft()
            try:
                await client.invoke_oneway(target, to_command(notice), CONNECT_TIMEOUT_MS)
            except RemotingError as error:
                log.warning("notice not delivered", target=target, broker=notice.broker_name, why=error)
        del self._waiting[target]
