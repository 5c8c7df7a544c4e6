"""What an operator decides about single messages and check points that are stuck (959, a request of ours).

One that is *dropped* is passed as if it were done, and nobody gets it. One that is *requeued* is stored again first, to
be due once more a while later, and then passed. What is stored again and not passed when the broker ends comes twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from understudy.broker.admin.answers import json_answer
from understudy.broker.admin.stuck_entries import StuckEntry, entries_of, left_out_of
from understudy.broker.admin.stuck_work import places_of
from understudy.broker.inner import InnerMessage, copy_of
from understudy.broker.pop.revive_log import AHEAD_MS, CheckPoint, again
from understudy.broker.stuck_work import DELAY, POP, TIMER, Look, place_of
from understudy.broker.timer.rules import later
from understudy.format.record import Record
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, required
from understudy.remoting.server import RemotingServer
from understudy.runtime.log import get_logger
from understudy.runtime.pace import Pace
from understudy.store.status import PutRejected, PutStatus

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

log = get_logger("broker.stuck_work")

DROP, REQUEUE = "drop", "requeue"
DONE, WAITS, REFUSED = "done", "waits", "refused"
"""It is passed durably; it will be, once what stands in front of it is; nothing has changed."""
PASS_SECONDS = 2.0
"""How long the answer waits for the queues to pass what was decided: they try again ten times a second."""
LATER_MS = 60_000
"""A timer message that is requeued is due again so much later."""


@attrs.frozen
class Outcome:
    """What became of one decision; *why* not, or not yet."""

    place: str
    outcome: str
    why: str = ""


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer the request at *server*."""
    server.register_async(RequestCode.SETTLE_STUCK_WORK, StuckDecisions(broker).answer)


class StuckDecisions:
    """The handler over one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def answer(self, connection: Connection, command: Command) -> Command:
        """Drop or requeue what stands at ``places``, ``QUEUE:OFFSET,QUEUE:OFFSET`` of one ``kind`` (959).

        The answer says for each place what became of it. A broker that does not look after what is stored refuses.
        """
        broker, kind, choice = self._broker, required(command, "kind"), required(command, "decision")
        if kind not in (POP, TIMER, DELAY) or choice not in (DROP, REQUEUE):
            remark = f"kind must be one of {POP}, {TIMER}, {DELAY}, and decision {DROP} or {REQUEUE}"
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
        places = places_of(required(command, "places"))
        rules = broker.session.rules
        if not (rules.active and (rules.may_store or rules.acting)):
            remark = f"this broker does not look after it: {rules.reason}"
            raise CommandError(ResponseCode.NO_PERMISSION, remark)
        if choice == REQUEUE and kind != POP and broker.role.is_slave:
            remark = "a slave stores nothing: requeue it at the master, or drop it here"
            raise CommandError(ResponseCode.NO_PERMISSION, remark)
        look = Look(broker.world.clock.wall_ms(), True, rules.reason)
        async with Pace(broker.world) as pace:
            entries = await pace.run(entries_of(broker, look, kind))
        known = {(each.queue, each.offset): each for each in entries}
        outcomes, decided = dict[tuple[int, int], Outcome](), list[StuckEntry]()
        for place in places:
            entry = known.get(place)
            why = "nothing stands there that is due" if entry is None else "" if entry.row.stuck else entry.row.why
            if entry is not None and not why and choice == REQUEUE:
                why = await self._put_again(kind, entry)
            if entry is None or why:
                outcomes[place] = Outcome(place_of(kind, *place), REFUSED, why)
                continue
            left_out_of(broker, kind).add(*place)
            decided.append(entry)
            log.info(
                "an operator decided about stuck work", decision=choice, place=entry.row.place, by=connection.address
            )
        for entry in await self._passed(kind, decided):
            outcomes[entry.queue, entry.offset] = Outcome(entry.row.place, DONE)
        for entry in decided:
            why = "what stands in front of it is stuck as well; if this broker ends before that goes, decide again"
            outcomes.setdefault((entry.queue, entry.offset), Outcome(entry.row.place, WAITS, why))
        return json_answer(command, {"outcomes": [attrs.asdict(outcomes[place]) for place in dict.fromkeys(places)]})

    async def _put_again(self, kind: str, entry: StuckEntry) -> str:
        """Store *entry* once more, durably; return why that cannot be, ``""`` when it is done."""
        broker, now_ms = self._broker, self._broker.world.clock.wall_ms()
        try:
            messages = self._again(kind, entry, now_ms)
        except PutRejected as error:
            return f"{error.status.value}: {error.remark}"
        statuses = await broker.own_log.put(messages) if messages else []
        try:
            await broker.pops.keep_acting()
        except OSError as error:
            return f"the disk does not take it: {error}"
        return next(
            (f"the log does not take it: {each.value}" for each in statuses if each is not PutStatus.PUT_OK), ""
        )

    def _again(self, kind: str, entry: StuckEntry, now_ms: int) -> Sequence[InnerMessage]:
        """Return what is to be stored; a slave that acts keeps it elsewhere. Raises ``PutRejected``."""
        broker, what = self._broker, entry.what
        if isinstance(what, Record):
            if kind == TIMER:
                return [later(what, broker.timer.floor(now_ms + LATER_MS), now_ms)]
            return [copy_of(what, *entry.holds, what.properties_text.encode(), what.reconsume_times)]
        points = [again(what, offset, now_ms) for offset in what.open_offsets]
        if broker.role.is_slave:
            for point in points:
                broker.pops.log.write(point, entry.queue, point.revive_ms - AHEAD_MS)
            return []
        return [broker.pops.log.timed(broker.pops.log.check_point(point, entry.queue)) for point in points]

    async def _passed(self, kind: str, decided: Sequence[StuckEntry]) -> list[StuckEntry]:
        """Return those that the queues have passed durably, after a while at the most."""
        broker, left_out, found = self._broker, left_out_of(self._broker, kind), list[StuckEntry]()
        with broker.world.clock.move_on_after(PASS_SECONDS):
            for entry in decided:
                await left_out.passed(entry.queue, entry.offset)
        for entry in decided:
            if (entry.queue, entry.offset) not in left_out:
                self._uncount(entry)
                found.append(entry)
        if found:
            await self._save(kind)
        return found

    def _uncount(self, entry: StuckEntry) -> None:
        point = entry.what
        if isinstance(point, CheckPoint):
            in_flight = self._broker.pops.moving.in_flight
            in_flight.add(point.topic, point.group, point.queue_id, -len(point.open_offsets))
        elif entry.row.kind == TIMER:
            self._broker.timer.left(entry.row.topic)

    async def _save(self, kind: str) -> None:
        """Make the progress of *kind* durable. Raises :class:`CommandError`."""
        broker = self._broker
        try:
            if kind == TIMER:
                await broker.persistence.save(broker.tables.timer.name)
                await broker.timing.flush()
            else:
                await broker.persistence.save((broker.tables.offsets if kind == POP else broker.tables.delay).name)
        except OSError as error:
            remark = f"it is passed, but the disk does not take that: {error}"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark) from None
