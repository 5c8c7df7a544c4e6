"""Whose word counts for a broker that is heard.

Nothing that a peer says proves who it is: names, ids and addresses are on the wire and in every route. So these are the
laws, as those of name servers (``namesrv/trust.py``), until brokers sign what they send:

* For a broker that was heard speaks who is at the host from which it was heard, whatever the address that it tells: a
  broker that connects anew, a second connection, a broker behind a router that puts its own address there.
* So does who is at the host that its address names, where that is an IP address: no other can be there.
* So does who knows the incarnation of its store, which only it and the controllers do: its way here may have changed.
* Others count when it has been silent for as long as it may be: it moved. Until then their heartbeats are refused, also
  when its connection has ended: they would keep a dead master in its place. So is what they say of its life and set.
* Nobody may be silent for longer than :data:`LONGEST_TIMEOUT_MS`.

The host is the other end of the wire, whatever a PROXY preamble says; behind one proxy all peers are one host.
"""

from __future__ import annotations

from understudy.controller.group import Group
from understudy.controller.liveness import BrokerKey, Liveness
from understudy.controller.metadata import Metadata
from understudy.remoting.codes import ResponseCode
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError
from understudy.runtime.damping import Damping
from understudy.runtime.log import get_logger

log = get_logger("controller.trust")

MAX_STRANGERS = 1_000
"""Brokers without an id here whose heartbeats are kept: theirs may be on its way, or they send nonsense."""

LONGEST_TIMEOUT_MS = 600_000
"""A longer ``heartbeatTimeoutMills`` is taken for this one: a master would not be replaced for as long."""

_MAPPED = "::ffff:"
"""What stands before an IPv4 address where a socket serves both families."""


def check_owner(group: Group | None, key: BrokerKey, address: str) -> None:
    """Refuse a heartbeat of a broker that is not the one whom the group has under its id; it would keep that one alive.

    Args:
        group: that has the name; ``None``: none has.
        key: the broker.
        address: where it is.

    Raises:
        CommandError: it is of another cluster, or the id belongs to a broker at another address: that registered later.
    """
    if group is None:
        return
    if group.cluster_name not in ("", key.cluster_name):
        remark = (
            f"Broker-set: {key.broker_name} belongs to cluster {group.cluster_name}; give the brokers of cluster "
            f"{key.cluster_name[:100]} another brokerName"
        )
        raise CommandError(ResponseCode.CONTROLLER_INVALID_REQUEST, remark)
    replica = group.replicas.get(key.broker_id)
    if replica is not None and replica.address != address:
        remark = f"BrokerId: {key.broker_id} in broker-set: {key.broker_name} belongs to {replica.address}"
        raise CommandError(ResponseCode.CONTROLLER_INVALID_REQUEST, remark)


class Speakers:
    """Refuses what a peer says for a broker that is heard from another host.

    Args:
        metadata: who is registered.
        liveness: who is heard, and from where.
    """

    def __init__(self, metadata: Metadata, liveness: Liveness) -> None:
        self._metadata = metadata
        self._liveness = liveness
        self._lines = Damping()

    def check_heartbeat(
        self, key: BrokerKey, address: str, connection: Connection, now: float, incarnation: str = ""
    ) -> None:
        """Refuse a heartbeat that is not to be counted.

        Args:
            key: the broker.
            address: where it is.
            connection: over which it came.
            now: monotonic seconds.
            incarnation: of its store, if it says so.

        Raises:
            CommandError: it is not of the broker whom the group has under its id, is from another host than that one
                was heard from, or is of one more broker without an id than can be kept.
        """
        group = self._metadata.groups.get(key.broker_name)
        check_owner(group, key, address)
        self.check(key.broker_name, key.broker_id, connection, now, incarnation=incarnation)
        if group is None or key.broker_id not in group.replicas:
            self._check_room_for(key)

    def check(
        self,
        name: str,
        broker_id: int,
        connection: Connection,
        now: float,
        ext: dict[str, str] | None = None,
        incarnation: str = "",
    ) -> None:
        """Refuse what another host says for a broker that is heard, or that was heard a moment ago.

        Args:
            name, broker_id: the broker.
            connection: over which it is said.
            now: monotonic seconds.
            ext: header fields of the refusal.
            incarnation: of its store, if it says so.

        Raises:
            CommandError: it is another host.
        """
        record = self._liveness.record(name, broker_id)
        if record is None or connection is record.connection or now > record.missed_at:
            return
        if incarnation and incarnation == record.facts.incarnation:
            return
        group = self._metadata.groups.get(name)
        replica = group.replicas.get(broker_id) if group is not None else None
        if replica is None or replica.address != record.address:
            return  # what was heard is of another place than the one that it has now
        if source_of(connection) in (record.source, record.address.rpartition(":")[0].strip("[]")):
            return
        fields = {"group": name, "broker": broker_id, "peer": connection.address, "source": record.source}
        self._lines.tell(log.warning, "refused, the broker is heard from another host", now, **fields)
        remark = (
            f"BrokerId: {broker_id} in broker-set: {name} at {record.address} was heard {now - record.heard:.1f} s ago "
            f"from another host; stop it first, or try again when it is silent"
        )
        raise CommandError(ResponseCode.CONTROLLER_INVALID_REQUEST, remark, ext)

    def _check_room_for(self, stranger: BrokerKey) -> None:
        """Refuse a heartbeat of a broker that has no id here, if there are very many of them."""
        liveness = self._liveness
        if liveness.record(stranger.broker_name, stranger.broker_id) is not None or liveness.known < MAX_STRANGERS:
            return
        registered = sum(len(group.replicas) for group in self._metadata.groups.values())
        if liveness.known >= registered + MAX_STRANGERS:
            remark = f"[OVERLOAD]system busy, heartbeats of {MAX_STRANGERS} brokers that have no id are kept already"
            raise CommandError(ResponseCode.SYSTEM_BUSY, remark)


def source_of(connection: Connection) -> str:
    """Return the host that a heartbeat came from, as :attr:`~understudy.controller.liveness.Heartbeat.source`."""
    return connection.source.removeprefix(_MAPPED)
