"""What a client is told about a topic: its route, with a slave in the place of a dead master."""

from __future__ import annotations

import attrs

from understudy.format.names import SYNC_MEMBER_TOPIC_PREFIX
from understudy.namesrv.records import MASTER_ID, PERM_WRITE, BrokerGroup, MappingInfo, QueueData
from understudy.namesrv.route_table import RouteTable

# TopicValidator.java: brokers read the members of their group as the route of this topic, so it shows real ids.


@attrs.frozen
class RouteBroker:
    """A broker group as a client sees it; *addresses* may show an acting slave under the master's id."""

    cluster: str
    name: str
    addresses: dict[int, str]
    acting: bool
    zone: str | None


@attrs.frozen
class Route:
    """The answer for one topic (TopicRouteData.java)."""

    brokers: tuple[RouteBroker, ...]
    queues: tuple[QueueData, ...]
    filter_servers: dict[str, tuple[str, ...]]
    mappings: dict[str, MappingInfo] | None
    order_config: str | None = None


def pick_up(
    table: RouteTable, topic: str, *, acting_master: bool = False, order_config: str | None = None
) -> Route | None:
    """Return the route of *topic*, or ``None`` when there is none.

    Args:
        table: read only.
        topic: any name.
        acting_master: show the smallest slave of a read-only group without master under the master's id (the setting
            ``supportActingMaster``).
        order_config: queues per group of an ordered topic, if such a configuration is to be shown.
    """
    by_group = table.topics.queues.get(topic)
    if by_group is None:
        return None
    rewrite = acting_master and not topic.startswith(SYNC_MEMBER_TOPIC_PREFIX)
    brokers = tuple(
        _route_broker(table.groups[name], rewrite and queues.perm & PERM_WRITE == 0)
        for name, queues in by_group.items()
    )
    filter_servers: dict[str, tuple[str, ...]] = {}
    if table.filter_servers:
        for name in by_group:
            for member in table.groups[name].members.values():
                servers = table.filter_servers.get(member.key)
                if servers:
                    filter_servers[member.address] = servers
    return Route(brokers, tuple(by_group.values()), filter_servers, table.topics.mappings.get(topic), order_config)


def _route_broker(group: BrokerGroup, may_rewrite: bool) -> RouteBroker:
    addresses = group.addresses()
    if may_rewrite and group.acting and addresses and MASTER_ID not in addresses:
        smallest = next(iter(addresses))
        addresses = {MASTER_ID: addresses.pop(smallest), **addresses}
    return RouteBroker(group.cluster, group.name, addresses, group.acting, group.zone)
