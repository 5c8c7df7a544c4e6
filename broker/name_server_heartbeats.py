"""Light heartbeats to name servers, as brokers send them whose slaves may act for them.

Source: BrokerController.java (sendHeartbeat), BrokerOuterAPI.java.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from understudy.broker.config import BrokerOptions
from understudy.broker.identity import Identity
from understudy.broker.registration import Registration
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import ResponseCode
from understudy.remoting.errors import RemotingError
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger

log = get_logger("broker.heartbeats")


class NameServerHeartbeats:
    """The heartbeats of one broker.

    Args:
        clock: when the next one is due.
        options: read anew each time.
        identity: who the broker is.
        registration: to whom they go, and whether they may.
        client: connections to name servers.
        not_known: called when a name server answers that it does not know this broker. Those that know 904 never say
            so; the member view finds it out then.
    """

    def __init__(
        self,
        clock: Clock,
        options: BrokerOptions,
        identity: Identity,
        registration: Registration,
        client: RemotingClient,
        not_known: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._options = options
        self._name = identity.canonical_name
        self._registration = registration
        self._client = client
        self._not_known = not_known

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        broker, registration = self._options.broker, self._registration
        while True:
            async with trio.open_nursery() as nursery:
                for address in registration.name_servers if not registration.isolated else ():
                    nursery.start_soon(self._beat, address)
                nursery.start_soon(self._clock.sleep, broker.broker_heartbeat_interval / 1000)

    async def _beat(self, address: str) -> None:
        broker, registration = self._options.broker, self._registration
        timeout_ms = broker.send_heartbeat_timeout_millis
        try:
            if not broker.compatible_with_old_name_srv:
                await self._client.invoke_oneway(address, registration.requests.heartbeat(), timeout_ms)
                return
            answer = await self._client.invoke(address, registration.requests.ask_version(), timeout_ms)
        except RemotingError as error:
            log.debug("heartbeat not sent", name_server=address, why=error)
            return
        if answer.code == ResponseCode.SUCCESS and not answer.body and not registration.isolated:
            log.info("not known, registering", broker=self._name, name_server=address)
            self._not_known()
