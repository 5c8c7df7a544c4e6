"""What was popped in order as a table that travels, by a request of our own: the reference's slaves do not know it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from understudy.broker.merge import Limit, unlimited
from understudy.broker.pop.order import OrderTable, read_order_table
from understudy.broker.replicated.rules import read_object
from understudy.broker.replicated.table import Answer, Copying, FilePlan, GivenBackTable, Source, Taken
from understudy.remoting.codes import RequestCode

KNOWN = "known"
"""Header field: which state of the table the asker has; in the answer, which one it is. The same: the body is empty."""


class ReplicatedOrders(GivenBackTable):
    """What each queue handed out in order.

    Args:
        orders: the table.
        file: how it is saved.
    """

    name = "pop orders"
    code = RequestCode.GET_POP_ORDERS

    def __init__(self, orders: OrderTable, file: FilePlan) -> None:
        self.table = orders
        self.file = file

    def snapshot(self) -> dict[str, Any]:
        """See :class:`~understudy.broker.replicated.table.KeptTable`."""
        return self.table.to_json()

    def load(self, content: Mapping[str, Any]) -> None:
        """See :class:`~understudy.broker.replicated.table.KeptTable`."""
        self.table.merge_json(content)

    def watch(self, changed: Callable[[], None]) -> None:
        """See :class:`~understudy.broker.replicated.table.KeptTable`."""
        self.table.on_change.append(changed)

    def copying(self, source: Source) -> Copying:
        """See :class:`~understudy.broker.replicated.table.ReplicatedTable`."""
        return _Orders(self.table)

    def take_back(self, answer: Answer, limit: Limit) -> bool:
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
