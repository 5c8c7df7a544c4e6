"""What the route table is made of.

A broker group is known by its name; each member has an id (0 is the master) and one address. A member *is* its
liveness record: a registration makes a new :class:`Member`, so whoever holds an old one (a timer, a closing
connection, a queued unregistration) can see that it is out of date and must not touch the table. The reference keeps
addresses and liveness in two tables and removes by address alone, so that a late expiry wipes a fresh registration.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import msgspec

from understudy.format.data_version import DataVersion

MASTER_ID = 0
PERM_READ = 4
PERM_WRITE = 2
UNIT_FLAG = 1
UNIT_SUBSCRIPTION_FLAG = 2

FORMER_MEMBERS = 16
"""Of a group, that are remembered while it exists."""

# RouteInfoManager.java: the silence after which a broker that states no timeout of its own is dropped.
DEFAULT_TIMEOUT_MS = 120_000

MemberKey = tuple[str, str]  # cluster name, remoting address


NO_VERSION = DataVersion()


class QueueData(msgspec.Struct, frozen=True, gc=False):
    """Queues of one topic on one broker group."""

    broker_name: str
    perm: int
    read_queues: int
    topic_flags: int
    write_queues: int


class MappingInfo(msgspec.Struct, frozen=True):
    """What one broker group knows of a static topic (TopicQueueMappingInfo.java)."""

    topic: str
    broker_name: str
    scope: str
    epoch: int
    total_queues: int
    dirty: bool
    current_ids: tuple[tuple[int, int], ...]


@attrs.define(eq=False)
class Member:
    """One registered broker. Compared by identity: every registration makes a new one.

    Attributes:
        cluster: name of its cluster, as it said itself.
        name: name of its group.
        broker_id: its id in the group.
        address: where clients reach it.
        ha_address: where its slaves reach it.
        version: version of the topic table it last registered.
        timeout_ms: silence after which it is dropped.
        seen_ms: monotonic time of its last registration or heartbeat.
        connection: the connection it registered over; losing it drops the member.
        heartbeat_connection: another, still open connection its heartbeats came over, if any.
        host: the host at the other end of *connection*.
        contributes: it says whether a slave may act, as brokers do whose smallest slave has the topics of its group.
    """

    cluster: str
    name: str
    broker_id: int
    address: str
    ha_address: str | None
    version: DataVersion
    timeout_ms: int
    seen_ms: int
    connection: object = attrs.field(default=None, repr=False)
    heartbeat_connection: object = attrs.field(default=None, repr=False)
    host: str = ""
    contributes: bool = True

    @property
    def key(self) -> MemberKey:
        return (self.cluster, self.address)

    @property
    def deadline_ms(self) -> int:
        """Monotonic time after which silence means that the member is gone."""
        return self.seen_ms + self.timeout_ms


@attrs.define
class BrokerGroup:
    """The members of one broker name.

    Attributes:
        name: the broker name, global to the name server.
        cluster: cluster of the first registration.
        members: by id.
        zone: zone of the last registration that may describe the group.
        acting: whether that registration allowed a slave to act for the master.
        topics_of: the slave whose topics are the group's; ``None``: they are the master's.
        former: by address, who was a member that a controller leads, and is none there any more, or another one.
        since_ms: when its first member registered (monotonic).
    """

    name: str
    cluster: str
    members: dict[int, Member] = attrs.field(factory=dict)
    zone: str | None = None
    acting: bool = False
    topics_of: MemberKey | None = None
    former: dict[str, Member] = attrs.field(factory=dict)
    since_ms: int = 0

    def addresses(self) -> dict[int, str]:
        """Return id to address, in order of id."""
        return {broker_id: self.members[broker_id].address for broker_id in sorted(self.members)}

    def smallest_id(self) -> int:
        """Return the smallest id present. Raises ``ValueError`` for an empty group."""
        return min(self.members)

    def is_prime_slave(self, broker_id: int, contributes: bool) -> bool:
        """Return whether a member's topics are the group's, because there is no master and it has the smallest id."""
        return contributes and MASTER_ID not in self.members and broker_id == self.smallest_id()

    def remember(self, member: Member) -> None:
        """Note one that is no member any more; that it was master is not forgotten for what it was later."""
        before = self.former.pop(member.address, None)
        if before is not None and before.host == member.host and before.broker_id == MASTER_ID != member.broker_id:
            member = before
        led = [member, *self.members.values(), *self.former.values()]
        if any(each.version.state_version > 0 for each in led):  # one of its slaves may have nothing of a master yet
            self.former[member.address] = member
        if len(self.former) > FORMER_MEMBERS:
            del self.former[next(iter(self.former))]


@attrs.frozen
class Registration:
    """One broker's registration as it came in.

    Attributes:
        timeout_ms: silence it tolerates, or ``None`` from brokers that do not say.
        acting: whether a slave may act, or ``None`` from 4.x brokers, whose slaves never contribute topics.
        topics: queues by topic name; the whole table or only what changed.
        mappings: static topics.
        filter_servers: ``None`` leaves what is known.
    """

    cluster: str
    name: str
    broker_id: int
    address: str
    ha_address: str | None = None
    zone: str | None = None
    timeout_ms: int | None = None
    acting: bool | None = None
    version: DataVersion = NO_VERSION
    topics: Mapping[str, QueueData] = attrs.field(factory=dict)
    mappings: tuple[MappingInfo, ...] = ()
    filter_servers: tuple[str, ...] | None = None


@attrs.frozen
class MinBrokerIdNotice:
    """Tell *targets* that the smallest id of their group is another one now.

    Attributes:
        broker_name: the group.
        targets: addresses to tell.
        broker_id: the smallest id.
        address: address of the member with that id.
        offline_address: address of the member that went, if one went.
        ha_address: replication address of the member that came, if one came.
    """

    broker_name: str
    targets: tuple[str, ...]
    broker_id: int
    address: str
    offline_address: str | None = None
    ha_address: str | None = None


def min_broker_id_notice(
    group: BrokerGroup, *, offline_address: str | None = None, ha_address: str | None = None
) -> MinBrokerIdNotice:
    """Make the notice for *group* as it is now (RouteInfoManager.java, notifyMinBrokerIdChanged).

    Everyone is told when a member went or only one is left; a new smallest member knows about itself already.
    """
    smallest = group.smallest_id()
    everyone = offline_address is not None or len(group.members) == 1
    targets = tuple(address for broker_id, address in group.addresses().items() if everyone or broker_id != smallest)
    return MinBrokerIdNotice(
        group.name, targets, smallest, group.members[smallest].address, offline_address, ha_address
    )
