"""What waits in a broker, and why (957, a request of ours); see :mod:`~understudy.broker.stuck_work`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from understudy.broker import delay
from understudy.broker.admin.answers import json_answer
from understudy.broker.stuck_work import DELAY, HALF, KINDS, POP, TIMER, Look, Waiting
from understudy.broker.transactions.checking import rules_of
from understudy.format import names
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional
from understudy.remoting.server import RemotingServer

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

MOST_HALVES = 1_000
"""Half messages of one answer."""


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer the question at *server*."""
    server.register_async(RequestCode.LIST_STUCK_WORK, StuckWorkAdmin(broker).answer)


class StuckWorkAdmin:
    """The handler over one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def answer(self, connection: Connection, command: Command) -> Command:
        """Return what waits: all of it, or one kind, or what belongs to one group (957)."""
        broker, kind, group = self._broker, optional(command, "kind"), optional(command, "group")
        if kind is not None and kind not in KINDS:
            remark = f"kind must be one of {', '.join(KINDS)}, not {kind}"
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
        rules, look = broker.session.rules, self._look()
        rows: list[Waiting] = []
        halves = 0
        if kind in (None, HALF):
            found = await self._halves(look, group)
            halves = len(found)
            rows += found[:MOST_HALVES]
        if group is None:
            rows += [*self._pops(look)] if kind in (None, POP) else []
            rows += [*self._timer(look)] if kind in (None, TIMER) else []
            rows += [*self._levels(look)] if kind in (None, DELAY) else []
        body = {
            "brokerName": broker.identity.name,
            "brokerId": broker.identity.broker_id,
            "active": rules.active,
            "activeReason": rules.reason,
            "more": max(halves - MOST_HALVES, 0),
            "rows": [dict(each.to_json()) for each in rows],
        }
        return json_answer(command, body)

    def _look(self) -> Look:
        rules = self._broker.session.rules
        return Look(self._broker.world.clock.wall_ms(), rules.active, rules.reason)

    async def _halves(self, look: Look, group: str | None) -> list[Waiting]:
        broker, config = self._broker, self._broker.options.broker
        rules = rules_of(config, broker.options.store)
        halves = await broker.transactions.undecided(MOST_HALVES + 1)
        return [
            look.half(
                half,
                rules,
                len([each for each in broker.producers.in_turn(half.group or "") if each.alive]),
                config.transaction_check_interval,
            )
            for half in halves
            if group in (None, half.group)
        ]

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
