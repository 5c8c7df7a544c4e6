"""The parts of an acting slave that its escapes need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from understudy.broker.broker_config import BrokerConfig
from understudy.broker.identity import Identity
from understudy.broker.message_store_config import MessageStoreConfig
from understudy.broker.topics import TopicTable
from understudy.remoting.client import RemotingClient
from understudy.runtime.clock import Clock
from understudy.runtime.threads import Threads
from understudy.store.message_store import MessageStore

if TYPE_CHECKING:
    from understudy.broker.broker import Broker


@attrs.frozen
class Home:
    """Where escapes come from.

    Attributes:
        identity: its group is never chosen.
        clock: wall and monotonic time.
        threads: for large answers.
        client: connections to name servers and remote masters.
        name_servers: returns their addresses.
        topics: of the group.
        store: the copy of the master's log.
        delay_levels_ms: delay of level 1, 2, ...
        settings, store_settings: may change at any time.
    """

    identity: Identity
    clock: Clock
    threads: Threads
    client: RemotingClient
    name_servers: Callable[[], Sequence[str]]
    topics: TopicTable
    store: MessageStore
    delay_levels_ms: Sequence[int]
    settings: BrokerConfig
    store_settings: MessageStoreConfig


def home_of(broker: Broker) -> Home:
    """Return the parts of *broker*, which has started."""
    return Home(
        broker.identity,
        broker.world.clock,
        broker.world.threads,
        broker.client,
        lambda: broker.registration.name_servers,
        broker.topics,
        broker.store,
        broker.delay_levels_ms,
        broker.options.broker,
        broker.options.store,
    )
