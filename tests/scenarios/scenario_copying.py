"""What slaves copy, from whom, and what their master hears of it."""

from __future__ import annotations

import math

from scenario_claims import Claims
from scenario_members import Broker

from understudy.broker.services import Service
from understudy.broker.source import source_of
from understudy.container.acting import Situation, services
from understudy.ha.hearing import Hearing, Voice

RETURN_SECONDS = 10.0
"""How long a slave believes that an announced master comes back (``broker/replication.py``)."""


class Copies(Claims):
    """Members that copy from each other: tables from whoever leads or acts, the log from a master only."""

    def _situation(self, broker: Broker) -> Situation:
        is_slave = broker.broker_id > 0
        awaits = is_slave and self.now - broker.announced_at < RETURN_SECONDS
        return Situation(
            broker_id=broker.broker_id,
            is_slave=is_slave,
            acting_enabled=broker.acting_enabled,
            isolated=broker.presence.isolated,
            members=broker.view.members,
            metadata_synced=broker.synced,
            master_returning=awaits and broker.successor is None,
            successor=broker.successor if awaits else None,
            master_declines=broker.view.master_declines,
            contact_lost=broker.presence.contact_lost,
            slaves_silent=broker.silence.slaves_silent,
        )

    def _copy(self, broker: Broker) -> None:
        """Copy as far as the services of *broker* that do so run; an acting slave's do not."""
        running = services(self._situation(broker))
        if not running[Service.REPLICATION_CLIENT].run:
            broker.connected = None
        elif self._giver(broker, broker.follows) is not None:
            broker.connected = broker.follows  # one that stands is kept when a master is called dead
        log_of = self._giver(broker, broker.connected)
        if log_of is not None:
            broker.log_end = max(broker.log_end, log_of.log_end)
        if not running[Service.METADATA_SYNC].run:
            return
        found = source_of(broker.broker_id, broker.address, broker.follows, broker.view.members, broker.synced)
        tables_of = None if found is None else self._reachable(broker, found[0])
        if tables_of is not None:
            broker.synced = True
            broker.commit_offset = max(broker.commit_offset, tables_of.commit_offset)

    def _giver(self, slave: Broker, address: str | None) -> Broker | None:
        """Return the master at *address* if *slave* reaches the port where it gives its log away."""
        found = None if address is None else self._reachable(slave, address)
        return None if found is None or frozenset((slave.name, found.name, "copies")) in self.cuts else found

    def _hearing(self, master: Broker) -> Hearing:
        for other in self.brokers[1:]:
            reachable = self._reachable(master, other.address) is not None
            if other.runs and other.connected == master.address and self._giver(other, master.address) is master:
                master.heard[other.broker_id] = self.now
                master.left.pop(other.broker_id, None)
            elif master.heard.get(other.broker_id, self.now) < self.now and (reachable or not other.alive):
                # the connection of a dead process ends, and of a slave that copies no more
                master.left.setdefault(other.broker_id, self.now)
                del master.heard[other.broker_id]
        voices = (Voice(f"b{number}", True, heard, math.inf) for number, heard in master.heard.items())
        return Hearing(tuple(voices), {f"b{number}": at for number, at in master.left.items()})
