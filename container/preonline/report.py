"""What a returning master took over from its slaves, queue by queue: kept beside the store and told in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from understudy.broker.merge import Reason, Row, StampedOffset

FILE_NAME = "preOnline.json"
FORMER_MAX = 5
"""Reports before the newest one that are kept, those only that changed something."""


@attrs.frozen
class TakenOver:
    """What was compared with one slave.

    Attributes:
        broker_id, address: the slave.
        ahead_bytes: how much longer the slave's log is; above 0 the master has lost messages that the slave has.
        tables: kind of each table of progress to its rows, one for each queue that either side knows.
        taken_bytes: how much of the end of its log the master got back from the slave.
    """

    broker_id: int
    address: str
    ahead_bytes: int
    tables: Mapping[str, Sequence[Row]]
    taken_bytes: int = 0

    @property
    def rows(self) -> list[Row]:
        """The rows of all tables."""
        return [row for rows in self.tables.values() for row in rows]

    def again(self, later: TakenOver) -> TakenOver:
        """Return what came of this comparison and a *later* one with the same slave.

        What was taken the first time is the master's own the second time, and nobody would hear of it any more.
        """
        kinds = {**self.tables, **later.tables}
        tables = {kind: _again(self.tables.get(kind, ()), later.tables.get(kind, ())) for kind in kinds}
        return attrs.evolve(later, tables=tables, taken_bytes=self.taken_bytes + later.taken_bytes)


@attrs.frozen
class Report:
    """One return.

    Attributes:
        broker: its canonical name.
        cause: why it was not online.
        began_ms, ended_ms: wall time in milliseconds; no end as long as it is under way. A report without one in the
            file tells of a return that was broken off.
        slaves: what was compared.
        trouble: what went wrong on the way, ``""`` when nothing did.
        former: contents of the reports before this one, the newest first.
    """

    broker: str
    cause: str
    began_ms: int
    ended_ms: int | None
    slaves: Sequence[TakenOver]
    trouble: str
    former: Sequence[Mapping[str, Any]] = ()

    @property
    def compared(self) -> int:
        """How many queues and levels were compared."""
        return sum(len(each.rows) for each in self.slaves)

    @property
    def changed(self) -> int:
        """How many of them have another offset now."""
        return sum(row.changed for each in self.slaves for row in each.rows)

    @property
    def taken_bytes(self) -> int:
        """How many bytes of the end of the log came back."""
        return sum(each.taken_bytes for each in self.slaves)

    def line(self) -> str:
        """Return the report in one line."""
        slaves = ", ".join(each.address for each in self.slaves) or "no slave"
        took = "under way" if self.ended_ms is None else f"in {self.ended_ms - self.began_ms} ms"
        log = f"; the last {self.taken_bytes} bytes of the log came back" if self.taken_bytes else ""
        return f"{self.cause}; compared {self.compared} offsets with {slaves} {took}, {self.changed} changed{log}" + (
            f"; {self.trouble}" if self.trouble else ""
        )

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file: every offset on which master and slave did not agree, and counts of all."""
        return {
            "broker": self.broker,
            "cause": self.cause,
            "beganAt": self.began_ms,
            "endedAt": self.ended_ms,
            "trouble": self.trouble,
            "compared": self.compared,
            "changed": self.changed,
            "takenBytes": self.taken_bytes,
            "slaves": [
                {
                    "brokerId": each.broker_id,
                    "address": each.address,
                    "aheadBytes": each.ahead_bytes,
                    "takenBytes": each.taken_bytes,
                    "reasons": dict(Counter(row.reason.value for row in each.rows)),
                    **{
                        kind: [_row(row) for row in rows if row.reason is not Reason.EQUAL]
                        for kind, rows in each.tables.items()
                    },
                }
                for each in self.slaves
            ],
            "former": list(self.former),
        }


def former_of(content: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], ...]:
    """Return the reports that a new one must keep, from the *content* of the file (``None``: there is none)."""
    if content is None:
        return ()
    former = content.get("former")
    last = {name: value for name, value in content.items() if name != "former"}
    reports = [last, *(former if isinstance(former, list) else [])]
    return tuple(
        each for each in reports if isinstance(each, Mapping) and (each.get("changed") or each.get("takenBytes"))
    )[:FORMER_MAX]


def _again(before: Sequence[Row], now: Sequence[Row]) -> list[Row]:
    first = {(row.key, row.queue_id): row for row in before if row.changed}
    rows = []
    for row in now:
        old = first.pop((row.key, row.queue_id), None)
        if old is not None:
            row = row._replace(own=old.own, reason=row.reason if row.changed else old.reason)
        rows.append(row)
    return sorted([*rows, *first.values()], key=lambda row: (row.key, row.queue_id))


def _row(row: Row) -> dict[str, Any]:
    def offset(stamped: StampedOffset | None) -> int | None:
        return None if stamped is None else stamped.offset

    return {
        "key": row.key,
        "queueId": row.queue_id,
        "before": offset(row.own),
        "slave": offset(row.other),
        "merged": row.merged.offset,
        "why": row.reason.value,
    }
