"""Takes over what a slave was told while its master could not reach it, as soon as it can be reached.

A master that every name server had dropped waits one timeout for each of its slaves, and then goes on without those
that do not answer. What clients committed at such a slave meanwhile is known there only, so the slave is kept in mind
beside the store until it has answered (:mod:`~understudy.broker.group_memory`). It is merged as ever, queue by
queue, but the master serves by now: only offsets that stand where they stood when it began to serve move. Progress of
delayed messages is left as it is, for the master has delivered by then whatever was due, check points of its own log
among it; those that only the slave has, and all acknowledgements, are taken home.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import trio

from understudy.broker import group_memory
from understudy.broker.broker import Broker
from understudy.broker.group_memory import LeftOut
from understudy.broker.merge import table_of, unmoved, up_to_date
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


def go_on_without(broker: Broker, left_out: Sequence[Member]) -> None:
    """Remember *left_out* as those without which *broker* serves from now on, whenever that began, and nobody else."""
    memory = broker.member_group.memory
    if left_out or memory.left_out:
        tables = {table.kind: table.stamped_offsets() for table in broker.tables.progress if table.late}
        addresses = {each.broker_id: each.address for each in left_out}
        broker.member_group.remember(group_memory.without(memory, addresses, tables))


class LateTakeOver:
    """What is still missing of one return.

    Args:
        broker: the master, which remembers who is left out.
        report: of its return.
        on_report: called with the report after each of them.
    """

    def __init__(self, broker: Broker, report: Report, on_report: Callable[[Report], None]) -> None:
        self._broker = broker
        self._report = report
        self._on_report = on_report
        self._tables = [table for table in broker.tables.progress if table.late]

    @property
    def missing(self) -> str:
        """The slaves that have not answered yet, for people."""
        left_out = self._broker.member_group.memory.left_out
        return ", ".join(str(Member(each.broker_id, each.address)) for each in left_out)

    async def run(self) -> None:
        """Ask until every slave has answered."""
        replication = self._broker.replication.master
        while True:
            connected = trio.Event()
            if replication is not None:
                replication.membership_changed.append(connected.set)
            try:
                for left in self._broker.member_group.memory.left_out:
                    await self._try(left)
                if not self.missing:
                    return
                with self._broker.world.clock.move_on_after(AGAIN_SECONDS):
                    await connected.wait()
            finally:
                if replication is not None:
                    replication.membership_changed.remove(connected.set)

    async def _try(self, left: LeftOut) -> None:
        broker, name = self._broker, self._broker.identity.canonical_name
        member = Member(left.broker_id, left.address)
        try:
            found = await compare(broker, member)
            await bring_back(broker, member, late=True)
        except (RemotingError, RefusedError, ValueError, OSError) as error:
            log.debug("slave still not reached", broker=name, member=member, why=error)
            return
        await end_passing(broker)  # the slave may have come further
        taken, moved = {}, {}
        before = {each.broker_id: each.before for each in broker.member_group.memory.left_out}.get(left.broker_id, {})
        for table in self._tables:
            rows = up_to_date(found[table].rows, table.stamped_offsets())
            merged = attrs.evolve(found[table], rows=unmoved(rows, before.get(table.kind, {})))
            table.put(merged)
            taken[table.kind] = merged.rows
            moved[table.kind] = table_of([row for row in merged.rows if row.changed])
        await begin_passing(broker)
        trouble = f"{self._report.trouble}; slave {member.broker_id} was heard later"
        late = TakenOver(member.broker_id, member.address, 0, taken)
        self._report = attrs.evolve(self._report, slaves=(*self._report.slaves, late), trouble=trouble)
        self._on_report(self._report)
        log.info("late take-over done", broker=name, report=self._report.line())
        await keep(broker, self._report)
        group = broker.member_group
        group.remember(group_memory.answered(group.memory, member.broker_id, moved))
