"""The roles of a running broker, one session after the other, and how one gives way to the next.

The laws:

* Sends are refused first, with the code that has clients try elsewhere, and those that wait are answered. Then the
  session ends: what delivers, then what copies. Only then the role is another one.
* A port that the new role needs is taken before anything of it is true; when it cannot be had the old role goes on.
* Store, tables, ports, connections and the pulls that wait stay. What a session started is gone with it.
* A change that has begun is finished, whether the one who asked for it still waits or not.

Source: BrokerController.java, ReplicasManager.java (changeToMaster, changeToSlave).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs
import trio

from understudy.broker.former_copies import FormerCopies
from understudy.broker.hidden_messages import tell_hidden
from understudy.broker.logged_batches import LoggedBatches
from understudy.broker.lost_topics import rows_of_log
from understudy.broker.role import Role
from understudy.broker.saved_tables import save_replica_state
from understudy.broker.session import OpenRules, RoleSession
from understudy.broker.storage import store_settings
from understudy.remoting.codes import ResponseCode
from understudy.remoting.fields import CommandError
from understudy.runtime.log import get_logger
from understudy.runtime.network import ListenError
from understudy.runtime.signal import Signal

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

log = get_logger("broker.role")

REGISTRATION_MS = 1_000
STOPS = "the broker stops"
REPLACED_SECONDS = 0.1


class RoleChangeError(Exception):
    """The role stays as it is; the message says why."""


@attrs.define(eq=False)
class _Change:
    """A change that was asked for, and what became of it."""

    role: Role
    done: trio.Event = attrs.field(factory=trio.Event)
    error: RoleChangeError | None = None

    def finish(self, error: RoleChangeError | None = None) -> None:
        if not self.done.is_set():
            self.error = error
            self.done.set()


class Roles:
    """The roles of one broker.

    Args:
        broker: its parts exist.
        open_rules: opens the rules of each role.

    Attributes:
        session: the broker in its role of now.
    """

    def __init__(self, broker: Broker, open_rules: OpenRules) -> None:
        self._broker = broker
        self._open_rules = open_rules
        self._asked: deque[_Change] = deque()
        self._wake = Signal()
        self._ended = False
        self.session = RoleSession(broker, open_rules)

    async def change(self, role: Role) -> None:
        """Have the broker take *role*; return when its session has begun and name servers that answer quickly know it.

        Raises :class:`RoleChangeError`: it comes from an older epoch than the role in force, its port cannot be had,
        or the broker stops.
        """
        if self._ended:
            raise RoleChangeError(STOPS)
        change = _Change(role)
        self._asked.append(change)
        self._wake.set()
        await change.done.wait()
        if change.error is not None:
            raise change.error
        await self._broker.registration.settled(REGISTRATION_MS)

    async def run(self) -> None:
        """Run one session after the other until cancelled."""
        broker = self._broker
        try:
            while True:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.session.run, broker.services)
                    if broker.store.hidden(broker.store.max_physical_offset)[0]:
                        name = broker.identity.canonical_name
                        nursery.start_soon(tell_hidden, broker.store, broker.world.clock, name, broker.role)
                    change = await self._next()
                    broker.send.admission.closed = CommandError(
                        ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now: the broker changes its role"
                    )
                    await self._answer_waiting(change.role)
                    nursery.cancel_scope.cancel()
                with trio.CancelScope(shield=True):
                    await self._turn(change)
                self._asked.popleft()
        finally:
            self._ended = True
            for change in self._asked:
                change.finish(RoleChangeError(STOPS))

    async def _answer_waiting(self, role: Role) -> None:
        """Let sends that wait be answered, while slaves still copy.

        Those of a master that its controllers have replaced may copy from another one by now: it waits for a moment
        only, and who sent is told that it is not known whether the message stays. What was due and put is no safer: its
        progress stays, and the new master finds it in its log or puts it.
        """
        broker = self._broker
        if broker.led is None or not role.is_slave:
            await broker.acknowledgements.emptied()
            return
        with broker.world.clock.move_on_after(REPLACED_SECONDS):
            await broker.acknowledgements.emptied()
        broker.acknowledgements.give_up()
        broker.own_log.give_up()

    async def _next(self) -> _Change:
        """Wait for the next change that may be made; it stays the first of those asked for."""
        while True:
            while self._asked:
                change, current = self._asked[0], self._broker.role
                if change.role.epoch >= current.epoch:
                    return change
                change.finish(RoleChangeError(f"the epoch of {change.role} is older than that of {current}"))
                self._asked.popleft()
            await self._wake.wait()

    def _find_topics(self) -> None:
        """Make the rows of topics that were copied as messages, but not yet as rows."""
        broker = self._broker
        for row in (found := rows_of_log(broker.store.queues(), broker.topics.rows, LoggedBatches(broker.store))):
            log.warning("topic was not copied from the master in time, made anew", row=row.describe())
        broker.topics.take(found)

    async def _turn(self, change: _Change) -> None:
        """Give the broker, of which no session runs, the role that was asked for, and make its session."""
        broker, before = self._broker, self._broker.role
        error = None
        broker.replication.end()
        try:
            if before.is_slave and not change.role.is_slave:
                await broker.history.begin(promoted=True)
                self._find_topics()
                await broker.store.settle_kinds()  # from now on it stores what it is sent
            await broker.replication.prepare(change.role)
            await broker.replication.bind(change.role)
            if not change.role.is_slave:
                await broker.pops.recover()  # a slave's copy of the offsets is older than its copy of the log
            broker.identity.role = change.role
        except (ListenError, OSError) as refused:
            error = RoleChangeError(f"{refused}; the role stays {before}")
            await broker.replication.bind(before)
        broker.replication.begin()
        broker.member_group.begin_anew()
        if broker.role.is_slave:
            # What a master knows of its group is complete; a slave goes on from where its own log and tables end.
            broker.slave_sync.synced |= not before.is_slave
            save_replica_state(broker)
            broker.persistence.changed("replica")
        # The configuration shows the role in force, as the reference does; nothing here reads it from there.
        broker.options.broker.broker_id, broker.options.store.broker_role = broker.role.broker_id, broker.role.kind
        broker.store.change_settings(store_settings(broker.options.store, broker.role))
        self.session = RoleSession(broker, self._open_rules)
        broker.schedule.target = broker.timing.target = self.session.rules
        if broker.led is not None and before.is_slave and not broker.role.is_slave:
            until_safe, levels = broker.own_log.until_safe, len(broker.delay_levels_ms)
            broker.schedule.target = FormerCopies(broker.store, self.session.rules, until_safe, levels)
        broker.send.admission.closed = None
        broker.registration.trigger()
        broker.pops.change_role(self.session.rules)
        broker.hold.wake_all()
        log.info("role changed", broker=broker.identity.canonical_name, before=before, now=broker.role, error=error)
        change.finish(error)
