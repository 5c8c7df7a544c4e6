"""Where a broker puts what falls due: the target of its deferred queues, injected so that no broker knows another.

A master's target is its own log. A slave that acts must not write to its log; what hosts it brings a target that knows
its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import trio

from understudy.broker.inner import InnerMessage, append
from understudy.broker.message_store_config import MessageStoreConfig
from understudy.broker.replication import Replication
from understudy.format.properties import find_property
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal
from understudy.store.message_store import MessageStore
from understudy.store.status import PutRejected, PutStatus

log = get_logger("broker.redelivery")

AT_ONCE = 32
"""Messages that are appended before others have their turn: a millisecond; several queues may be at work."""


class Redelivery(Protocol):
    """Takes due messages."""

    async def put(self, messages: Sequence[InnerMessage]) -> list[PutStatus]:
        """Put *messages* where consumers find them, in order.

        Returns:
            For each message what became of it. ``PUT_OK``: it is as safe as an acknowledged send would be, however
            long that took. Every other one may be put again.
        """
        ...


class OwnLog:
    """The log of a master as the target of due messages, its own and those of its neighbours.

    A message is as safe there as an acknowledged send: durable with ``SYNC_FLUSH``, copied as often as a send of this
    moment with ``SYNC_MASTER``, unless its sender did not want to wait (``WAIT``). Progress that moved earlier would be
    copied to slaves before the message is, and a slave that acts then would take it for delivered.

    Args:
        clock: for deadlines.
        store: the log.
        replication: its copies.
        keys: flush, role and timeouts; read at each put.
    """

    def __init__(self, clock: Clock, store: MessageStore, replication: Replication, keys: MessageStoreConfig) -> None:
        self._clock = clock
        self._store = store
        self._replication = replication
        self._keys = keys
        self._copied = Signal()
        self._given_up = 0
        replication.copies_changed.append(self._copies_changed)

    async def put(self, messages: Sequence[InnerMessage], may: Callable[[], bool] = lambda: True) -> list[PutStatus]:
        """Append *messages* until one is refused, those behind it are refused as well; return when they are safe.

        None of them counts as put when :meth:`give_up` ends the wait.

        Args:
            messages: in order.
            may: asked again whenever others had their turn meanwhile; when it says no, the rest is refused.
        """
        copies = self._replication.copies_in_reach()
        refusal: PutStatus | None = None
        end = end_to_copy = count = 0
        for number, message in enumerate(messages, 1):
            if not number % AT_ONCE:
                await trio.lowlevel.checkpoint()
                if not may():
                    refusal = PutStatus.SERVICE_NOT_AVAILABLE
                    break
            wants_copies = _wants_copies(message)
            if wants_copies and copies is None:
                refusal = PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
                break
            try:
                appended = append(self._store, message)
            except PutRejected as error:
                log.warning("due message refused", topic=message.topic, why=error)
                refusal = error.status
                break
            count += 1
            end = appended.physical_offset + appended.size_bytes
            if wants_copies:
                end_to_copy = end
        if not await self.until_safe(end, end_to_copy):
            return [PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH] * len(messages)
        return [PutStatus.PUT_OK] * count + [refusal or PutStatus.PUT_OK] * (len(messages) - count)

    async def until_safe(self, end: int, end_to_copy: int) -> bool:
        """Return when the log is as safe as its settings promise to senders, or nobody can say so any longer.

        Args:
            end: byte up to which the disk must have it.
            end_to_copy: byte up to which there must be as many copies as a send of this moment needs.

        Returns:
            Whether it is safe; not so when :meth:`give_up` came first.
        """
        given_up = self._given_up
        if self._keys.flush_disk_type == "SYNC_FLUSH":
            while not await self._store.wait_flushed(end, self._keys.sync_flush_timeout):
                if self._given_up != given_up:
                    return False
                log.warning("due messages wait for the disk", end=end)
        # How many copies there must be is asked anew: a slave that has left is not waited for.
        while end_to_copy and not self._has_copies(end_to_copy):
            if self._given_up != given_up:
                return False
            with self._clock.move_on_after(self._keys.slave_timeout / 1000):
                await self._copied.wait()
        return True

    def give_up(self) -> None:
        """End every wait: another broker is master, and its slaves copy from it."""
        self._given_up += 1
        self._copied.set()

    def _has_copies(self, end: int) -> bool:
        copies = self._replication.copies_in_reach()
        return copies is not None and self._replication.copied(copies) >= end

    def _copies_changed(self) -> None:
        self._copied.set()


def _wants_copies(message: InnerMessage) -> bool:
    wish = find_property(message.properties, b"WAIT\x01")
    return wish is None or wish.lower() == b"true"
