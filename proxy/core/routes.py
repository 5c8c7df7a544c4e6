"""Where a client finds a topic's queues: the name server's route as the answers of QueryRoute and QueryAssignment.

Source: RouteActivity.java.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Sequence

from understudy.mqclient.route import MASTER_ID, READ, WRITE, BrokerAddresses, QueueGroup, TopicRoute
from understudy.proxy.core.statuses import ProxyError
from understudy.proxy.messages import rocketmq_v2 as v2

ANY_QUEUE = -1

EndpointsOf = Callable[[str], v2.Endpoints]
"""Where clients reach the proxy for a broker at an address ``host:port``."""


def endpoints(addresses: Sequence[tuple[str, int]]) -> v2.Endpoints:
    """Return *addresses* (host and port) with the scheme that fits the first of them."""
    found = v2.Endpoints(scheme=_scheme(addresses[0][0]) if addresses else v2.ADDRESS_SCHEME_UNSPECIFIED)
    for host, port in addresses:
        found.addresses.add(host=host, port=port)
    return found


def _scheme(host: str) -> v2.AddressScheme:
    try:
        return v2.IPv6 if ipaddress.ip_address(host).version == 6 else v2.IPv4
    except ValueError:
        return v2.DOMAIN_NAME


def asked_endpoints(asked: v2.Endpoints, port: int | None, own: tuple[str, int]) -> v2.Endpoints:
    """Return what a client is told in cluster mode: the addresses by which it asked.

    Args:
        asked: of the request.
        port: what stands in place of the ports asked for; ``None`` keeps them.
        own: address of the proxy, for a client that names none.
    """
    if not asked.addresses:
        return endpoints([own])
    told = v2.Endpoints(scheme=asked.scheme)
    for address in asked.addresses:
        told.addresses.add(host=address.host, port=address.port if port is None else port)
    return told


def message_queues(
    topic: v2.Resource, route: TopicRoute, kinds: Iterable[v2.MessageType], endpoints_of: EndpointsOf
) -> list[v2.MessageQueue]:
    """Return the queues of a route, for every broker that has them, slaves too.

    Args:
        topic: as the client named it.
        route: of the topic.
        kinds: types of messages that the topic takes.
        endpoints_of: where clients reach a broker.
    """
    types = list(kinds)
    found: list[v2.MessageQueue] = []
    for group in route.queue_groups:
        addresses = route.brokers.get(group.broker_name)
        if addresses is None:
            continue
        permissions = _permissions(group)
        for broker_id, address in sorted(addresses.addresses.items()):
            broker = v2.Broker(name=group.broker_name, id=broker_id, endpoints=endpoints_of(address))
            found += [
                v2.MessageQueue(
                    topic=topic, id=number, permission=permission, broker=broker, accept_message_types=types
                )
                for number, permission in enumerate(permissions)
            ]
    return found


def _permissions(group: QueueGroup) -> list[v2.Permission]:
    """Return the permission of each queue: first what can only be read, then only written, then both."""
    readable, writable = group.permission & READ, group.permission & WRITE
    reads = group.read_queues if readable else 0
    writes = group.write_queues if writable else 0
    both = min(reads, writes)
    if not readable and not writable:
        return [v2.NONE] * max(1, group.read_queues, group.write_queues)
    return [v2.READ] * (reads - both) + [v2.WRITE] * (writes - both) + [v2.READ_WRITE] * both


def assignments(
    topic: v2.Resource, route: TopicRoute, in_order: bool, endpoints_of: EndpointsOf
) -> list[v2.Assignment]:
    """Return what a push consumer reads: every readable broker, or in an orderly group every queue of each.

    Args:
        topic: as the client named it.
        route: of the topic.
        in_order: the group consumes in order.
        endpoints_of: where clients reach a broker.

    Raises:
        ProxyError: nothing can be read (40300).
    """
    found: list[v2.Assignment] = []
    for group in route.queue_groups:
        addresses = route.brokers.get(group.broker_name)
        if addresses is None or not addresses.addresses or not group.permission & READ or not group.read_queues:
            continue
        number, address = _first(addresses)
        broker = v2.Broker(name=group.broker_name, id=number, endpoints=endpoints_of(address))
        for queue_id in range(group.read_queues) if in_order else (ANY_QUEUE,):
            queue = v2.MessageQueue(topic=topic, id=queue_id, permission=v2.READ, broker=broker)
            found.append(v2.Assignment(message_queue=queue))
    if not found:
        raise ProxyError(v2.FORBIDDEN, f"no readable queue: no broker lets topic {topic.name} be read at the moment")
    return found


def _first(addresses: BrokerAddresses) -> tuple[int, str]:
    """Return id and address of the master, or of the slave with the smallest id."""
    number = MASTER_ID if MASTER_ID in addresses.addresses else min(addresses.addresses)
    return number, addresses.addresses[number]
