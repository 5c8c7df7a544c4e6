"""The parts of an acting slave that its escapes need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from understudy.broker.node import Node
from understudy.broker.topics import TopicTable
from understudy.remoting.client import RemotingClient
from understudy.store.message_store import MessageStore

if TYPE_CHECKING:
    from understudy.broker.broker import Broker


@attrs.frozen
class EscapeParts:
    """Where escapes come from.

    Attributes:
        node: whose messages escape; its own group is never chosen.
        client: connections to name servers and remote masters.
        name_servers: returns their addresses.
        topics: of the group.
        store: the copy of the master's log.
        delay_levels_ms: delay of level 1, 2, ...
    """

    node: Node
    client: RemotingClient
    name_servers: Callable[[], Sequence[str]]
    topics: TopicTable
    store: MessageStore
    delay_levels_ms: Sequence[int]


def escape_parts(broker: Broker) -> EscapeParts:
    """Return the parts of *broker*, which has started."""
    return EscapeParts(
        broker.node,
        broker.client,
        lambda: broker.registration.name_servers,
        broker.topics,
        broker.store,
        broker.delay_levels_ms,
    )
