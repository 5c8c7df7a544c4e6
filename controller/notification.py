"""Tells brokers who their master is (request 1008, one-way). Lost ones do not matter: brokers also ask."""

from __future__ import annotations

import msgspec
import trio

from understudy.controller.group import Group
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal

log = get_logger("controller.notification")

WORKERS = 16
TIMEOUT_MS = 3000
MAX_WAITING = 100_000


class RoleNotifier:
    """Sends the newest role of each broker; an older one still waiting is replaced.

    Args:
        client: where to send from.
    """

    def __init__(self, client: RemotingClient) -> None:
        self._client = client
        self._waiting: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self._more = Signal()

    def tell(self, group: Group, addresses: list[str]) -> None:
        """Queue the group's master for each of *addresses*; without a master nothing is sent."""
        address = group.master_address()
        if group.master_id is None or address is None:
            return
        fields = {
            "masterAddress": address,
            "masterBrokerId": str(group.master_id),
            "syncStateSetEpoch": str(group.set_epoch),
            "masterEpoch": str(group.master_epoch),
        }
        body = set_body(group.sync_state_set, group.set_epoch)
        for broker in addresses:
            former = self._waiting.get(broker)
            has_room = former is not None or len(self._waiting) < MAX_WAITING
            if has_room and (former is None or former[0] <= group.master_epoch):
                self._waiting[broker] = (group.master_epoch, fields, body)
        self._more.set()

    async def run(self) -> None:
        """Send until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(WORKERS):
                nursery.start_soon(self._work)

    async def _work(self) -> None:
        while True:
            while not self._waiting:
                await self._more.wait()
            broker = next(iter(self._waiting))
            _, fields, body = self._waiting.pop(broker)
            command = request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, fields, body, oneway=True)
            try:
                await self._client.invoke_oneway(broker, command, TIMEOUT_MS)
            except RemotingError as error:
                log.warning("role not delivered, the broker will ask", broker=broker, reason=error)


def set_body(sync_state_set: list[int], epoch: int) -> bytes:
    """Return a sync state set as the body of requests and answers."""
    return msgspec.json.encode({"syncStateSet": sync_state_set, "syncStateSetEpoch": epoch})
