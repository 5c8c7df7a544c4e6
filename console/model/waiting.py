"""What waits in brokers: half messages, pops, timers and delay levels, as they say themselves (957, ours)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

KINDS = ("half", "pop", "timer", "delay")
MOST_ROWS = 2_000


@attrs.frozen
class StuckLook:
    """What one broker said.

    Attributes:
        at_ms: when.
        broker: name of its group.
        rows: as in its answer.
        more: half messages beyond those.
        says: it knows the question; brokers of the reference do not.
        error: why it did not answer, ``""`` when it did; the rows are then those of its answer before.
    """

    at_ms: int
    broker: str
    rows: tuple[Mapping[str, Any], ...] = ()
    more: int = 0
    says: bool = True
    error: str = ""


def look_of(body: Mapping[str, Any], broker: str, at_ms: int) -> StuckLook:
    """Return what a broker said that leads its group."""
    rows = tuple(row for row in body.get("rows") or () if isinstance(row, Mapping))
    return StuckLook(at_ms, broker, rows[:MOST_ROWS], int(body.get("more") or 0))


def rows_of(looks: Iterable[StuckLook]) -> list[dict[str, Any]]:
    """Return all rows, what is stuck first, and of that what waits longest."""
    rows = [{**row, "broker": look.broker} for look in looks for row in look.rows]
    return sorted(rows, key=lambda row: (not row.get("stuck"), -int(row.get("waitsMs") or 0)))[:MOST_ROWS]


def kinds_of(looks: Iterable[StuckLook]) -> list[dict[str, Any]]:
    """Return for each kind how many messages wait, how many of them are stuck, and how long the oldest of those is."""
    found = {kind: {"kind": kind, "count": 0, "stuck": 0, "oldestMs": 0} for kind in KINDS}
    for look in looks:
        for row in look.rows:
            kind = found.get(str(row.get("kind")))
            if kind is None:
                continue
            count = int(row.get("count") or 0)
            kind["count"] += count  # type: ignore[operator]  # numbers, all but the first
            if row.get("stuck"):
                kind["stuck"] += count  # type: ignore[operator]
                kind["oldestMs"] = max(kind["oldestMs"], int(row.get("waitsMs") or 0))  # type: ignore[call-overload]
    return list(found.values())
