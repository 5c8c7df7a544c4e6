"""Settings of a controller under the reference's key names (ControllerConfig.java), and what they must satisfy."""

from __future__ import annotations

import os

import attrs

from understudy.controller.raft.core import Timing
from understudy.controller.raft.secret import SECRET_FILE_KEY
from understudy.controller.raft.security import TlsFiles
from understudy.remoting.access import ADMIN_KEY
from understudy.remoting.metrics_keys import read_metrics_settings
from understudy.remoting.netty_config import WAITING_KEYS, NettyServerConfig
from understudy.remoting.shared_keys import refuse_lost
from understudy.runtime.configuration import Count, Port, shown, with_values
from understudy.runtime.network import is_loopback
from understudy.runtime.properties import ConfigError, Properties, format_properties, printable

RAFT_PORT_DISTANCE = 10_000
LAST_STEADY_PORT = 32_767
"""Above it systems give ports to outgoing connections (Linux from 32 768, IANA from 49 152): a port from there may be
taken when a member starts."""
MAX_NAME_BYTES = 100
"""Of a group or a member: both stand in each greeting between members, which is short."""
FORGET_MEMBER_KEY = "controllerForgetMember"
"""Not a setting: updating it forgets the disk of the member it names."""
OPEN_KEY = "controllerRaftOpenToAll"

ALWAYS_BLACK = (
    frozenset({"configBlackList", "configStorePath", "rocketmqHome", ADMIN_KEY, SECRET_FILE_KEY, OPEN_KEY})
    | WAITING_KEYS
)
START_ONLY = frozenset(
    {
        "bindAddress",
        "controllerDLegerGroup",
        "controllerDLegerPeers",
        "controllerDLegerSelfId",
        "controllerLogFile",
        "controllerRaftPeers",
        "controllerRaftTlsAuthority",
        "controllerRaftTlsCertificate",
        "controllerRaftTlsKey",
        "controllerStorePath",
        "metricsPromExporterHost",
        "metricsPromExporterPort",
    }
)
"""Who and where a controller is, and which files it needs: a wrong one keeps it from its next start."""


def _home(*names: str) -> str:
    return os.path.join(os.path.expanduser("~"), *names)


@attrs.frozen
class ControllerConfig(NettyServerConfig):
    """All settings, those of its listening side included; a field's key is its name in camel case.

    Numbers without a unit in their name are milliseconds.

    Attributes:
        config_black_list: keys, divided by ``;``, that nobody may change over the network, besides those that nobody
            ever may.
        config_store_path: the file that changes over the network are written to.
        controller_d_leger_group: the name of the quorum, ``controller`` if empty; members of another name are refused.
        controller_d_leger_peers: ``id-host:port`` of each member, divided by ``;``, where brokers and tools ask;
            needed.
        controller_d_leger_self_id: which of ``controllerDLegerPeers`` this member is; needed.
        controller_log_file: ours; the controller's own log file; ``off``: none; else ``logs/controller.log`` below its
            store.
        controller_raft_election_max: ours; milliseconds of a leader's silence before an election, at most.
        controller_raft_election_min: ours; milliseconds of a leader's silence before an election, at least; more than
            three heartbeats.
        controller_raft_heartbeat: ours; milliseconds between heartbeats of a leader that has nothing to say.
        controller_raft_open_to_all: ours; members that prove nothing are taken from anywhere.
        controller_raft_peers: ours; ``id-host:port`` where members talk to each other; else the same hosts, each port
            10000 higher, or lower.
        controller_raft_secret_file: ours; file of a secret, the same at all members; without it or TLS only this host's
            are taken.
        controller_raft_tls_authority: ours; file of whom to trust, for mutual TLS between members; all three files, or
            none.
        controller_raft_tls_certificate: ours; file of this member's certificate, which names its id.
        controller_raft_tls_key: ours; file of the key of this member's certificate.
        controller_request_thread_pool_queue_capacity: requests that wait, at most; more are refused as busy.
        controller_store_path: the folder of the quorum's log.
        controller_type: accepted, has no effect here: DLedger and jRaft are the same quorum.
        controller_unknown_broker_grace: ours; milliseconds from the start in which a broker not heard yet is not taken
            for dead.
        elect_master_max_retry_count: how often an election that fails is tried before the next scan.
        enable_elect_unclean_master: elects a replica outside of the sync-state set when none in it lives; messages may
            be lost.
        listen_port: accepted, has no effect here: ``controllerDLegerPeers`` says the port.
        notify_broker_role_changed: brokers are told of a new master at once; else they learn it when they ask.
        rocketmq_home: accepted, has no effect here: relative paths are looked for below ``$ROCKETMQ_HOME`` of the
            environment.
        scan_inactive_master_interval: milliseconds between scans for groups without a master, beside what a loss sets
            off at once.
        scan_not_active_broker_interval: milliseconds between scans for silent brokers, at most; each is noticed at its
            own deadline anyway.
    """

    config_black_list: str = "configBlackList;configStorePath"
    config_store_path: str = attrs.field(factory=lambda: _home("controller", "controller.properties"))
    controller_d_leger_group: str = ""
    controller_d_leger_peers: str = ""
    controller_d_leger_self_id: str = ""
    controller_log_file: str = ""
    controller_raft_election_max: Count = 800
    controller_raft_election_min: Count = 400
    controller_raft_heartbeat: Count = 100
    controller_raft_open_to_all: bool = False
    controller_raft_peers: str = ""
    controller_raft_secret_file: str = ""
    controller_raft_tls_authority: str = ""
    controller_raft_tls_certificate: str = ""
    controller_raft_tls_key: str = ""
    controller_request_thread_pool_queue_capacity: Count = 50_000
    controller_store_path: str = attrs.field(factory=lambda: _home("DLedgerController"))
    controller_thread_pool_nums: Count = 16
    controller_type: str = "DLedger"
    controller_unknown_broker_grace: Count = 10_000
    elect_master_max_retry_count: Count = 3
    enable_elect_unclean_master: bool = False
    is_process_read_event: bool = False
    mapped_file_size: Count = 1 << 30
    metric_grpc_exporter_interval_in_mills: Count = 60_000
    metric_grpc_exporter_time_out_in_mills: Count = 3000
    metric_logging_exporter_interval_in_mills: Count = 10_000
    metrics_exporter_type: str = "DISABLE"
    metrics_grpc_exporter_header: str = ""
    metrics_grpc_exporter_target: str = ""
    metrics_in_delta: bool = False
    metrics_label: str = ""
    metrics_otel_cardinality_limit: Count = 50_000
    metrics_prom_exporter_host: str = ""
    metrics_prom_exporter_port: Port = 5557
    notify_broker_role_changed: bool = True
    rocketmq_home: str = attrs.field(factory=lambda: os.environ.get("ROCKETMQ_HOME", ""))
    scan_inactive_master_interval: Count = 5000
    scan_not_active_broker_interval: Count = 5000


@attrs.frozen
class Peers:
    """The members of a controller group.

    Args:
        own: id of this member.
        api: host and port per id, where brokers and tools ask.
        raft: host and port per id, where members talk to each other.
        warnings: what is allowed but unwise.
    """

    own: str
    api: dict[str, tuple[str, int]]
    raft: dict[str, tuple[str, int]]
    warnings: tuple[str, ...]

    def address(self, member: str) -> str:
        """Return the API address of *member* as ``host:port``."""
        host, port = self.api[member]
        return f"{host}:{port}"

    def listed(self) -> str:
        """Return the members as the answer 1005 lists them."""
        return "".join(f"{member}:{self.address(member)};" for member in self.api)


def read_config(values: Properties) -> ControllerConfig:
    """Read the settings of a file; keys of other programs in it are left alone. Raises :class:`ConfigError`."""
    refuse_lost(values)
    return with_values(ControllerConfig(), values, values.source)


def check(config: ControllerConfig) -> None:
    """Raise :class:`ConfigError` for values that do not fit together; it names the key that is to change."""
    read_peers(config)
    timing(config)
    tls_files(config)
    read_metrics_settings(config)


def show(config: ControllerConfig) -> str:
    """Return all settings as sorted ``key=value`` lines."""
    return format_properties(shown(config))


def timing(config: ControllerConfig) -> Timing:
    """Return the election timing. Raises :class:`ConfigError`."""
    try:
        return Timing(
            config.controller_raft_election_min / 1000,
            config.controller_raft_election_max / 1000,
            config.controller_raft_heartbeat / 1000,
        )
    except ValueError as error:
        raise ConfigError(
            f"controllerRaftElectionMin={config.controller_raft_election_min}, "
            f"controllerRaftElectionMax={config.controller_raft_election_max}, "
            f"controllerRaftHeartbeat={config.controller_raft_heartbeat}: {error}",
            "controllerRaftElectionMin",
        ) from None


def tls_files(config: ControllerConfig) -> TlsFiles | None:
    """Return the files for mutual TLS, or ``None`` when it is off. Raises :class:`ConfigError` when one is missing."""
    named = {
        "controllerRaftTlsCertificate": config.controller_raft_tls_certificate,
        "controllerRaftTlsKey": config.controller_raft_tls_key,
        "controllerRaftTlsAuthority": config.controller_raft_tls_authority,
    }
    missing = [key for key, value in named.items() if not value]
    if len(missing) == len(named):
        return None
    if missing:
        given = next(key for key, value in named.items() if value)
        raise ConfigError(f"mutual TLS between controllers needs {' and '.join(missing)} too", given)
    return TlsFiles(*named.values())


def read_peers(config: ControllerConfig) -> Peers:
    """Read the member list. Raises :class:`ConfigError` naming what is missing, doubled or wrong."""
    own = config.controller_d_leger_self_id.strip()
    if not config.controller_d_leger_peers.strip() or not own:
        raise ConfigError(
            "controllerDLegerPeers and controllerDLegerSelfId are needed, for example "
            "controllerDLegerPeers=n0-10.0.0.1:9878;n1-10.0.0.2:9878;n2-10.0.0.3:9878 and controllerDLegerSelfId=n0",
            "controllerDLegerPeers",
        )
    if config.controller_type.lower() not in ("dledger", "jraft"):
        kind = printable(config.controller_type)
        raise ConfigError(f"controllerType={kind} is neither DLedger nor jRaft", "controllerType")
    _check_length("controllerDLegerGroup", config.controller_d_leger_group)
    api = _members("controllerDLegerPeers", config.controller_d_leger_peers)
    if own not in api:
        known = ", ".join(api)
        raise ConfigError(
            f"controllerDLegerSelfId={printable(own)} is not one of controllerDLegerPeers: {known}",
            "controllerDLegerSelfId",
        )
    if config.controller_raft_peers.strip():
        raft = _members("controllerRaftPeers", config.controller_raft_peers)
        if set(raft) != set(api):
            raise ConfigError(
                "controllerRaftPeers and controllerDLegerPeers must name the same ids", "controllerRaftPeers"
            )
    else:
        raft = {member: (host, raft_port(port)) for member, (host, port) in api.items()}
    if len(set(raft.values())) < len(raft):  # only those that were made of the others
        host, port = next(address for address in raft.values() if list(raft.values()).count(address) > 1)
        doubled = [f"{member}-{host}:{api[member][1]}" for member in raft if raft[member] == (host, port)]
        raise ConfigError(
            f"{' and '.join(doubled)} would both talk to other members at {host}:{port}: give controllerRaftPeers, "
            "id-host:port of each member, with a port of its own for each",
            "controllerDLegerPeers",
        )
    both = set(api.values()) & set(raft.values())
    if both:
        host, port = sorted(both)[0]
        key = "controllerRaftPeers" if config.controller_raft_peers.strip() else "controllerDLegerPeers"
        raise ConfigError(f"{host}:{port} is both an API and a raft address: give controllerRaftPeers other ports", key)
    warnings = []
    if len(api) == 1:
        warnings.append("a controller group of one member works but survives no failure; use three or five")
    elif len(api) % 2 == 0:
        warnings.append(
            f"a controller group of {len(api)} members survives no more failures than one of {len(api) - 1}; use an "
            "odd number"
        )
    if not (config.controller_raft_secret_file or config.controller_raft_tls_key or config.controller_raft_open_to_all):
        elsewhere = sorted({host for host, _ in raft.values() if host != raft[own][0] and not is_loopback(host)})
        if elsewhere:
            warnings.append(
                f"members at {', '.join(elsewhere)} and this one refuse each other until {SECRET_FILE_KEY} names a "
                "file with the same secret on all of them, or mutual TLS is on"
            )
    return Peers(own, api, {member: raft[member] for member in api}, tuple(warnings))


def _check_length(key: str, name: str) -> None:
    if len(name.encode()) > MAX_NAME_BYTES:
        raise ConfigError(f"{key}: {printable(name[:20])}... is longer than {MAX_NAME_BYTES} bytes", key)


def raft_port(port: int) -> int:
    """Return where members talk to each other, when they answer brokers and tools on *port*."""
    if port + RAFT_PORT_DISTANCE <= LAST_STEADY_PORT:
        return port + RAFT_PORT_DISTANCE
    steps = max(1, -((LAST_STEADY_PORT - port) // RAFT_PORT_DISTANCE))
    return port - steps * RAFT_PORT_DISTANCE


def _members(key: str, text: str) -> dict[str, tuple[str, int]]:
    members: dict[str, tuple[str, int]] = {}
    for part in (part.strip() for part in text.split(";")):
        if not part:
            continue
        member, dash, address = part.partition("-")
        host, colon, port = address.rpartition(":")
        if not (member and dash and host and colon and port.isdigit() and 0 < int(port) < 65_536):
            raise ConfigError(f"{key}: {printable(part)!r} is not of the form id-host:port", key)
        _check_length(key, member)
        if member in members:
            raise ConfigError(f"{key}: id {member} is given twice", key)
        if (host, int(port)) in members.values():
            raise ConfigError(f"{key}: address {printable(host)}:{port} is given twice", key)
        members[member] = (host, int(port))
    return members
