"""What an operator decides about single messages and check points that are stuck (959, a request of ours).

One that is *dropped* is passed as if it were done, and nobody gets it. One that is *requeued* is stored again in its
place, to be due once more a while later. The queues themselves do both (:mod:`~understudy.broker.left_out`), so what
they have put is not put again, and nothing is stored for a decision that is not carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from understudy.broker.admin.answers import json_answer
from understudy.broker.admin.stuck_entries import DeferredParts, StuckEntry, deferred_parts, entries_of, source_of
from understudy.broker.admin.stuck_work import places_of
from understudy.broker.identity import Identity
from understudy.broker.left_out import Decided
from understudy.broker.persistence import Persistence
from understudy.broker.pop.revive_log import CheckPoint
from understudy.broker.replicated.rows import ReplicatedTables
from understudy.broker.session import RoleRules
from understudy.broker.stuck_work import DELAY, POP, TIMER, Look, place_of
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, required
from understudy.remoting.server import RemotingServer
from understudy.runtime.log import get_logger
from understudy.runtime.pace import Pace
from understudy.runtime.world import World

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

log = get_logger("broker.stuck_work")

DROP, REQUEUE = "drop", "requeue"
DONE, WAITS, REFUSED = "done", "waits", "refused"
"""It is passed durably; it will be, once what stands in front of it is; the decision counts no more, or never did."""
PASS_SECONDS = 2.0
"""How long the answer waits for the queues to pass what was decided: they try again ten times a second."""
_WAITS = (
    "what stands in front of it is stuck as well, or it is being put; if this broker ends or changes its role before "
    "that goes, decide again"
)


@attrs.frozen
class Outcome:
    """What became of one decision; *why* not, or not yet."""

    place: str
    outcome: str
    why: str = ""


@attrs.frozen
class DecisionParts:
    """What of a broker is needed to carry out decisions about stuck work.

    Attributes:
        identity: names, addresses and role.
        world: clock and threads.
        rules: returns the rules of the role in force.
        deferred: holds what is decided about.
        tables: say how progress is named.
        persistence: saves it.
    """

    identity: Identity
    world: World
    rules: Callable[[], RoleRules]
    deferred: DeferredParts
    tables: ReplicatedTables
    persistence: Persistence


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer the request at *server*."""
    handlers = StuckDecisions(
        DecisionParts(
            identity=broker.identity,
            world=broker.world,
            rules=lambda: broker.session.rules,
            deferred=deferred_parts(broker),
            tables=broker.tables,
            persistence=broker.persistence,
        )
    )
    server.register_async(RequestCode.SETTLE_STUCK_WORK, handlers.answer)


class StuckDecisions:
    """The handler over one broker."""

    def __init__(self, parts: DecisionParts) -> None:
        self._parts = parts

    async def answer(self, connection: Connection, command: Command) -> Command:
        """Drop or requeue what stands at ``places``, ``QUEUE:OFFSET,QUEUE:OFFSET`` of one ``kind`` (959).

        The answer says for each place what became of it. A broker that does not look after what is stored refuses.
        """
        parts, kind, choice = self._parts, required(command, "kind"), required(command, "decision")
        if kind not in (POP, TIMER, DELAY) or choice not in (DROP, REQUEUE):
            remark = f"kind must be one of {POP}, {TIMER}, {DELAY}, and decision {DROP} or {REQUEUE}"
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
        places = dict.fromkeys(places_of(required(command, "places")))
        self._check_role(kind, choice)
        look = Look(parts.world.clock.wall_ms(), True, parts.rules().reason)
        async with Pace(parts.world) as pace:
            entries = await pace.run(entries_of(parts.deferred, look, kind))
        self._check_role(kind, choice)
        known = {(each.queue, each.offset): each for each in entries}
        outcomes, decisions = dict[tuple[int, int], Outcome](), list[tuple[StuckEntry, Decided]]()
        for place in places:
            entry = known.get(place)
            decided = self._decide(kind, entry, choice) if entry is not None else "nothing stands there that is due"
            if entry is None or isinstance(decided, str):
                outcomes[place] = Outcome(place_of(kind, *place), REFUSED, str(decided))
                continue
            decisions.append((entry, decided))
            log.info(
                "an operator decided about stuck work", decision=choice, place=entry.row.place, by=connection.address
            )
        for entry, outcome in await self._ended(kind, decisions):
            outcomes[entry.queue, entry.offset] = outcome
        return json_answer(command, {"outcomes": [attrs.asdict(outcomes[place]) for place in places]})

    def _check_role(self, kind: str, choice: str) -> None:
        """Raise :class:`CommandError` when this broker does not look after it, or may not store it again."""
        rules = self._parts.rules()
        if not (rules.active and (rules.may_store or rules.acting)):
            remark = f"this broker does not look after it: {rules.reason}"
            raise CommandError(ResponseCode.NO_PERMISSION, remark)
        if choice == REQUEUE and kind != POP and self._parts.identity.role.is_slave:
            remark = "a slave stores nothing: requeue it at the master, or drop it here"
            raise CommandError(ResponseCode.NO_PERMISSION, remark)

    def _decide(self, kind: str, entry: StuckEntry, choice: str) -> Decided | str:
        """Have the queue do what was decided at its next read; return why not, if it is not stuck any more."""
        source = source_of(self._parts.deferred, kind)
        if not entry.row.stuck:
            return entry.row.why
        if source.position(entry.queue) > entry.position:
            return "it is not stuck any more"
        decided = source.left_out.add(entry.queue, entry.offset, entry.position, again=choice == REQUEUE)
        return "it is decided already" if decided is None else decided

    async def _ended(
        self, kind: str, decisions: Sequence[tuple[StuckEntry, Decided]]
    ) -> list[tuple[StuckEntry, Outcome]]:
        """Return what became of *decisions*, after a while at the most."""
        left_out, found = source_of(self._parts.deferred, kind).left_out, list[tuple[StuckEntry, Outcome]]()
        with self._parts.world.clock.move_on_after(PASS_SECONDS):
            for _, decided in decisions:
                await left_out.ended(decided)
        done = [(entry, decided) for entry, decided in decisions if decided.passed and decided.met]
        for entry, decided in done:
            if not decided.again:
                self._uncount(entry)
        unsaved = await self._save(kind) if done else ""
        for entry, decided in decisions:
            place, waits = entry.row.place, (entry.queue, entry.offset) in left_out
            if decided.passed and decided.met:
                outcome = Outcome(place, WAITS if unsaved else DONE, unsaved)
            elif decided.passed:
                outcome = Outcome(place, REFUSED, "it went where it belongs meanwhile")
            elif waits:
                outcome = Outcome(place, WAITS, _WAITS)
            else:
                outcome = Outcome(place, REFUSED, "the role of this broker changed meanwhile, it waits as before")
            found.append((entry, outcome))
        return found

    def _uncount(self, entry: StuckEntry) -> None:
        """Count what was dropped no more; what waits once more is counted as before."""
        point = entry.what
        if isinstance(point, CheckPoint):
            in_flight = self._parts.deferred.pops.moving.in_flight
            in_flight.add(point.topic, point.group, point.queue_id, -len(point.open_offsets))
        elif entry.row.kind == TIMER:
            self._parts.deferred.timing.timer.left(entry.row.topic)

    async def _save(self, kind: str) -> str:
        """Make the progress of *kind* durable; return why it is not, ``""`` when it is."""
        tables, persistence = self._parts.tables, self._parts.persistence
        try:
            if kind == TIMER:
                await persistence.save(tables.timer.name)
                await self._parts.deferred.timing.flush()
            else:
                await persistence.save((tables.offsets if kind == POP else tables.delay).name)
        except OSError as error:
            return f"it is passed, but the disk does not take that yet: {error}"
        return ""
