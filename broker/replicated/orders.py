"""What was popped in order as a table that travels, by a request of our own: the reference's slaves do not know it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from understudy.broker.pop.order import OrderTable, read_order_table
from understudy.broker.replicated.rules import read_object
from understudy.broker.replicated.table import Answer, Copying, FilePlan, KeptTable, Source, Taken
from understudy.remoting.codes import RequestCode

KNOWN = "known"
"""Header field: which state of the table the asker has; in the answer, which one it is. The same: the body is empty."""


class ReplicatedOrders(KeptTable):
    """What each queue handed out in order.

    Args:
        orders: the table.
        file: how it is saved.
    """

    name = "pop orders"
    code = RequestCode.GET_POP_ORDERS
    optional = True

    def __init__(self, orders: OrderTable, file: FilePlan) -> None:
        self.table = orders
        self.file = file

    def snapshot(self) -> dict[str, Any]:
        """See :class:`KeptTable`."""
        return self.table.to_json()

    def load(self, content: Mapping[str, Any]) -> None:
        """See :class:`KeptTable`."""
        self.table.merge_json(content)

    def watch(self, changed: Callable[[], None]) -> None:
        """See :class:`KeptTable`."""
        self.table.on_change.append(changed)

    def copying(self, source: Source) -> Copying:
        """See :class:`ReplicatedTable`."""
        return _Orders(self.table)


class _Orders(Copying):
    def __init__(self, table: OrderTable) -> None:
        self._table = table
        self._known = ""

    def question(self) -> dict[str, str]:
        return {KNOWN: self._known}

    def take(self, answer: Answer) -> Taken:
        known = answer.ext.get(KNOWN, "")
        if not known or known != self._known:
            self._table.take(read_order_table(read_object(answer.body)))
            self._known = known
        return Taken.ALL
