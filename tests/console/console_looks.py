"""What brokers answer, as short as a test can say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understudy.console.model.looks import BrokerLook, GroupAddresses, Look

MASTER, SLAVE = "10.0.0.1:10911", "10.0.0.2:10911"


def roster(*services: tuple[str, str, int], active: bool = True, reason: str = "master", **more: Any) -> dict[str, Any]:
    """Return a roster with running *services*: name, reason and start."""
    return {
        "active": active,
        "activeReason": reason,
        "isolated": False,
        "role": {"kind": "SYNC_MASTER", "epoch": 0, "reason": "configuration"},
        "services": [{"name": name, "state": "running", "reason": why, "startedAt": at} for name, why, at in services],
        "warnings": [],
        **more,
    }


def master(at_ms: int, *, boot: int = 1_000, put: int = 0, got: int = 0, end: int = 500) -> BrokerLook:
    return BrokerLook(at_ms, figures(boot, put, got, end), roster(("schedule", "master", boot)))


def slave(at_ms: int, *, end: int = 500, got: int = 0) -> BrokerLook:
    return BrokerLook(at_ms, figures(1_500, 0, got, end), roster(active=False, reason=f"the master {MASTER} is there"))


def acting(at_ms: int, *, since: int, got: int = 0) -> BrokerLook:
    why = "acting: no master, and the smallest id of the group"
    services = (("schedule", why, since), ("timer", why, since + 3))
    return BrokerLook(at_ms, figures(1_500, 0, got, 500), roster(*services, reason=why))


def figures(boot: int, put: int, got: int, end: int) -> dict[str, str]:
    return {
        "bootTimestamp": str(boot),
        "brokerActive": "true",
        "msgPutTotalTodayNow": str(put),
        "msgGetTotalTodayNow": str(got),
        "commitLogMaxOffset": str(end),
        "putLatency99": "1.50",
        "brokerVersionDesc": "V5_4_0",
    }


def silent(at_ms: int) -> BrokerLook:
    return BrokerLook(at_ms, error="no connection: refused")


def look(
    at_ms: int,
    registered: Mapping[int, str] | None,
    brokers: Mapping[str, BrokerLook] | None = None,
    shown: Mapping[int, str] | None = None,
) -> Look:
    """Return a look at a cluster with one group, ``broker-a``; *registered* ``None``: no name server answers."""
    if registered is None:
        return Look(at_ms, None, brokers or {}, "no name server answers: refused")
    return Look(at_ms, {"broker-a": GroupAddresses("C", registered, shown or registered)}, brokers or {})
