"""Whose clients make the traffic of a failover of real processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial

import attrs

from understudy.testkit.drills.grpc_traffic import GrpcTraffic
from understudy.testkit.drills.half_traffic import BROKER_KEYS
from understudy.testkit.drills.process_traffic import JavaTraffic, OurTraffic, Traffic
from understudy.testkit.java_tools import missing, missing_grpc


@attrs.frozen
class Clients:
    """Some kind of clients.

    Attributes:
        title: what a drill calls them.
        open: makes their traffic, given the name servers.
        missing: returns in one line what they lack on this machine, ``None`` for nothing.
        broker_keys: settings that brokers need for them.
    """

    title: str
    open: Callable[[str], AbstractAsyncContextManager[Traffic]]
    missing: Callable[[], str | None]
    broker_keys: Mapping[str, str] = attrs.field(factory=dict)


_FOR_POPS = {"timerWheelEnable": "true", "mappedFileSizeTimerLog": str(1 << 20)}
"""Who pops is told by the timer what was not acknowledged."""

CLIENTS = {
    "ours": Clients("our clients", OurTraffic.open, lambda: None),
    "java": Clients("the real Java clients", JavaTraffic.open, missing),
    "grpc": Clients("real gRPC clients behind a proxy", GrpcTraffic.open, missing_grpc, _FOR_POPS),
}
TRANSACTING = {
    "ours": Clients(
        "our clients, which send transactions, too",
        partial(OurTraffic.open, transactions=True),
        lambda: None,
        BROKER_KEYS,
    ),
    "java": Clients(
        "the real Java clients, transactions among it",
        partial(JavaTraffic.open, transactions=True),
        missing,
        BROKER_KEYS,
    ),
}
"""Those of :data:`CLIENTS` that can, with a sender of transactions."""
