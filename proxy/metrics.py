"""What a proxy shows when somebody scrapes."""

from __future__ import annotations

from collections import Counter

import attrs

from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.runtime.load import Load
from understudy.runtime.metrics import Family, Sample, counter, gauge


@attrs.frozen
class Numbers:
    """What is counted as of now.

    Attributes:
        connections: open ones of gRPC clients.
        remoting_connections: open ones of remoting clients.
        clients: gRPC clients that are known.
        parked: receives that wait for brokers.
        held: messages that are renewed for clients.
        refused_connections: since the start, for want of descriptors.
    """

    connections: int
    remoting_connections: int
    clients: int
    parked: int
    held: int
    refused_connections: int


def collect(mode: str, numbers: Numbers, ended: Counter[tuple[str, int]], load: Load) -> list[Family]:
    """Return all families as of now.

    Args:
        mode: of the proxy, ``cluster`` or ``local``.
        numbers: see there.
        ended: calls by rpc and code of their status.
        load: what waits in the process.
    """
    names = v2.Code.DESCRIPTOR.values_by_number
    calls = [
        Sample(count, {"rpc": rpc, "code": names[code].name if code in names else str(code)})
        for (rpc, code), count in ended.items()
    ]
    return [
        Family("rocketmq_proxy_up", "gauge", "Proxies that run", [Sample(1, {"proxy_mode": mode})]),
        gauge("rocketmq_proxy_connections", "Open connections of gRPC clients", numbers.connections),
        gauge(
            "rocketmq_proxy_remoting_connections", "Open connections of remoting clients", numbers.remoting_connections
        ),
        gauge("rocketmq_proxy_clients", "gRPC clients that are known", numbers.clients),
        gauge("rocketmq_proxy_parked_receives", "Receives that wait for a message", numbers.parked),
        gauge("rocketmq_proxy_held_messages", "Messages that are kept hidden for push consumers", numbers.held),
        Family("rocketmq_proxy_calls_total", "counter", "Calls that ended, by the status of their answer", calls),
        counter(
            "rocketmq_refused_connections_total",
            "Connections refused for want of descriptors",
            numbers.refused_connections,
        ),
        *load.families(),
    ]
