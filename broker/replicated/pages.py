"""Copies a table that is answered in pages: the questions, and when an answer is complete. No I/O.

The first question names the version and the number of rows of the last look: a source that pages answers no row when
nothing changed. When the version changes between two pages, what came is the first page of another table.

Source: SlaveSynchronize.java, BrokerOuterAPI.java.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Mapping
from typing import Any

import attrs

from understudy.broker.replicated.rules import ReplicaTableError, read_object
from understudy.broker.replicated.table import Answer, Copying, Taken
from understudy.format.data_version import DataVersion
from understudy.format.json_dialect import dumps
from understudy.runtime.pace import run_steps

PAGE_ROWS = 2_000
Rows = dict[str, Any]


@attrs.frozen
class PageNames:
    """How one kind of page is called on the wire.

    Attributes:
        begin: header field of the question: the first row that is wanted.
        limit: header field of the question: most rows of an answer.
        total: header field of the answer: how many rows the table has.
        table: the object in the body that holds them.
    """

    begin: str
    limit: str
    total: str
    table: str


class PagedCopying(Copying):
    """Asks for every page and hands the whole table to :meth:`whole`.

    Args:
        names: of the pages.
    """

    def __init__(self, names: PageNames) -> None:
        self._names = names
        self._taken: DataVersion | None = None
        self._total = 0
        self._may_skip = False
        self._version: DataVersion | None = None
        self._rows: Rows = {}
        self._body: Mapping[str, Any] = {}
        self._begin, self._known = 0, ""

    @property
    def taken(self) -> DataVersion | None:
        """The version of the table that was taken last; ``None`` before the first look."""
        return self._taken

    @abstractmethod
    def row(self, name: str, value: Mapping[str, Any]) -> Any:
        """Return a row as :meth:`whole` takes it; may be called in a thread. Raises ``ValueError``."""

    @abstractmethod
    def whole(self, rows: Rows, body: Mapping[str, Any], version: DataVersion) -> Generator[None, None, bool]:
        """Take the whole table in short steps; return whether the next look may leave it out at the same version.

        Args:
            rows: all of them.
            body: of the first page.
            version: of the table.

        Raises:
            ValueError: it is no such table; nothing was taken.
        """

    def question(self) -> dict[str, str]:
        """See :class:`~understudy.broker.replicated.table.Copying`."""
        names = self._names
        return {names.begin: str(self._begin), "dataVersion": self._known, names.limit: str(PAGE_ROWS)}

    def read(self, answer: Answer) -> tuple[Mapping[str, Any], Rows]:
        """Return the body and the rows of its page. Raises ``ValueError``."""
        body = read_object(answer.body)
        page = body.get(self._names.table) or {}
        if not isinstance(page, Mapping) or not all(isinstance(row, Mapping) for row in page.values()):
            raise ReplicaTableError(f"{self._names.table} holds something that is no row")
        return body, {str(name): self.row(str(name), row) for name, row in page.items()}

    def take(self, answer: Answer) -> Taken:
        """See :class:`~understudy.broker.replicated.table.Copying`."""
        return run_steps(self.take_in_steps(answer))

    def take_in_steps(self, answer: Answer) -> Generator[None, None, Taken]:
        """See :class:`~understudy.broker.replicated.table.Copying`."""
        try:
            taken = yield from self._take(answer)
        except ValueError:
            self._next_look()
            raise
        if taken is not Taken.MORE:
            self._next_look()
        return taken

    def _next_look(self) -> None:
        self._may_skip = self._taken is not None
        self._version, self._rows, self._body = None, {}, {}
        self._begin, self._known = 0, ""
        if self._taken is not None:
            self._begin, self._known = self._total, dumps(self._taken.to_json()).decode()

    def _take(self, answer: Answer) -> Generator[None, None, Taken]:
        body, page = answer.said or self.read(answer)
        current = DataVersion.from_json(body.get("dataVersion"))
        if self._version is None and self._may_skip and current == self._taken:
            return Taken.ALL
        if self._version is None and self._begin:  # it changed: from the first row, whatever this source did of its own
            self._begin, self._known, self._may_skip = 0, "", False
            return Taken.MORE
        if current != self._version:  # the first page, or the table changed between two pages
            self._rows, self._body, self._version = {}, body, current
        self._rows.update(page)
        count = int(answer.ext.get(self._names.total) or len(self._rows))
        if len(self._rows) < count and page:
            self._begin, self._known = len(self._rows), dumps(current.to_json()).decode()
            return Taken.MORE
        self._total = count
        if (yield from self.whole(self._rows, self._body, current)):
            self._taken = current
        return Taken.ALL
