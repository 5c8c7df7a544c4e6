"""Who is connected: producers and consumers of each group, as their heartbeats tell.

Pure tables over opaque connections; the caller sends notifications and closes connections.

Source: ConsumerManager.java, ConsumerGroupInfo.java, ProducerManager.java, ClientHousekeepingService.java.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Hashable
from typing import Generic, TypeVar

import attrs

from understudy.broker.filters import Subscription

CONSUME_ACTIVELY, CONSUME_PASSIVELY, CONSUME_POP = "CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"
CLUSTERING, BROADCASTING = "CLUSTERING", "BROADCASTING"

PRODUCER_EXPIRY_MS = 120_000
SUBSCRIPTIONS_OF_A_STEP = 256

C = TypeVar("C", bound=Hashable)


@attrs.define(eq=False)
class ClientChannel(Generic[C]):
    """One client of one group on one connection.

    Each group has an object of its own: the reference shares one between all groups of a client, so that a group the
    client left looks alive as long as the client lives.
    """

    connection: C
    client_id: str
    language: str
    version: int
    last_seen_ms: int


@attrs.define(eq=False)
class ConsumerGroup(Generic[C]):
    """What the live members of a consumer group say about it."""

    name: str
    consume_type: str = CONSUME_PASSIVELY
    message_model: str = CLUSTERING
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    channels: dict[C, ClientChannel[C]] = attrs.Factory(dict)
    subscriptions: dict[str, Subscription] = attrs.Factory(dict)
    changed_ms: int = 0

    @property
    def broadcasting(self) -> bool:
        """Whether every member gets every message."""
        return self.message_model == BROADCASTING

    def client_ids(self) -> list[str]:
        """Return the members' ids, each once, oldest first."""
        return list(dict.fromkeys(channel.client_id for channel in self.channels.values()))

    def channel_of(self, client_id: str) -> ClientChannel[C] | None:
        """Return the channel of a member."""
        for channel in self.channels.values():
            if channel.client_id == client_id:
                return channel
        return None

    def taking(self, wanted: Collection[Subscription]) -> Generator[None, None, bool]:
        """Replace the subscriptions by *wanted*, all at once after some steps; return whether a topic came or went.

        A topic that stays is replaced only by a newer version; that is no change for the members.
        """
        while True:
            before, incoming = self.subscriptions, dict[str, Subscription]()
            for number, subscription in enumerate(wanted):
                known = before.get(subscription.topic)
                newer = known is None or subscription.version > known.version
                incoming[subscription.topic] = subscription if newer or known is None else known
                if number % SUBSCRIPTIONS_OF_A_STEP == SUBSCRIPTIONS_OF_A_STEP - 1:
                    yield
            if self.subscriptions is before:  # else another member has changed them meanwhile
                break
        changed = incoming.keys() != self.subscriptions.keys()
        self.subscriptions = incoming
        return changed


class ConsumerTable(Generic[C]):
    """Every consumer group with live members.

    Attributes:
        groups: group name to what is known of it.
        fingerprints: group name to the last heartbeat fingerprint (second heartbeat form).
    """

    def __init__(self) -> None:
        self.groups: dict[str, ConsumerGroup[C]] = {}
        self.fingerprints: dict[str, int] = {}
        self._by_connection: dict[C, set[str]] = {}

    def get(self, group: str) -> ConsumerGroup[C] | None:
        """Return the live group *group*."""
        return self.groups.get(group)

    def registering(
        self,
        group: str,
        channel: ClientChannel[C],
        consume_type: str,
        message_model: str,
        consume_from_where: str,
        subscriptions: Collection[Subscription] | None,
        now_ms: int,
    ) -> Generator[None, None, bool]:
        """Take one group of a heartbeat, in steps; its subscriptions change all at once in the last one.

        Args:
            subscriptions: the whole set; ``None`` leaves what is known (heartbeat without subscriptions).

        Returns:
            Whether members must be told: a new channel, or a topic that came or went.
        """
        info = self.groups.get(group)
        if info is None:
            info = self.groups[group] = ConsumerGroup(group)
        info.consume_type, info.message_model = consume_type, message_model
        info.consume_from_where = consume_from_where
        known = info.channels.get(channel.connection)
        changed = known is None or known.client_id != channel.client_id
        if known is not None and not changed:
            known.last_seen_ms = now_ms
            known.language, known.version = channel.language, channel.version
        else:
            info.channels[channel.connection] = channel
            self._by_connection.setdefault(channel.connection, set()).add(group)
        if subscriptions is not None and (yield from info.taking(subscriptions)):
            changed = True
        info.changed_ms = now_ms
        return changed

    def unregister(self, group: str, connection: C, client_id: str | None = None) -> bool:
        """Take a client out of a group; return whether it was in it."""
        info = self.groups.get(group)
        if info is None:
            return False
        channel = info.channels.get(connection)
        if channel is None or (client_id is not None and channel.client_id != client_id):
            channel = info.channel_of(client_id) if client_id is not None else None
        if channel is None:
            return False
        self._drop(info, channel.connection)
        return True

    def close(self, connection: C) -> list[str]:
        """Take a connection out of every group; return the groups that lost a member and still have others."""
        touched = []
        for group in sorted(self._by_connection.get(connection, ())):
            info = self.groups.get(group)
            if info is not None and connection in info.channels:
                self._drop(info, connection)
                if group in self.groups:
                    touched.append(group)
        self._by_connection.pop(connection, None)
        return touched

    def expired(self, now_ms: int, after_ms: int) -> list[C]:
        """Return connections on which some group was silent for more than *after_ms*."""
        silent: dict[C, None] = {}
        for info in self.groups.values():
            for connection, channel in info.channels.items():
                if now_ms - channel.last_seen_ms > after_ms:
                    silent[connection] = None
        return list(silent)

    def groups_of_topic(self, topic: str) -> list[str]:
        """Return the live groups that subscribe to *topic*."""
        return [group for group, info in self.groups.items() if topic in info.subscriptions]

    def find_subscription(self, group: str, topic: str) -> Subscription | None:
        """Return what *group* wants of *topic*."""
        info = self.groups.get(group)
        return None if info is None else info.subscriptions.get(topic)

    def swap_fingerprint(self, group: str, fingerprint: int) -> bool:
        """Remember the fingerprint of a heartbeat; return whether a different one was known."""
        known = self.fingerprints.get(group)
        self.fingerprints[group] = fingerprint
        return known is not None and known != fingerprint

    def _drop(self, info: ConsumerGroup[C], connection: C) -> None:
        del info.channels[connection]
        groups = self._by_connection.get(connection)
        if groups is not None:
            groups.discard(info.name)
            if not groups:
                del self._by_connection[connection]
        if not info.channels:
            del self.groups[info.name]
            self.fingerprints.pop(info.name, None)


class ProducerTable(Generic[C]):
    """Every producer group with live members.

    Attributes:
        groups: group name to its channels by connection.
    """

    CHECK_BACK_TRIES = 3

    def __init__(self) -> None:
        self.groups: dict[str, dict[C, ClientChannel[C]]] = {}
        self._by_connection: dict[C, dict[str, None]] = {}
        self._by_client: dict[str, C] = {}
        self._turn = -1

    def register(self, group: str, channel: ClientChannel[C]) -> None:
        """Take one producer group of a heartbeat."""
        channels = self.groups.setdefault(group, {})
        known = channels.get(channel.connection)
        if known is not None and known.client_id == channel.client_id:
            known.last_seen_ms = channel.last_seen_ms
        else:
            channels[channel.connection] = channel
            self._by_connection.setdefault(channel.connection, {})[group] = None
        self._by_client[channel.client_id] = channel.connection

    def unregister(self, group: str, connection: C, client_id: str | None = None) -> bool:
        """Take a client out of a group; return whether it was in it."""
        channel = self.groups.get(group, {}).get(connection)
        if channel is None or (client_id is not None and channel.client_id != client_id):
            return False
        own = self._by_connection[connection]
        del own[group]
        if not own:
            del self._by_connection[connection]
        self._leave(group, connection)
        return True

    def close(self, connection: C) -> None:
        """Take a connection out of every group."""
        for group in self._by_connection.pop(connection, ()):
            self._leave(group, connection)

    def expired(self, now_ms: int, after_ms: int = PRODUCER_EXPIRY_MS) -> list[C]:
        """Return connections on which some group was silent for more than *after_ms*."""
        silent: dict[C, None] = {}
        for channels in self.groups.values():
            for connection, channel in channels.items():
                if now_ms - channel.last_seen_ms > after_ms:
                    silent[connection] = None
        return list(silent)

    def in_turn(self, group: str) -> list[C]:
        """Return connections of *group* to try one after the other; each question begins with another one."""
        connections = list(self.groups.get(group, ()))
        if not connections:
            return []
        self._turn += 1
        first = self._turn % len(connections)
        return (connections[first:] + connections[:first])[: self.CHECK_BACK_TRIES]

    def find_client(self, client_id: str) -> C | None:
        """Return the connection of the producer *client_id*."""
        return self._by_client.get(client_id)

    def _leave(self, group: str, connection: C) -> None:
        channels = self.groups[group]
        channel = channels.pop(connection)
        if not channels:
            del self.groups[group]
        if self._by_client.get(channel.client_id) == connection and connection not in self._by_connection:
            del self._by_client[channel.client_id]
