"""What a slave handed out for its master as a table that travels, by a request of our own.

A master of the reference knows no such request. The slave that acted last then sends it each check point, and the
acknowledgements of those in its log, as messages of the queue of its revive topic that the receipts name. There the
reference's own slaves put them at other masters: the returned one finds them as if it had handed out itself.

Source: none, the reference's slaves keep no such table; EscapeBridge.java (putMessageToRemoteBroker) for the messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import attrs

from understudy.broker.inner import InnerMessage
from understudy.broker.merge import Limit
from understudy.broker.pop.acting import ActingPops
from understudy.broker.pop.acting_rows import ack_of
from understudy.broker.pop.revive_log import AHEAD_MS, Entry
from understudy.broker.replicated.orders import KNOWN
from understudy.broker.replicated.packed import PACKED, ZLIB, body_of
from understudy.broker.replicated.rules import read_object
from understudy.broker.replicated.table import Answer, Copying, FilePlan, GivenBackTable, Notice, Source, Taken
from understudy.format import names
from understudy.remoting.codes import RequestCode
from understudy.runtime.log import get_logger

log = get_logger("broker.acting_pops")

INNER_PRODUCERS = "InnerProducerGroup"
"""Producer group of what brokers send."""

HOME_AT_ONCE = 64
"""Entries that are sent to a master before its other tables have their turn."""
SAVE_MS = 100
"""Longest time from a change to its write: what is lost with the process is handed out again."""


@attrs.frozen
class Home:
    """How entries get to a master that knows of no such table.

    Attributes:
        may: returns whether this broker has stood back and knows what others did, so that nothing of it is old.
        message: makes the message of an entry, given the queue of the revive topic and when it is due there.
    """

    may: Callable[[], bool]
    message: Callable[[Entry, int, int], InnerMessage]


class ReplicatedActingPops(GivenBackTable):
    """Check points and acknowledgements that no log holds.

    Args:
        acting: the table.
        other: makes an empty one.
        home: how entries get to a master of the reference.
        durable: waits for what was written into the log, which is durable before the table is without it.
    """

    name = "acting pops"
    code = RequestCode.GET_ACTING_POPS

    def __init__(
        self,
        acting: ActingPops,
        other: Callable[[], ActingPops],
        home: Home,
        durable: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.file = FilePlan("actingPops.json", lambda: SAVE_MS, barrier=durable)
        self.table = acting
        self.home = home
        self._other = other

    def snapshot(self) -> dict[str, Any]:
        """See :class:`~understudy.broker.replicated.table.KeptTable`."""
        return self.table.to_json()

    def load(self, content: Mapping[str, Any]) -> None:
        """See :class:`~understudy.broker.replicated.table.KeptTable`."""
        self.table.load(content)

    def watch(self, changed: Callable[[], None]) -> None:
        """See :class:`~understudy.broker.replicated.table.KeptTable`."""
        self.table.on_change.append(changed)

    def copying(self, source: Source) -> Copying:
        """See :class:`~understudy.broker.replicated.table.ReplicatedTable`."""
        return _Copying(self, source)

    def asking(self) -> dict[str, str]:
        """See :class:`~understudy.broker.replicated.table.GivenBackTable`."""
        return {PACKED: ZLIB}

    def read(self, answer: Answer) -> ActingPops:
        """Return the table of *answer*. Raises ``ValueError``."""
        theirs = self._other()
        theirs.load(read_object(body_of(answer)))
        return theirs

    def said(self, answer: Answer) -> ActingPops:
        """Return the same, read a second time only where nobody has read it yet."""
        return self.read(answer) if answer.said is None else answer.said

    def holds(self, answer: Answer) -> bool:
        """See :class:`~understudy.broker.replicated.table.GivenBackTable`."""
        return not self.said(answer).empty

    def take_back(self, answer: Answer, limit: Limit, *, late: bool = False) -> bool:
        """See :class:`~understudy.broker.replicated.table.GivenBackTable`."""
        theirs, before = self.said(answer), self.table.revision
        theirs.cut(limit)
        # The own timer has had out what the log has; of acknowledgements that others took, nobody knows here.
        left_out = late and theirs.leave_logged()
        self.table.join(theirs)
        if left_out:
            self.table.changed()
        return self.table.revision != before


class _Copying(Copying):
    def __init__(self, table: ReplicatedActingPops, source: Source) -> None:
        self._table = table
        self._source = source
        self._refused = False
        self._known = ""

    def question(self) -> dict[str, str]:
        return {KNOWN: self._known, **self._table.asking()}

    def read(self, answer: Answer) -> ActingPops | None:
        return self._table.read(answer) if answer.body else None

    def take(self, answer: Answer) -> Taken:
        known = answer.ext.get(KNOWN, "")
        self._table.table.master_asks |= self._source.leads
        if not known or known != self._known:
            self._table.table.join(self._table.said(answer))
            self._known = known
        return Taken.ALL

    def otherwise(self) -> Sequence[Notice]:
        acting, home = self._table.table, self._table.home
        acting.master_asks &= not self._source.leads
        if not self._source.leads or self._refused or acting.empty or not acting.acted_last or not home.may():
            return ()
        found = [
            self._notice(row.point, row.queue, row.point.revive_ms - AHEAD_MS, partial(acting.drop, row.point))
            for row in islice(acting.rows(), HOME_AT_ONCE)
        ]
        return found or [  # behind the check points
            self._notice(ack_of(key, known), known.queue, known.revive_ms, partial(acting.forget_acks, key, known))
            for key, known in islice(acting.acks.items(), HOME_AT_ONCE)
        ]

    def _notice(self, entry: Entry, queue: int, deliver_ms: int, done: Callable[[], None]) -> Notice:
        def refused(why: str) -> None:
            if not self._refused:
                log.warning("the master does not take what was popped here", master=self._source.address, why=why)
            self._refused = True

        def told() -> None:
            log.info("what was popped here is the master's", master=self._source.address, entry=entry.unique_key)
            done()

        message = self._table.home.message(entry, queue, deliver_ms)
        header = {
            "a": INNER_PRODUCERS,
            "b": message.topic,
            "c": names.DEFAULT_TOPIC,
            "d": "8",
            "e": str(message.queue_id),
            "f": "0",
            "g": str(message.born_ms),
            "h": "0",
            "i": message.properties.decode(),
            "j": "0",
            "k": "false",
            "m": "false",
        }
        return Notice(RequestCode.SEND_MESSAGE_V2, header, told, refused, message.body)
