"""The broker's configuration, read and changed while it runs (25, 26).

Source: AdminBrokerProcessor.java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import attrs

from understudy.broker.registration import Registration
from understudy.broker.topics import TopicTable
from understudy.remoting.codes import RequestCode
from understudy.remoting.server import RemotingServer
from understudy.remoting.settings_requests import SettingsRequests

if TYPE_CHECKING:
    from understudy.broker.broker import Broker


@attrs.frozen
class ConfigurationParts:
    """What a change of the configuration is told to.

    Attributes:
        topics: carry the permission of the broker to name servers.
        registration: tells them.
        changed: tells everything of the broker that waits for nothing else.
    """

    topics: TopicTable
    registration: Registration
    changed: Callable[[], None]


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer configuration requests of *broker* on *server*."""
    changed = ChangedSettings(ConfigurationParts(broker.topics, broker.registration, broker.settings_changed))
    world = broker.world
    requests = SettingsRequests(broker.options, world.disk, clock=world.clock, settled=changed.settled)
    server.register_async(RequestCode.UPDATE_BROKER_CONFIG, requests.update)
    server.register(RequestCode.GET_BROKER_CONFIG, requests.get)


class ChangedSettings:
    """What is done when keys have other values."""

    def __init__(self, parts: ConfigurationParts) -> None:
        self._parts = parts

    async def settled(self, texts: Mapping[str, str]) -> None:
        """Tell the broker, and name servers where it concerns them, of the keys in *texts*."""
        parts = self._parts
        parts.changed()
        if "brokerPermission" in texts:
            parts.topics.touch()
            await parts.registration.settled()
