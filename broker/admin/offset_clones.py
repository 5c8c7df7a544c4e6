"""Gives a group the offsets of another one (314).

Source: AdminBrokerProcessor.java, ConsumerOffsetManager.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from understudy.broker.admin.progress import subscribed
from understudy.broker.clients import ConsumerTable
from understudy.broker.offsets import OffsetTable
from understudy.broker.persistence import Persistence
from understudy.broker.topics import TopicTable
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import optional, optional_bool, required
from understudy.remoting.server import RemotingServer
from understudy.runtime.pace import Pace
from understudy.runtime.world import World

if TYPE_CHECKING:
    from understudy.broker.broker import Broker


@attrs.frozen
class CloneParts:
    """What of a broker is needed to clone offsets.

    Attributes:
        world: clock and load.
        topics, offsets, consumers: the tables.
        persistence: saves the tables.
    """

    world: World
    topics: TopicTable
    offsets: OffsetTable
    consumers: ConsumerTable[Connection]
    persistence: Persistence


def register(broker: Broker, server: RemotingServer) -> None:
    """Clone offsets of *broker* as asked on *server*."""
    handlers = OffsetClones(
        CloneParts(
            world=broker.world,
            topics=broker.topics,
            offsets=broker.offsets,
            consumers=broker.consumers,
            persistence=broker.persistence,
        )
    )
    server.register_async(RequestCode.CLONE_GROUP_OFFSET, handlers.clone)


class OffsetClones:
    """Handler over one broker's offsets."""

    def __init__(self, parts: CloneParts) -> None:
        self._parts = parts

    async def clone(self, connection: Connection, command: Command) -> Command:
        """Give a group the offsets of another one, of one topic or of all (314).

        Differs from the reference, which answers success but does nothing when no topic is named.
        """
        source, target = required(command, "srcGroup"), required(command, "destGroup")
        topic, offsets = optional(command, "topic"), self._parts.offsets
        wanted = [topic] if topic and topic.strip() else offsets.topics_of(source)
        if not optional_bool(command, "offline"):
            wanted = subscribed(self._parts.consumers, source, wanted)
        async with Pace(self._parts.world) as pace:
            for name in wanted:
                if self._parts.topics.get(name) is not None:
                    await pace.run(offsets.clone(source, target, name))
                await pace.breathe()
        await self._parts.persistence.save("offsets")
        return response(command)
