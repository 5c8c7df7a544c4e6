"""What brokers may ask of each other when one of them puts or reads messages in the place of its master.

This is all that brokers of a container know of each other, and every question may wait: a neighbour can live in this
container, in another process, or on another machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs

from understudy.broker.inner import InnerMessage
from understudy.broker.topics import TopicConfig
from understudy.broker.transactions.half import Half
from understudy.broker.transactions.judgement import Choice
from understudy.format.record import Record, RecordError, decode_records
from understudy.store.status import PutStatus


@attrs.frozen
class Found:
    """The result of a read.

    Attributes:
        record: the message, ``None`` when there is none.
        why: a word for logs.
        retry: it could not be asked for; asking again later may help.
        lacks: who was asked does not have it, but its queue does not begin behind it: it may only be behind, or damaged
            there. Differs because the reference takes the word of any replica.
    """

    record: Record | None
    why: str
    retry: bool
    lacks: bool = False


@attrs.frozen
class Prepared:
    """Where a half message stands at another broker.

    Attributes:
        queue_offset, physical_offset: its queue offset, and where it begins in the log.
    """

    queue_offset: int
    physical_offset: int


class Neighbour(Protocol):
    """Another broker."""

    async def put(self, messages: Sequence[InnerMessage], may: Callable[[], bool]) -> list[PutStatus]:
        """Store *messages* there, in order, each in the queue it names.

        Args:
            messages: are left as they are.
            may: asked right before any of them goes; nothing is done from when it says no.

        Returns:
            For each what became of it. ``PUT_OK``: it is as safe as an acknowledged send there, or it is not to be put
            again although nobody can tell (:mod:`~understudy.container.escape.late`).
        """
        ...

    async def read(self, topic: str, queue_id: int, offset: int) -> Found:
        """Return the message at queue offset *offset*."""
        ...

    async def prepare(self, half: InnerMessage, may: Callable[[], bool]) -> Prepared | None:
        """Store *half* as a half message, once however often it is asked to.

        Args:
            half: as :meth:`~understudy.broker.transactions.half.Half.escaped` makes it.
            may: asked right before it goes; nothing is done when it says no.

        Returns:
            Where it stands once it is as safe as an acknowledged send there, or nobody can tell and it is not to be
            put again; ``None``: it may be tried again.
        """
        ...

    async def decide(self, half: Half, prepared: Prepared, choice: Choice) -> bool:
        """Carry a producer's decision about *half*, which was prepared there, out; return whether that is certain."""
        ...


class Beside(Neighbour, Protocol):
    """A broker of the same container."""

    @property
    def broker_name(self) -> str:
        """The name of its group: who it is, and nothing to ask it."""
        ...

    async def takes_messages(self) -> bool:
        """Whether it is a master that name servers know."""
        ...

    async def write_queues(self, topic: str) -> int:
        """Return how many queues of *topic* can be written there, 0 when it does not have the topic."""
        ...

    async def learn(self, row: TopicConfig) -> bool:
        """Make the topic of *row* there if it is not there yet; return whether it is there now."""
        ...


def first_record(parts: Sequence[memoryview], missing: str, *, lacks: bool) -> Found:
    """Return the first record of *parts*; without one, *missing* is why; see :class:`Found` for *lacks*."""
    for part in parts:
        try:
            for record in decode_records(part):
                return Found(record, "", False)
        except RecordError as error:
            return Found(None, f"the message cannot be read: {error}", False, lacks)
    return Found(None, missing, False, lacks)
