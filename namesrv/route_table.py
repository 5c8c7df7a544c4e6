"""The route table: brokers, clusters, topics and liveness as one value that only events change.

Laws of this table, held after every event:

* a member is in ``live`` if and only if it is in its group's ``members``, and it is the same object;
* a group is listed in a cluster if and only if it exists; a topic exists only while some group has queues for it;
* every group that has queues exists;
* ``revision`` moves with every change that a route, list or cluster answer could show, and never otherwise, so that
  encoded answers may be kept until it does. Heartbeats and unchanged registrations do not move it.

No clock, socket or file: time comes in with the event (monotonic milliseconds), notifications go out as values.
Behaviour is that of RouteInfoManager.java unless a comment says "differs".
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from understudy.format.data_version import DataVersion
from understudy.namesrv.records import (
    DEFAULT_TIMEOUT_MS,
    MASTER_ID,
    BrokerGroup,
    Member,
    MemberKey,
    MinBrokerIdNotice,
    Registration,
    min_broker_id_notice,
)
from understudy.namesrv.topic_table import TopicTable, without_write
from understudy.namesrv.trust import defended, is_elected, is_its_own, may_describe, may_replace

MOST_BROKERS = 10_000
"""Brokers, groups of brokers, and clusters: more of each are refused."""
MOST_OF_ONE_HOST = 100
"""Brokers of one group from one host: others are refused, so that no stranger takes all free ids of a group."""


@attrs.frozen
class RegistrationResult:
    """What a registration led to.

    Attributes:
        refused: the broker must send its full topic table first; answered as an error.
        owner: the living member that this broker would have ended; nothing was changed, answered as an error.
        stale: a member with a newer state version holds this id; answered as success without addresses.
        ha_address: replication address of the live master, for a slave.
        master_address: address of the live master, for a slave.
        displaced: address of the member that lost its id to this one.
        notices: group members to be told about a new smallest id.
    """

    refused: bool = False
    owner: Member | None = None
    stale: bool = False
    ha_address: str | None = None
    master_address: str | None = None
    displaced: str | None = None
    notices: tuple[MinBrokerIdNotice, ...] = ()


@attrs.define(eq=False)
class RouteTable:
    """Everything the name server knows about brokers; changed by :meth:`register` and its neighbours only."""

    topics: TopicTable = attrs.field(factory=TopicTable)
    groups: dict[str, BrokerGroup] = attrs.field(factory=dict)
    clusters: dict[str, dict[str, None]] = attrs.field(factory=dict)
    live: dict[MemberKey, Member] = attrs.field(factory=dict)
    filter_servers: dict[MemberKey, tuple[str, ...]] = attrs.field(factory=dict)
    _member_revision: int = 0

    @property
    def revision(self) -> int:
        """Number of changes that an answer could show."""
        return self._member_revision + self.topics.revision

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Forget *topic*, altogether or on the groups of one cluster; unknown ones are fine."""
        self.topics.delete(topic, None if cluster is None else list(self.clusters.get(cluster, ())))

    def full_for(self, cluster: str, name: str, address: str, host: str) -> bool:
        """Tell whether a broker, group or cluster is one too many: see the limits above.

        Args:
            cluster, name, address: what a broker says of itself.
            host: from where it comes.
        """
        if len(self.live) >= MOST_BROKERS and (cluster, address) not in self.live:
            return True
        if len(self.groups) >= MOST_BROKERS and name not in self.groups:
            return True
        members = self.groups[name].members.values() if name in self.groups else ()
        known = any(member.address == address for member in members)
        if not known and sum(member.host == host for member in members) >= MOST_OF_ONE_HOST:
            return True
        return len(self.clusters) >= MOST_BROKERS and cluster not in self.clusters

    # -- registration -------------------------------------------------------------------------------------------

    def register(
        self,
        event: Registration,
        connection: object,
        now_ms: int,
        *,
        host: str = "",
        delete_missing_topics: bool = False,
    ) -> RegistrationResult:
        """Take a full or incremental registration.

        Args:
            event: what the broker said.
            connection: what it said it over; compared by identity only.
            now_ms: monotonic time.
            host: the host at the other end of *connection*.
            delete_missing_topics: forget topics of this group that a registration does not name (the setting
                ``deleteTopicWithBrokerRegistration``; only safe with brokers that register single topics by 217).
        """
        owner = defended(event, self.live, self.groups.get(event.name), connection, host, now_ms)
        if owner is not None:
            return RegistrationResult(owner=owner)
        notices = list(self._leave_other_group(event))
        group, created = self._group(event, now_ms)
        elected = is_elected(event, group, host, now_ms)
        if may_describe(group, event, connection, host):
            self._describe(group, event)

        if event.broker_id not in group.members and len(event.topics) == 1:
            # Differs: the reference has already dropped the address from its former id when it refuses here.
            return RegistrationResult(refused=True, notices=tuple(notices))
        smallest_before = min(group.members, default=0)
        self._drop_same_address(group, event)

        holder = group.members.get(event.broker_id)
        displaced = None
        if holder is not None and holder.address != event.address:
            if holder.version.state_version > event.version.state_version and not elected:
                return RegistrationResult(stale=True, notices=tuple(notices))
            displaced = holder.address
        first = created or holder is None
        known = self.live.get((event.cluster, event.address))
        changed = known is None or known.version != event.version
        self._enter(group, event, connection, host, now_ms)
        self._take_topics(group, event, first, changed, delete_missing_topics)
        self._take_filter_servers(event)

        ha_address = master_address = None
        master = group.members.get(MASTER_ID)
        if event.broker_id != MASTER_ID and master is not None:
            ha_address, master_address = master.ha_address, master.address
        if event.broker_id < smallest_before:
            notices.append(min_broker_id_notice(group, ha_address=event.ha_address))
        return RegistrationResult(
            ha_address=ha_address, master_address=master_address, displaced=displaced, notices=tuple(notices)
        )

    def _leave_other_group(self, event: Registration) -> tuple[MinBrokerIdNotice, ...]:
        # Differs: a broker that comes back under another name leaves its old group now; the reference keeps both.
        previous = self.live.get((event.cluster, event.address))
        if previous is None or previous.name == event.name:
            return ()
        return self.remove([previous])

    def _group(self, event: Registration, now_ms: int) -> tuple[BrokerGroup, bool]:
        names = self.clusters.setdefault(event.cluster, {})
        if event.name not in names:
            names[event.name] = None
            self._member_revision += 1
        group = self.groups.get(event.name)
        if group is not None:
            return group, False
        group = self.groups[event.name] = BrokerGroup(event.name, event.cluster, since_ms=now_ms)
        self._member_revision += 1
        return group, True

    def _describe(self, group: BrokerGroup, event: Registration) -> None:
        if (group.acting, group.zone) != (event.acting is True, event.zone):
            group.acting, group.zone = event.acting is True, event.zone
            self._member_revision += 1

    def _drop_same_address(self, group: BrokerGroup, event: Registration) -> None:
        for member in list(group.members.values()):
            same_address = member.address == event.address
            if same_address and (member.broker_id != event.broker_id or member.cluster != event.cluster):
                self._forget(group, member)

    def _enter(self, group: BrokerGroup, event: Registration, connection: object, host: str, now_ms: int) -> None:
        holder = group.members.get(event.broker_id)
        if holder is None or holder.address != event.address:
            self._member_revision += 1
        if holder is not None:
            # Differs: a displaced member is gone; the reference leaves a liveness record that belongs to nobody.
            self.live.pop(holder.key, None)
            if holder.address != event.address:
                group.remember(holder)
            if holder.key != (event.cluster, event.address):
                self.filter_servers.pop(holder.key, None)
        timeout_ms = DEFAULT_TIMEOUT_MS if event.timeout_ms is None else event.timeout_ms
        member = Member(
            event.cluster,
            event.name,
            event.broker_id,
            event.address,
            event.ha_address,
            event.version,
            timeout_ms,
            now_ms,
            connection,
            host=host,
            contributes=event.acting is not None,
        )
        group.members[event.broker_id] = member
        self.live[member.key] = member

    def _take_topics(
        self, group: BrokerGroup, event: Registration, first: bool, changed: bool, delete_missing: bool
    ) -> None:
        prime_slave = group.is_prime_slave(event.broker_id, event.acting is not None)
        if event.broker_id != MASTER_ID and not prime_slave:
            return
        # Differs: what a slave had said when it was the smallest one stays in the reference until a version changes.
        key = (event.cluster, event.address)
        changed = changed or group.topics_of not in (None, key)
        if first or changed:
            group.topics_of = key if prime_slave else None
        if delete_missing and not event.mappings:
            self.topics.keep_only(group.name, event.topics)
        read_only = prime_slave and group.acting
        for topic, queues in event.topics.items():
            if first or changed or not self.topics.has(topic, group.name):
                self.topics.put(topic, without_write(queues) if read_only else queues)
        if first or changed:
            for mapping in event.mappings:
                self.topics.put_mapping(mapping)

    def _take_filter_servers(self, event: Registration) -> None:
        key = (event.cluster, event.address)
        if event.filter_servers is None or self.filter_servers.get(key, ()) == event.filter_servers:
            return
        if event.filter_servers:
            self.filter_servers[key] = event.filter_servers
        else:
            del self.filter_servers[key]
        self._member_revision += 1

    # -- liveness -----------------------------------------------------------------------------------------------

    def heartbeat(self, key: MemberKey, connection: object, now_ms: int, *, host: str = "") -> bool:
        """Refresh a member; never create one.

        Args:
            key: the member.
            connection: over which the heartbeat came.
            now_ms: monotonic time.
            host: of the peer.

        Returns:
            Whether it is known and this is from its own host.
        """
        member = self.live.get(key)
        if member is None or not is_its_own(member, connection, host):
            return False
        member.seen_ms = now_ms
        member.heartbeat_connection = None if connection is member.connection else connection
        return True

    def data_version(
        self, key: MemberKey, version: DataVersion | None, connection: object, now_ms: int, *, host: str = ""
    ) -> tuple[bool, DataVersion | None]:
        """Compare the version of a member's topics.

        Args:
            key: the member, which is refreshed by the question.
            version: what the broker has; ``None`` differs from everything.
            connection: over which the question came.
            now_ms: monotonic time.
            host: of the peer.

        Returns:
            Whether the topics should come again: *version* differs from the registered one, some were left out, or
            those of the group are of a slave in whose place this member is now; and the registered version.
        """
        member = self.live.get(key)
        if member is None:
            return True, None
        self.heartbeat(key, connection, now_ms, host=host)
        group = self.groups[member.name]
        decides = member.broker_id == MASTER_ID or group.is_prime_slave(member.broker_id, member.contributes)
        replaced = decides and group.topics_of not in (None, key)
        return replaced or member.version != version or member.name in self.topics.lacking, member.version

    def next_deadline_ms(self) -> int | None:
        """Return the monotonic time at which the next member falls silent for too long, or ``None``."""
        return min((member.deadline_ms for member in self.live.values()), default=None)

    def silent(self, now_ms: int) -> list[Member]:
        """Return the members that have been silent for longer than they said they may."""
        return [member for member in self.live.values() if member.deadline_ms < now_ms]

    def lost_with(self, connection: object) -> list[Member]:
        """Take the end of *connection* and return the members that are lost with it: all of them, not only one.

        A member whose heartbeats have moved to another open connection stays and belongs to that one from now on.
        """
        lost = []
        for member in self.live.values():
            if member.heartbeat_connection is connection:
                member.heartbeat_connection = None
            if member.connection is not connection:
                continue
            if member.heartbeat_connection is None:
                lost.append(member)
            else:
                member.connection, member.heartbeat_connection = member.heartbeat_connection, None
        return lost

    def to_unregister(
        self,
        key: MemberKey,
        name: str | None,
        broker_id: int | None,
        connection: object,
        now_ms: int = 0,
        *,
        host: str = "",
    ) -> Member | None:
        """Return the member an unregistration means, or ``None`` when it speaks of one that is not there.

        Differs: the reference goes by the address alone. Here the group must match, and the id as well unless the
        request came over the very connection the member registered over; and others may not sign a living member off.

        Args:
            key: cluster and address.
            name: of its group, if the request tells.
            broker_id: its id, if the request tells.
            connection: over which the request came.
            now_ms: monotonic time.
            host: of the peer.
        """
        member = self.live.get(key)
        if member is None or member.name != name or not may_replace(member, connection, host, now_ms):
            return None
        return member if member.broker_id == broker_id or member.connection is connection else None

    def remove(self, members: Iterable[Member]) -> tuple[MinBrokerIdNotice, ...]:
        """Remove *members* in one step and return whom to tell.

        A member that has registered again since is left alone: the caller holds an old record. Groups that allow
        acting and are left without a master become read-only; groups left without members disappear.
        """
        removed: set[str] = set()
        reduced: dict[str, str | None] = {}  # group name to the address of the smallest member that went
        for member in members:
            group = self.groups.get(member.name)
            if group is None or self.live.get(member.key) is not member:
                continue
            was_smallest = member.broker_id == group.smallest_id()
            self._forget(group, member)
            if not group.members:
                self._drop_group(group)
                reduced.pop(group.name, None)
                removed.add(group.name)
            elif was_smallest:
                reduced[group.name] = member.address
            else:
                reduced.setdefault(group.name, None)
        masterless = {
            name for name in reduced if self.groups[name].acting and MASTER_ID not in self.groups[name].members
        }
        self.topics.leave(removed, masterless)
        return tuple(
            min_broker_id_notice(self.groups[name], offline_address=address)
            for name, address in reduced.items()
            if address is not None and self.groups[name].acting
        )

    def _forget(self, group: BrokerGroup, member: Member) -> None:
        del group.members[member.broker_id]
        del self.live[member.key]
        group.remember(member)
        self.filter_servers.pop(member.key, None)
        self._member_revision += 1

    def _drop_group(self, group: BrokerGroup) -> None:
        del self.groups[group.name]
        for cluster in [cluster for cluster, names in self.clusters.items() if group.name in names]:
            del self.clusters[cluster][group.name]
            if not self.clusters[cluster]:
                del self.clusters[cluster]
