"""Registrations as a route table takes them, and what is read out of routes."""

from __future__ import annotations

from understudy.format.data_version import DataVersion
from understudy.namesrv.records import MappingInfo, MinBrokerIdNotice, QueueData, Registration
from understudy.namesrv.route_table import RouteTable
from understudy.namesrv.routes import Route

TOPICS = {"T1": 6, "T2": 6}


def queues(name: str, perm: int = 6, number: int = 8, flags: int = 0) -> QueueData:
    return QueueData(name, perm, number, flags, number)


def registration(
    name: str = "a",
    broker_id: int = 0,
    address: str = "",
    topics: dict[str, int] | None = None,
    *,
    cluster: str = "C",
    acting: bool | None = False,
    counter: int = 1,
    state_version: int = 0,
    timeout_ms: int | None = None,
    zone: str | None = None,
    mappings: tuple[MappingInfo, ...] = (),
) -> Registration:
    address = address or f"{name}{broker_id}:1"
    table = TOPICS if topics is None else topics
    return Registration(
        cluster,
        name,
        broker_id,
        address,
        "ha-" + address,
        zone,
        timeout_ms,
        acting,
        DataVersion(state_version, counter, 5),
        {topic: queues(name, perm) for topic, perm in table.items()},
        mappings,
        (),
    )


def addresses(route: Route | None) -> dict[str, dict[int, str]]:
    assert route is not None
    return {broker.name: broker.addresses for broker in route.brokers}


def perms(route: Route | None) -> dict[str, int]:
    assert route is not None
    return {item.broker_name: item.perm for item in route.queues}


def remove(table: RouteTable, *keys: tuple[str, str]) -> tuple[MinBrokerIdNotice, ...]:
    return table.remove([table.live[key] for key in keys])
