"""The clients of a proxy: what each has said of itself, and how it is reached."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator

import attrs

from understudy.proxy.core.access import refused
from understudy.proxy.core.callers import Caller
from understudy.proxy.core.durations import to_ms
from understudy.proxy.core.statuses import ProxyError
from understudy.proxy.grpc.call import Call
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.runtime.clock import Clock
from understudy.runtime.signal import Signal

EXPIRES_SECONDS = 120.0
"""A client that says nothing for so long, and has no open stream, is gone."""
MOST_CLIENTS = 100_000
_LOOKED_AT = 256
"""Clients that are looked at in one step: a fraction of a millisecond."""
_SETTINGS_SECONDS = 3.0
"""How long a receive waits for settings that are on their way."""


@attrs.define(eq=False)
class Client:
    """One client.

    Attributes:
        caller: as of its newest settings; its id belongs to its user.
        settings: as it brought them; ``None`` until it has.
        streams: its open telemetry streams that have brought settings, the newest last.
        seen_at: monotonic seconds of its last sign of life.
        waited: its settings were waited for in vain.
        topics: to which it sends, as of its newest settings; none for a consumer.
    """

    caller: Caller
    seen_at: float
    settings: v2.Settings | None = None
    streams: list[Call] = attrs.field(factory=list)
    waited: bool = False
    topics: frozenset[str] = frozenset()

    @property
    def is_consumer(self) -> bool:
        return self.settings is not None and self.settings.WhichOneof("pub_sub") == "subscription"

    @property
    def group(self) -> str:
        """Its consumer group; empty for a producer."""
        return self.settings.subscription.group.name if self.settings is not None else ""

    @property
    def request_timeout_ms(self) -> int:
        return to_ms(self.settings.request_timeout) if self.settings is not None else 0


class Clients:
    """All of them by id.

    Args:
        clock: for their age.

    Attributes:
        changes: set when a client has brought settings.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_id: dict[str, Client] = {}
        self._senders: dict[str, dict[Client, None]] = {}
        self.changes = Signal()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Client]:
        return iter(list(self._by_id.values()))

    def get(self, client_id: str) -> Client | None:
        """Return the client of that id, if it is known."""
        return self._by_id.get(client_id)

    def _of(self, caller: Caller) -> Client | None:
        """Return the client that calls, if it is known.

        An id belongs to the user who came with it first, until its client expires or terminates: what an id is sent,
        and what it holds, is for that user alone.

        Raises:
            ProxyError: it is another user's (40100).
        """
        client = self._by_id.get(caller.client_id)
        if client is not None and None not in (client.caller.user, caller.user) and client.caller.user != caller.user:
            raise refused("this client id is another user's; choose one of your own")
        return client

    def _noted(self, caller: Caller) -> Client:
        """Return the client that calls, a new one if it is. Raises :class:`ProxyError` (42900, 40100)."""
        client = self._of(caller)
        if client is None:
            if len(self._by_id) >= MOST_CLIENTS:
                raise ProxyError(v2.TOO_MANY_REQUESTS, f"this proxy has {MOST_CLIENTS} clients; use another one")
            client = self._by_id[caller.client_id] = Client(caller, self._clock.monotonic())
        return client

    def settle(self, caller: Caller, settings: v2.Settings, stream: Call) -> Client:
        """Take a client's settings in place of those it had, and note the telemetry stream that they came by.

        Args:
            caller: who calls.
            settings: checked, and of what its user may.
            stream: from now on the client is reached by it.

        Raises:
            ProxyError: there are too many clients (42900), or the id is another user's (40100).
        """
        client = self._noted(caller)
        client.caller, client.settings = caller, settings
        self._send_to(client, frozenset(topic.name for topic in settings.publishing.topics))
        client.seen_at = self._clock.monotonic()
        if stream not in client.streams:
            client.streams.append(stream)
        self.changes.set()
        return client

    def closed(self, client: Client, stream: Call) -> None:
        """Take note that a stream has ended; the client stays until it expires or terminates."""
        client.streams.remove(stream)
        client.seen_at = self._clock.monotonic()

    def terminate(self, caller: Caller) -> None:
        """Drop the client that calls. Raises :class:`ProxyError` (40015: it is not known, 40100)."""
        self.forget(self._of(caller) or self.known(caller))

    def forget(self, client: Client) -> None:
        """Drop a client that has terminated."""
        if self._by_id.get(client.caller.client_id) is client:
            del self._by_id[client.caller.client_id]
            self._send_to(client, frozenset())

    def _send_to(self, client: Client, topics: frozenset[str]) -> None:
        """Take note of the topics to which a client sends, in place of those it sent to before."""
        for topic in client.topics - topics:
            del self._senders[topic][client]
            if not self._senders[topic]:
                del self._senders[topic]
        for topic in topics - client.topics:
            self._senders.setdefault(topic, {})[client] = None
        client.topics = topics

    def senders(self, topic: str) -> list[Client]:
        """Return the clients that send to *topic*."""
        return list(self._senders.get(topic, ()))

    @property
    def sent_topics(self) -> list[str]:
        """The topics to which some client sends, in order."""
        return sorted(self._senders)

    def known(self, caller: Caller) -> Client:
        """Return the client that calls, as one that lives. Raises :class:`ProxyError` (40015: no settings, 40100)."""
        client = self._of(caller)
        if client is not None:
            client.seen_at = self._clock.monotonic()
        if client is None or client.settings is None:
            raise ProxyError(
                v2.UNRECOGNIZED_CLIENT_TYPE, "cannot find client settings for this client: send them by telemetry first"
            )
        return client

    async def settled(self, caller: Caller) -> Client:
        """Return the client that calls; waits a moment for settings, which come on another stream.

        Who brings none is served without: not every client does again that has lost its proxy, and its calls say all
        that is needed. Differs: the reference answers 50001, and goes on with it.

        Raises:
            ProxyError: there are too many clients (42900), or the id is another user's (40100).
        """
        client = self._of(caller)
        if client is None or (client.settings is None and not client.waited):
            with self._clock.move_on_after(_SETTINGS_SECONDS):
                while (client := self._by_id.get(caller.client_id)) is None or client.settings is None:
                    await self.changes.wait()
            client = self._noted(caller)
            client.waited = client.settings is None
        client.seen_at = self._clock.monotonic()
        return client

    def expire(self) -> Generator[None, None, float]:
        """Forget clients that are gone, in steps; return when to look again, in monotonic seconds."""
        now, due = self._clock.monotonic(), math.inf
        for number, client in enumerate(self):
            if not number % _LOOKED_AT:
                yield
            if client.streams:
                continue
            if client.seen_at < now - EXPIRES_SECONDS:
                self.forget(client)
            else:
                due = min(due, client.seen_at + EXPIRES_SECONDS)
        return due
