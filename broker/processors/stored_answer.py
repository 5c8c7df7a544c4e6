"""Answers to requests that stored something small and must be as safe as an acknowledged send."""

from __future__ import annotations

import attrs

from understudy.broker.acknowledgement import Acknowledgements
from understudy.broker.identity import Identity
from understudy.broker.message_store_config import MessageStoreConfig
from understudy.broker.replication import Replication
from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import ONEWAY_BIT, Command
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer
from understudy.remoting.fields import CommandError
from understudy.remoting.frame import encode


@attrs.frozen
class StoredAnswers:
    """Holds an answer back until what it confirms is durable and copied as the broker's settings want it.

    Attributes:
        identity: its role says whether copies are waited for.
        keys: the kind of flush.
        acknowledgements: answers that wait.
        replication: copies.
    """

    identity: Identity
    keys: MessageStoreConfig
    acknowledgements: Acknowledgements
    replication: Replication

    @property
    def flushes(self) -> bool:
        """Whether answers wait for the disk."""
        return self.keys.flush_disk_type == "SYNC_FLUSH"

    def copies(self) -> int:
        """Return how many copies there must be; asked before anything is stored. Raises :class:`CommandError`."""
        if not self.identity.role.waits_for_copies:
            return 1
        needed = self.replication.copies_needed()
        if needed is None:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
        if self.acknowledgements.full:
            raise CommandError(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, too many requests wait for copies")
        return needed

    def answer(self, connection: Connection, command: Command, answer: Command, end: int, copies: int) -> Answer:
        """Return *answer*, or ``None`` when it is sent later.

        Args:
            connection, command: whom to answer, and what.
            answer: the success.
            end: byte of the log behind what it confirms.
            copies: as of :meth:`copies`.
        """
        if command.flag & ONEWAY_BIT or (copies <= 1 and not self.flushes):
            return answer
        self.acknowledgements.add(end, connection, encode(answer), copies)
        self.replication.log_grew()
        return None
