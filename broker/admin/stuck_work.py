"""What waits in a broker, and why (957, a request of ours); see :mod:`~understudy.broker.stuck_work`."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from understudy.broker import delay
from understudy.broker.admin.answers import long_json_answer
from understudy.broker.admin.stuck_entries import entries_of
from understudy.broker.stuck_work import DELAY, HALF, KINDS, POP, TIMER, Look, Waiting
from understudy.broker.transactions.checking import rules_of
from understudy.broker.transactions.half import Half
from understudy.format import names
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional
from understudy.remoting.server import RemotingServer
from understudy.runtime.pace import Pace

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

MOST_HALVES = 1_000
"""Half messages of one answer, and places of one question."""
_MOST_DIGITS = 18


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer the question at *server*."""
    server.register_async(RequestCode.LIST_STUCK_WORK, StuckWorkAdmin(broker).answer)


class StuckWorkAdmin:
    """The handler over one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def answer(self, connection: Connection, command: Command) -> Command:
        """Return what waits: all of it, or one kind, or what belongs to one group (957).

        ``places`` asks for the half messages at ``QUEUE:OFFSET,QUEUE:OFFSET`` only. ``more`` is not 0 when there are
        more half messages of those that were asked for: at least as many. ``each=true`` asks for the single messages,
        or check points, of one kind that were due, or those at ``places`` of them.
        """
        broker, kind, group = self._broker, optional(command, "kind"), optional(command, "group")
        if kind is not None and kind not in KINDS:
            remark = f"kind must be one of {', '.join(KINDS)}, not {kind}"
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
        places = optional(command, "places")
        if optional(command, "each") == "true" and kind not in (None, HALF):
            return await self._each(command, kind, None if places is None else places_of(places))
        halves: list[Half] = []
        if places is not None:
            halves = await broker.transactions.undecided_at(places_of(places))
        elif kind in (None, HALF):
            halves = await broker.transactions.undecided(MOST_HALVES + 1, group)
        look = self._look()
        async with Pace(broker.world) as pace:
            rows = await pace.run(self._halves(look, halves[:MOST_HALVES]))
        if group is None and places is None:
            rows += [*self._pops(look)] if kind in (None, POP) else []
            rows += [*self._timer(look)] if kind in (None, TIMER) else []
            rows += [*self._levels(look)] if kind in (None, DELAY) else []
        return await self._said(command, [dict(each.to_json()) for each in rows], max(len(halves) - MOST_HALVES, 0))

    async def _each(self, command: Command, kind: str, places: Sequence[tuple[int, int]] | None) -> Command:
        async with Pace(self._broker.world) as pace:
            found = await pace.run(entries_of(self._broker, self._look(), kind))
        rows = [each.to_json() for each in found if places is None or (each.queue, each.offset) in places]
        return await self._said(command, rows, 0)

    async def _said(self, command: Command, rows: Sequence[Mapping[str, Any]], more: int) -> Command:
        identity, rules = self._broker.identity, self._broker.session.rules
        body = {
            "brokerName": identity.name,
            "brokerId": identity.broker_id,
            "active": rules.active,
            "activeReason": rules.reason,
            "more": more,
            "rows": rows,
        }
        async with Pace(self._broker.world) as pace:
            return await long_json_answer(command, body, pace)

    def _look(self) -> Look:
        rules = self._broker.session.rules
        return Look(self._broker.world.clock.wall_ms(), rules.active, rules.reason)

    def _halves(self, look: Look, halves: Sequence[Half]) -> Generator[None, None, list[Waiting]]:
        broker, interval_ms = self._broker, self._broker.options.broker.transaction_check_interval
        rules = rules_of(broker.options.broker, broker.options.store)
        alive: dict[str, int] = {}  # a group is counted once, not with each of its half messages
        rows = []
        for half in halves:
            group = half.group or ""
            if group not in alive:
                alive[group] = sum(each.alive for each in broker.producers.in_turn(group))
            rows.append(look.half(half, rules, alive[group], interval_ms))
            yield
        return rows

    def _pops(self, look: Look) -> Sequence[Waiting]:
        pops, timer = self._broker.pops, self._broker.timer
        behind = timer.behind > 0 or timer.behind_ms(look.now_ms) > 0
        found = [(queue, *pops.queues.behind(queue)) for queue in range(pops.log.queues)]
        rows = [look.pop(queue, entries, due_ms, behind) for queue, entries, due_ms in found if entries]
        acting = pops.acting
        if not acting.empty:
            rows.append(look.acting_pops(len(acting.points), len(acting.acks), acting.due_ms()))
        return rows

    def _timer(self, look: Look) -> Sequence[Waiting]:
        timer = self._broker.timer
        if not self._broker.options.store.timer_wheel_enable or not timer.waiting + timer.behind:
            return ()
        return (look.timer(timer.waiting, timer.behind, timer.behind_ms(look.now_ms), timer.next_due_ms()),)

    def _levels(self, look: Look) -> Sequence[Waiting]:
        broker, rows = self._broker, list[Waiting]()
        for level, level_ms in enumerate(broker.delay_levels_ms, 1):
            queue, at = delay.queue_of_level(level), broker.schedule_progress.offsets.get(level, 0)
            at = max(at, broker.store.min_queue_offset(names.SCHEDULE_TOPIC, queue))
            waiting = broker.store.max_queue_offset(names.SCHEDULE_TOPIC, queue) - at
            if waiting > 0:
                due_ms = broker.store.store_time_of(names.SCHEDULE_TOPIC, queue, at) + level_ms
                rows.append(look.level(level, waiting, due_ms))
        return rows


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
