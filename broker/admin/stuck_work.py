"""What waits in a broker, and why (957, a request of ours); see :mod:`~understudy.broker.stuck_work`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from understudy.broker.admin.answers import long_json_answer
from understudy.broker.admin.stuck_entries import DeferredParts, deferred_parts, entries_of
from understudy.broker.admin.stuck_rows import HalfParts, half_rows, level_rows, pop_rows, pop_rows_of, timer_rows
from understudy.broker.identity import Identity
from understudy.broker.session import RoleRules
from understudy.broker.stuck_work import DELAY, HALF, KINDS, POP, TIMER, Look
from understudy.broker.transactions.half import Half
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional
from understudy.remoting.server import RemotingServer
from understudy.runtime.pace import Pace
from understudy.runtime.world import World

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

MOST_HALVES = 1_000
"""Half messages of one answer, and places of one question."""
_MOST_DIGITS = 18


@attrs.frozen
class StuckWorkParts:
    """What of a broker is needed to tell what waits in it.

    Attributes:
        identity: names, addresses and role.
        world: clock and threads.
        rules: returns the rules of the role in force.
        halves: what waits for a decision.
        deferred: what waits until it is due.
    """

    identity: Identity
    world: World
    rules: Callable[[], RoleRules]
    halves: HalfParts
    deferred: DeferredParts


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer the question at *server*."""
    handlers = StuckWorkAdmin(
        StuckWorkParts(
            identity=broker.identity,
            world=broker.world,
            rules=lambda: broker.session.rules,
            halves=HalfParts(broker.options, broker.transactions, broker.producers),
            deferred=deferred_parts(broker),
        )
    )
    server.register_async(RequestCode.LIST_STUCK_WORK, handlers.answer)


class StuckWorkAdmin:
    """The handler over one broker."""

    def __init__(self, parts: StuckWorkParts) -> None:
        self._parts = parts

    async def answer(self, connection: Connection, command: Command) -> Command:
        """Return what waits: all of it, or one kind, or what belongs to one group (957).

        ``places`` asks for the half messages at ``QUEUE:OFFSET,QUEUE:OFFSET`` only. ``more`` is not 0 when there are
        more half messages of those that were asked for: at least as many. ``each=true`` asks for the single messages,
        or check points, of one kind that were due, or those at ``places`` of them. Timer messages and delayed ones
        belong to no group.
        """
        parts, kind, group = self._parts, optional(command, "kind"), optional(command, "group")
        if kind is not None and kind not in KINDS:
            remark = f"kind must be one of {', '.join(KINDS)}, not {kind}"
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
        if group is not None and kind in (TIMER, DELAY):
            remark = f"{kind} messages belong to no group: ask without one"
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
        places = optional(command, "places")
        if optional(command, "each") == "true" and kind not in (None, HALF):
            return await self._each(command, kind, group, None if places is None else places_of(places))
        halves: list[Half] = []
        if places is not None:
            found = await parts.halves.transactions.undecided_at(places_of(places))
            halves = [half for half in found if group in (None, half.group)]
        elif kind in (None, HALF):
            halves = await parts.halves.transactions.undecided(MOST_HALVES + 1, group)
        look = self._look()
        async with Pace(parts.world) as pace:
            rows = await pace.run(half_rows(parts.halves, look, halves[:MOST_HALVES]))
            if group is not None and places is None and kind in (None, POP):
                rows += await pace.run(pop_rows_of(parts.deferred, look, group))
        if group is None and places is None:
            rows += [*pop_rows(parts.deferred, look)] if kind in (None, POP) else []
            rows += [*timer_rows(parts.deferred, look)] if kind in (None, TIMER) else []
            rows += [*level_rows(parts.deferred, look)] if kind in (None, DELAY) else []
        return await self._said(command, [dict(each.to_json()) for each in rows], max(len(halves) - MOST_HALVES, 0))

    async def _each(
        self, command: Command, kind: str, group: str | None, places: Sequence[tuple[int, int]] | None
    ) -> Command:
        async with Pace(self._parts.world) as pace:
            found = await pace.run(entries_of(self._parts.deferred, self._look(), kind, group))
        rows = [each.to_json() for each in found if places is None or (each.queue, each.offset) in places]
        return await self._said(command, rows, 0)

    async def _said(self, command: Command, rows: Sequence[Mapping[str, Any]], more: int) -> Command:
        identity, rules = self._parts.identity, self._parts.rules()
        body = {
            "brokerName": identity.name,
            "brokerId": identity.broker_id,
            "active": rules.active,
            "activeReason": rules.reason,
            "more": more,
            "rows": rows,
        }
        async with Pace(self._parts.world) as pace:
            return await long_json_answer(command, body, pace)

    def _look(self) -> Look:
        rules = self._parts.rules()
        return Look(self._parts.world.clock.wall_ms(), rules.active, rules.reason)


def places_of(text: str) -> list[tuple[int, int]]:
    """Return queues and offsets in them. Raises :class:`CommandError`."""
    parts = [part.partition(":") for part in text.split(",")]
    numbers = [number for queue, _, offset in parts for number in (queue, offset)]
    if len(parts) > MOST_HALVES or not all(
        each.isascii() and each.isdecimal() and len(each) <= _MOST_DIGITS for each in numbers
    ):
        remark = f"places must be QUEUE:OFFSET with commas between, {MOST_HALVES} at the most"
        raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
    return [(int(queue), int(offset)) for queue, _, offset in parts]
