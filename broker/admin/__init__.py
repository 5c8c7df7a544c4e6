"""What administrators ask a broker: one module per subject, all registered by :func:`register_all`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.broker.admin import (
    announcements,
    assignment,
    cold_data,
    configuration,
    connections,
    copied_tables,
    groups,
    maintenance,
    messages,
    offset_clones,
    progress,
    raw_log,
    relays,
    replication,
    reset,
    roles,
    runtime,
    static_topics,
    stuck_decisions,
    stuck_work,
    topic_changes,
    topics,
)
from understudy.remoting.server import RemotingServer

if TYPE_CHECKING:
    from understudy.broker.broker import Broker


def register_all(broker: Broker, server: RemotingServer) -> None:
    """Answer every administrative request of *broker* on *server*.

    Codes of subjects this broker does not serve stay unregistered: the server answers them with "not supported".
    """
    for module in (
        topics,
        topic_changes,
        static_topics,
        groups,
        configuration,
        runtime,
        messages,
        connections,
        progress,
        offset_clones,
        reset,
        relays,
        maintenance,
        assignment,
        cold_data,
        announcements,
        replication,
        copied_tables,
        roles,
        stuck_work,
        stuck_decisions,
        raw_log,
    ):
        module.register(broker, server)
