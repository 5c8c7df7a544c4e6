"""A producer's decision about its half message (37), and more checks of one that was given up (323).

Source: EndTransactionProcessor.java, AdminBrokerProcessor.java.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from understudy.broker.admin.answers import UNSET_REMARK
from understudy.broker.node import Node
from understudy.broker.processors.send_admission import REJECTION_CODES
from understudy.broker.processors.stored_answer import StoredAnswers
from understudy.broker.session import RoleRules
from understudy.broker.transactions.judgement import Choice, Decision, Refusal
from understudy.broker.transactions.service import Transactions
from understudy.format.record import decode_offset_message_id
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import ONEWAY_BIT, Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer, Lane
from understudy.remoting.fields import CommandError, optional_bool, required, required_int
from understudy.remoting.frame import encode
from understudy.remoting.server import RemotingServer
from understudy.store.status import PutRejected

LANE = "transaction"
_CHOICES = {int(choice): choice for choice in Choice}
OPENING_SECONDS = 3.0
"""How long a decision waits while the broker learns which half messages there are."""


@attrs.frozen
class EndTransactionParts:
    """What of a broker is needed to take decisions.

    Attributes:
        node: who it is, its settings and its world.
        transactions: the half messages.
        stored: answers that wait until an outcome is safe.
        rules: returns the rules of the role in force: they say who may decide, and have others do so.
    """

    node: Node
    transactions: Transactions
    stored: StoredAnswers
    rules: Callable[[], RoleRules]


class EndTransactionProcessor:
    """Handlers of the codes of transactions of one broker.

    Args:
        parts: of the broker.
        lane: where decisions wait for another master, or until the half messages are known.
    """

    def __init__(self, parts: EndTransactionParts, lane: Lane) -> None:
        self._parts = parts
        self._lane = lane
        self._identity = parts.node.identity
        self._asked: tuple[Connection, int] | None = None

    def register(self, server: RemotingServer) -> None:
        """Answer the codes at *server*."""
        server.register(RequestCode.END_TRANSACTION, self.end)
        server.register(RequestCode.RESUME_CHECK_HALF_MESSAGE, self.resume)

    def end(self, connection: Connection, command: Command) -> Answer:
        """Carry the decision out; one that is none is not answered, as the reference does."""
        if self._identity.role.is_slave and not self._parts.rules().active:
            remark = f"{UNSET_REMARK}: this is a slave, which decides nothing now; send the decision to its master"
            return response(command, ResponseCode.SLAVE_NOT_AVAILABLE, remark)
        decision = _decision_of(command)
        if decision is None:
            return None
        if self._identity.role.is_slave:
            return self._lane.submit(connection, command, self._end_elsewhere)
        if not self._may_store(connection):
            raise _unavailable()
        if not self._parts.transactions.opened.is_set():
            return self._lane.submit(connection, command, self._end_later)
        return self._decide(connection, command, decision)

    def _may_store(self, connection: Connection) -> bool:
        """Return whether a decision belongs into the own log; asked once for those that came in one receive."""
        asked = (connection, connection.holds) if connection.receiving else None
        if asked is not None and asked == self._asked:
            return True
        allowed = self._parts.rules().may_store
        self._asked = asked if allowed else None
        return allowed

    def resume(self, connection: Connection, command: Command) -> Answer:
        """Have a half message that was given up checked again (323)."""
        message_id = required(command, "msgId")
        try:
            _, _, physical_offset = decode_offset_message_id(message_id)
        except ValueError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        if not (self._parts.rules().may_store and self._parts.transactions.opened.is_set()):
            raise _unavailable()
        try:
            refused = self._parts.transactions.resume(physical_offset)
        except PutRejected as error:
            raise _not_put(error) from None
        if refused is not None:
            raise CommandError(refused.code, refused.remark)
        return response(command)

    async def _end_elsewhere(self, connection: Connection, command: Command) -> Answer:
        """Have another master carry the decision out, which gets the half message of this slave that acts."""
        decision = _decision_of(command)
        refused = None if decision is None else await self._parts.rules().end_transaction(decision)
        if refused is not None:
            raise CommandError(refused.code, refused.remark)
        return response(command)

    async def _end_later(self, connection: Connection, command: Command) -> Answer:
        """Carry the decision out once it is known which half messages there are."""
        with self._parts.node.world.clock.move_on_after(OPENING_SECONDS):
            await self._parts.transactions.opened.wait()
        if not self._parts.transactions.opened.is_set():
            raise _unavailable()
        return self.end(connection, command)

    def _decide(self, connection: Connection, command: Command, decision: Decision) -> Answer:
        parts, stored, is_answered = self._parts, self._parts.stored, not command.flag & ONEWAY_BIT
        try:
            decided = parts.transactions.decide(decision, at_once=is_answered)
        except PutRejected as error:
            raise _not_put(error) from None
        if isinstance(decided, Refusal):
            raise CommandError(decided.code, decided.remark)
        waits_for_copies = self._identity.role.waits_for_copies
        if not is_answered or not (waits_for_copies or stored.flushes):
            return response(command)
        # Differs because the reference answers before the outcome is safe.
        copies = stored.replication.copies_needed() if waits_for_copies else 1
        if copies is None or stored.acknowledgements.full:
            return response(command)
        stored.acknowledgements.add(decided, connection, encode(response(command)), copies)
        stored.replication.log_grew()
        stored.acknowledgements.settle()  # what was decided before is safe already, and nothing new is on its way
        return None


def _unavailable() -> CommandError:
    remark = "service not available now: this broker may not decide at the moment; the check asks its producer again"
    return CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, remark)


def _not_put(error: PutRejected) -> CommandError:
    code = REJECTION_CODES.get(error.status, ResponseCode.SYSTEM_ERROR)
    return CommandError(code, f"{error.status.value}: {error.remark}")


def _decision_of(command: Command) -> Decision | None:
    """Return the decision in a request, ``None`` when it is neither commit nor rollback. Raises ``CommandError``."""
    wanted = required_int(command, "commitOrRollback")
    group = required(command, "producerGroup")
    offset, physical_offset = required_int(command, "tranStateTableOffset"), required_int(command, "commitLogOffset")
    choice = _CHOICES.get(wanted)
    if choice is None:
        return None
    checked = optional_bool(command, "fromTransactionCheck") is True
    return Decision(choice, group, offset, physical_offset, checked)
