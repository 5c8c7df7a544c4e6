"""Routes for clients that want to stay in their zone (ZoneRouteRPCHook.java)."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from understudy.namesrv.records import MASTER_ID
from understudy.namesrv.routes import Route

ZONE_MODE = "__ZONE_MODE"
ZONE_NAME = "__ZONE_NAME"


def wanted_zone(ext: Mapping[str, str] | None) -> str | None:
    """Return the zone a request wants to stay in, or ``None`` when it wants every broker."""
    if not ext or (ext.get(ZONE_MODE) or "").lower() != "true":
        return None
    zone = ext.get(ZONE_NAME) or ""
    return zone if zone.strip() else None


def within_zone(route: Route, zone: str) -> Route:
    """Return *route* without the groups whose master is in another zone.

    A group without a master stays wherever it is, so that its slaves can be read from.
    """
    outside = [
        broker
        for broker in route.brokers
        if MASTER_ID in broker.addresses and (broker.zone is None or broker.zone.lower() != zone.lower())
    ]
    names = {broker.name for broker in outside}
    addresses = {address for broker in outside for address in broker.addresses.values()}
    return attrs.evolve(
        route,
        brokers=tuple(broker for broker in route.brokers if broker.name not in names),
        queues=tuple(queues for queues in route.queues if queues.broker_name not in names),
        filter_servers={
            address: servers for address, servers in route.filter_servers.items() if address not in addresses
        },
    )
