"""What a name server shows when somebody scrapes; the reference's shows nothing, the keys are those of its brokers."""

from __future__ import annotations

from understudy.namesrv.route_table import RouteTable
from understudy.runtime.metrics import Family, Sample, counter, gauge
from understudy.runtime.metrics_endpoint import MetricsSettings, read_metrics_settings
from understudy.runtime.properties import ConfigError, parse_properties

DEFAULT_PORT = 5557


def read_settings(text: str, source: str) -> tuple[MetricsSettings | None, str]:
    """Read the four keys of a settings file; returns the settings, if any, and a warning. Raises ``ConfigError``."""
    values = parse_properties(text, source)
    port = values.get("metricsPromExporterPort", str(DEFAULT_PORT)).strip()
    if not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"{source}: metricsPromExporterPort={port[:64]} is no port")
    return read_metrics_settings(
        values.get("metricsExporterType", "DISABLE"),
        values.get("metricsPromExporterHost", ""),
        int(port),
        values.get("metricsLabel", ""),
    )


def collect(table: RouteTable) -> list[Family]:
    """Return all families as of now."""
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
        counter("rocketmq_namesrv_changes_total", "Changes of routes since the start", table.revision),
    ]
