"""Who may speak for a broker that is registered.

Nothing that a peer says proves who it is, so these are the laws until brokers sign what they send:

* The connections over which a broker registered and sent heartbeats may speak for it, and every connection from the
  host of that connection: a broker that restarts in its place, the other brokers of its container, a second connection.
* Others may register in its place, or sign it off, when it was silent for as long as it may be, or longer than any
  broker is between two registrations: it moved, and its old host is gone without a word. When a broker ends, its
  connection ends, and nothing is left to be spoken for.
* In a group that a controller leads, a member may take the master's id with a newer state version: it was elected. A
  member is who registered in the group under another id from the same host before; in the first minute of a group
  anybody may be one. A master who lost its id to one that was never elected has it back with the next election.
* Heartbeats of others never count: they would keep a dead broker in the routes.
* A free id from 1 on is anybody's: so a slave comes, from a host that was never heard of. While a master lives that
  one adds its address and nothing else: no topics, not whether a slave may act, no zone and no other cluster.

The host is the other end of the wire, whatever a PROXY preamble says; behind one proxy all peers are one host.
"""

from __future__ import annotations

from collections.abc import Mapping

from understudy.namesrv.records import MASTER_ID, BrokerGroup, Member, MemberKey, Registration

SILENCE_MS = 65_000
"""Brokers register at least once a minute (``registerNameServerPeriod``)."""
MOST_ELECTIONS = 1 << 20
"""Elections that a name server may have missed while a master was registered; a DLedger group of the reference has a
new term each second while a member is cut off. More were never held."""


def is_its_own(member: Member, connection: object, host: str) -> bool:
    """Return whether *connection*, from *host*, is one of *member*'s own."""
    return connection is member.connection or connection is member.heartbeat_connection or host == member.host


def is_silent(member: Member, now_ms: int) -> bool:
    """Return whether *member* was silent for so long that it may have moved."""
    return now_ms - member.seen_ms > min(member.timeout_ms, SILENCE_MS)


def may_replace(member: Member, connection: object, host: str, now_ms: int) -> bool:
    """Return whether what another connection says may end a member's registration.

    Args:
        member: who is registered.
        connection: over which the other registration, or the sign-off, comes.
        host: of that peer.
        now_ms: monotonic time.
    """
    return is_its_own(member, connection, host) or is_silent(member, now_ms)


def may_describe(group: BrokerGroup, event: Registration, connection: object, host: str) -> bool:
    """Return whether a registration says what holds for the whole group: while a master lives that one does alone.

    Differs from the reference, where the last one does: a stranger could forbid the slaves to act.

    Args:
        group: as it is before.
        event: the registration, which takes nobody's place without being allowed to.
        connection, host: what it came over, and from where.
    """
    master = group.members.get(MASTER_ID)
    return master is None or event.broker_id == MASTER_ID or is_its_own(master, connection, host)


def is_elected(event: Registration, group: BrokerGroup, host: str, now_ms: int) -> bool:
    """Return whether a registration in the place of a living master is believed to be of one that was elected.

    The highest state version wins among members, so that a wrong belief ends with the next registration; a displaced
    master needs a higher one than it had itself, for who displaced it may have claimed any. No election gives two
    masters the same one.

    Args:
        event: the registration.
        group: its group.
        host: from where it came.
        now_ms: monotonic time.
    """
    holder = group.members.get(MASTER_ID)
    if holder is None or event.broker_id != MASTER_ID or holder.version.state_version <= 0:
        return False
    before = group.former.get(event.address)
    at_address = [before, *(member for member in group.members.values() if member.address == event.address)]
    # After a start nobody was a member before, and a former master may come first.
    begins = now_ms - group.since_ms <= SILENCE_MS
    if not begins and not any(member is not None and member.host == host for member in at_address):
        return False
    least = held = holder.version.state_version
    if before is not None and before.host == host and before.broker_id == MASTER_ID:
        least = min(least, before.version.state_version)
    return least < event.version.state_version <= held + MOST_ELECTIONS and event.version.state_version != held


def defended(
    event: Registration,
    live: Mapping[MemberKey, Member],
    group: BrokerGroup | None,
    connection: object,
    host: str,
    now_ms: int,
) -> Member | None:
    """Return the member that a registration would end without being allowed to, or ``None``.

    Args:
        event: the registration.
        live: every member.
        group: the group of the name that is registered, if there is one.
        connection, host: what it came over, and from where.
        now_ms: monotonic time.
    """
    at_address = [member for member in (group.members.values() if group else ()) if member.address == event.address]
    known = live.get((event.cluster, event.address))
    if known is not None:
        at_address.append(known)
    for member in at_address:
        if not may_replace(member, connection, host, now_ms):
            return member
    if group is None:
        return None
    master = group.members.get(MASTER_ID)
    if master is not None and master.cluster != event.cluster and not may_replace(master, connection, host, now_ms):
        return master
    holder = group.members.get(event.broker_id)
    if holder is None or holder.address == event.address or may_replace(holder, connection, host, now_ms):
        return None
    return None if is_elected(event, group, host, now_ms) else holder
