"""Takes over what a slave was told while its master could not reach it, as soon as it can be reached.

A master that every name server had dropped waits one timeout for each of its slaves, and then goes on without those
that do not answer. What clients committed at such a slave meanwhile is known there only. It is merged as ever, queue by
queue, but the master serves by now: only offsets that stand where they stood when it began to serve move. Progress of
delayed messages is left as it is, for the master has delivered by then whatever was due, check points of its own log
among it; those that only the slave has, and all acknowledgements, are taken home.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import trio

from understudy.broker.broker import Broker
from understudy.broker.merge import unmoved, up_to_date
from understudy.container.lost_bytes import begin_passing, end_passing
from understudy.container.preonline.asking import RefusedError
from understudy.container.preonline.handshake import Member
from understudy.container.preonline.report import Report, TakenOver
from understudy.container.preonline.tables import bring_back, compare, keep
from understudy.remoting.errors import RemotingError
from understudy.runtime.log import get_logger

log = get_logger("container.preonline")

AGAIN_SECONDS = 10.0
"""A slave that connects is asked at once, one that only seems to be reachable after this time."""


class LateTakeOver:
    """What is still missing of one return. Make it before the master serves; its offsets are noted then.

    Args:
        broker: the master.
        report: of its return.
        left_out: the slaves that did not answer.
        on_report: called with the report after each of them.
    """

    def __init__(
        self, broker: Broker, report: Report, left_out: Sequence[Member], on_report: Callable[[Report], None]
    ) -> None:
        self._broker = broker
        self._report = report
        self._missing = list(left_out)
        self._on_report = on_report
        self._tables = [table for table in broker.tables.progress if table.late]
        self._before = {
            table.kind: {key: dict(q) for key, q in table.stamped_offsets().items()} for table in self._tables
        }

    @property
    def missing(self) -> str:
        """The slaves that have not answered yet, for people."""
        return ", ".join(map(str, self._missing))

    async def run(self) -> None:
        """Ask until every slave has answered."""
        replication = self._broker.replication.master
        while True:
            connected = trio.Event()
            if replication is not None:
                replication.membership_changed.append(connected.set)
            try:
                for member in list(self._missing):
                    await self._try(member)
                if not self._missing:
                    return
                with self._broker.world.clock.move_on_after(AGAIN_SECONDS):
                    await connected.wait()
            finally:
                if replication is not None:
                    replication.membership_changed.remove(connected.set)

    async def _try(self, member: Member) -> None:
        broker, name = self._broker, self._broker.identity.canonical_name
        try:
            found = await compare(broker, member)
            await bring_back(broker, member, late=True)
        except (RemotingError, RefusedError, ValueError, OSError) as error:
            log.debug("slave still not reached", broker=name, member=member, why=error)
            return
        await end_passing(broker)  # the slave may have come further
        taken = {}
        for table in self._tables:
            before = self._before[table.kind]
            rows = up_to_date(found[table].rows, table.stamped_offsets())
            merged = attrs.evolve(found[table], rows=unmoved(rows, before))
            table.put(merged)
            for row in merged.rows:
                if row.changed:
                    before.setdefault(row.key, {})[row.queue_id] = row.merged
            taken[table.kind] = merged.rows
        await begin_passing(broker)
        self._missing.remove(member)
        trouble = f"{self._report.trouble}; slave {member.broker_id} was heard later"
        late = TakenOver(member.broker_id, member.address, 0, taken)
        self._report = attrs.evolve(self._report, slaves=(*self._report.slaves, late), trouble=trouble)
        self._on_report(self._report)
        log.info("late take-over done", broker=name, report=self._report.line())
        await keep(broker, self._report)
