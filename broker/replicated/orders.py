"""What was popped in order as a table that travels, by a request of our own: the reference's slaves do not know it."""

from __future__ import annotations

from understudy.broker.merge import Limit, unlimited
from understudy.broker.pop.order import OrderTable, read_order_table
from understudy.broker.replicated.rules import read_object
from understudy.broker.replicated.table import Answer, Copying, GivenBackTable, KeptAsItIs, Source, Taken
from understudy.remoting.codes import RequestCode

KNOWN = "known"
"""Header field: which state of the table the asker has; in the answer, which one it is. The same: the body is empty."""


class ReplicatedOrders(KeptAsItIs[OrderTable], GivenBackTable):
    """What each queue handed out in order."""

    name = "pop orders"
    code = RequestCode.GET_POP_ORDERS

    def copying(self, source: Source) -> Copying:
        """See :class:`~understudy.broker.replicated.table.ReplicatedTable`."""
        return _Orders(self.table)

    def holds(self, answer: Answer) -> bool:
        """See :class:`~understudy.broker.replicated.table.GivenBackTable`."""
        return any(read_order_table(read_object(answer.body)).values())

    def take_back(self, answer: Answer, limit: Limit, *, late: bool = False) -> bool:
        """See :class:`~understudy.broker.replicated.table.GivenBackTable`."""
        before = self.table.revision
        self.table.join(read_order_table(read_object(answer.body)), limit)
        return self.table.revision != before


class _Orders(Copying):
    """Of each queue the newest pop counts, wherever it was: the source may still have to take ours back."""

    def __init__(self, table: OrderTable) -> None:
        self._table = table
        self._known = ""
        self._former: set[tuple[str, int]] = set()

    def question(self) -> dict[str, str]:
        return {KNOWN: self._known}

    def take(self, answer: Answer) -> Taken:
        known = answer.ext.get(KNOWN, "")
        if not known or known != self._known:
            rows = read_order_table(read_object(answer.body))
            there = {(key, queue_id) for key, queues in rows.items() for queue_id in queues}
            self._table.join(rows, unlimited)
            self._table.leave_out(self._former - there)
            self._known, self._former = known, there
        return Taken.ALL
