"""Which services a broker runs, and why.

Source: BrokerController.java (startBasicService, start).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.runtime.supervisor import Supervisor

if TYPE_CHECKING:
    from understudy.broker.broker import Broker


def start_services(broker: Broker, services: Supervisor) -> None:
    """Start in *services* what *broker* runs all the time, and what its role, or else its configuration, asks for."""
    config, keys = broker.options.broker, broker.options.store
    services.start("store", broker.store.run)
    services.start("persistence", broker.persistence.run)
    services.start("pull hold", broker.hold.run)
    if broker.sync_flush or keys.broker_role == "SYNC_MASTER":
        reason = f"flushDiskType={keys.flush_disk_type}, brokerRole={keys.broker_role}"
        services.start("acknowledgements", broker.acknowledgements.run, reason=reason)
    broker.replication.start(services)
    services.start("housekeeping", broker.members.run)
    services.start("broadcast offsets", lambda: broker.broadcasts.run(broker.members.is_connected))
    services.start("statistics", broker.stats.run)
    services.start("server", broker.server.run)
    if broker.fast_server is not None:
        services.start("fast server", broker.fast_server.run)
    if broker.metrics is not None:
        services.start("metrics", broker.metrics.run, reason="metricsExporterType=PROM")
    services.start("registration", broker.registration.run)
    services.start("name servers", broker.registration.servers.run)
    if broker.role is not None:
        services.start("role", broker.role.run, reason="decides which other services run")
    else:
        _start_by_configuration(broker, services)
    if broker.is_slave or config.enable_slave_acting_master:
        services.start("member group", broker.member_group.run, reason="replica group")


def _start_by_configuration(broker: Broker, services: Supervisor) -> None:
    config = broker.options.broker
    if not broker.is_slave:
        services.start("schedule", broker.schedule.run, reason="master")
    if config.enable_slave_acting_master or config.enable_controller_mode:
        services.start("heartbeat", broker.registration.heartbeat, reason="acting master or controller mode")
    if broker.slave_sync is not None:
        services.start("metadata sync", broker.slave_sync.run, reason="SLAVE")
