"""Where a broker puts what falls due: the target of its deferred queues, injected so that no broker knows another.

A master's target is its own log. A slave that acts must not write to its log; what hosts it brings a target that knows
its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from understudy.broker.inner import InnerMessage, append
from understudy.store.message_store import MessageStore
from understudy.store.status import PutRejected, PutStatus

STORED = frozenset(
    {
        PutStatus.PUT_OK,
        PutStatus.FLUSH_DISK_TIMEOUT,
        PutStatus.FLUSH_SLAVE_TIMEOUT,
        PutStatus.SLAVE_NOT_AVAILABLE,
    }
)
"""The message is in a log; with all but the first, its disk or its copies are late."""


class Redelivery(Protocol):
    """Takes due messages."""

    async def put(self, messages: Sequence[InnerMessage]) -> list[PutStatus]:
        """Put *messages* where consumers find them, in order.

        Returns:
            For each message what became of it, once those that are stored are as safe as an acknowledged send, or late.
            One that is not stored may be put again.
        """
        ...


class OwnLog:
    """The log of a master as the target of its own due messages.

    Args:
        store: the log.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    async def put(self, messages: Sequence[InnerMessage]) -> list[PutStatus]:
        """Append *messages* until one is refused; those behind it are refused for the same reason."""
        for number, message in enumerate(messages):
            try:
                append(self._store, message)
            except PutRejected as error:
                return [PutStatus.PUT_OK] * number + [error.status] * (len(messages) - number)
        return [PutStatus.PUT_OK] * len(messages)
