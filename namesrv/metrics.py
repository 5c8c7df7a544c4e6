"""What a name server shows when somebody scrapes; the reference's shows nothing, the keys are those of its brokers."""

from __future__ import annotations

from understudy.namesrv.config import MetricsKeys
from understudy.namesrv.route_table import RouteTable
from understudy.remoting.metrics_keys import read_metrics_settings
from understudy.runtime.configuration import with_values
from understudy.runtime.load import Load
from understudy.runtime.metrics import ExportSettings, Family, Sample, counter, gauge
from understudy.runtime.properties import ConfigError, Properties


def read_settings(values: Properties) -> tuple[ExportSettings | None, str]:
    """Read the keys of a settings file; returns the settings, if any, and a warning. Raises ``ConfigError``."""
    keys = with_values(MetricsKeys(), values, values.source)
    try:
        return read_metrics_settings(keys)
    except ConfigError as error:
        raise values.locate(error) from None


def collect(table: RouteTable, refused_connections: int, load: Load) -> list[Family]:
    """Return all families as of now.

    Args:
        table: the routes.
        refused_connections: since the start, for want of descriptors.
        load: what waits in the process.
    """
    members: dict[tuple[str, str], int] = {}
    without = 0
    for name, group in table.groups.items():
        members[group.cluster, name] = len(group.members)
        without += 0 not in group.members
    return [
        gauge("rocketmq_namesrv_topics", "Topics that have a route", len(table.topics.names())),
        gauge("rocketmq_namesrv_broker_groups", "Broker groups that are registered", len(table.groups)),
        gauge("rocketmq_namesrv_broker_groups_without_master", "Broker groups that nobody masters", without),
        Family(
            "rocketmq_namesrv_brokers",
            "gauge",
            "Brokers of a group that are registered",
            [Sample(number, {"cluster": cluster, "broker_set": name}) for (cluster, name), number in members.items()],
        ),
        counter(
            "rocketmq_refused_connections_total", "Connections refused for want of descriptors", refused_connections
        ),
        counter("rocketmq_namesrv_changes_total", "Changes of routes since the start", table.revision),
        *load.families(),
    ]
