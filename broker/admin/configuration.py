"""The broker's configuration, read and changed while it runs (25, 26).

Source: AdminBrokerProcessor.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from understudy.remoting.codes import RequestCode
from understudy.remoting.server import RemotingServer
from understudy.remoting.settings_requests import SettingsRequests

if TYPE_CHECKING:
    from understudy.broker.broker import Broker


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer configuration requests of *broker* on *server*."""

    async def settled(texts: Mapping[str, str]) -> None:
        broker.settings_changed()
        if "brokerPermission" in texts:
            broker.topics.touch()
            await broker.registration.settled()

    requests = SettingsRequests(broker.options, broker.world.disk, clock=broker.world.clock, settled=settled)
    server.register_async(RequestCode.UPDATE_BROKER_CONFIG, requests.update)
    server.register(RequestCode.GET_BROKER_CONFIG, requests.get)
