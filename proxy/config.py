"""Settings of a proxy under the reference's key names (ProxyConfig.java), and their file, which is JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Annotated, Any

import attrs

from understudy.proxy.cache import CacheRules
from understudy.proxy.core.receiving import ReceiveRules
from understudy.proxy.core.sending import SendRules
from understudy.proxy.core.settings import ClientRules
from understudy.proxy.tls_keys import PORT_KEYS, idle_lines, tls_of_ports
from understudy.remoting.metrics_keys import read_metrics_settings
from understudy.remoting.shared_keys import refuse_lost, unread_key_line
from understudy.runtime.configuration import (
    INT,
    UNKEYED,
    Between,
    Count,
    Port,
    fields_of,
    keyed,
    with_values,
)
from understudy.runtime.files import Files
from understudy.runtime.metrics import ExportSettings
from understudy.runtime.properties import ConfigError, Properties
from understudy.runtime.property_file import read_text_file
from understudy.runtime.tls_server import TlsMode
from understudy.security.settings import KEYS as SECURITY_KEYS
from understudy.security.settings import SecuritySettings, read_security
from understudy.security.tls import TlsSettings

FILE = os.path.join("conf", "rmq-proxy.json")
HOME_VARIABLES = ("RMQ_PROXY_HOME", "ROCKETMQ_HOME")
MODES = ("cluster", "local")
_WANTED = "name a file in JSON by -pc; an empty object {} takes every default"


@attrs.frozen(kw_only=True)
class ProxyConfig:
    """All settings with an effect; a field's key is its name in camel case. Times say their unit.

    Attributes:
        rocketmq_cluster_name: the cluster whose brokers are asked about groups, local mode has its own; without such a
            one the start is refused.
        proxy_cluster_name: the label ``cluster`` of metrics.
        proxy_name: the label ``node_id`` of metrics; else the host's name.
        namesrv_addr: name servers of the cluster, host:port, divided by ``;``.
        local_serve_addr: the address told to clients that do not say by which one they came; else the one that leads
            outside.
        use_endpoint_port_from_request: clients are told the port they asked for, as behind a balancer that maps ports.
        tls_test_mode_enable: the proxy makes a certificate for itself; false needs ``tlsCertPath`` and ``tlsKeyPath``.
        tls_key_path: with ``tlsTestModeEnable=false``: file of the certificate's key, PEM.
        tls_cert_path: with ``tlsTestModeEnable=false``: file of the certificate, PEM.
        tls_server_mode: ``permissive`` takes TLS and plain connections, ``enforcing`` TLS, ``disabled`` plain ones.
        grpc_server_port: the port for gRPC clients.
        proxy_mode: ``cluster``: alone, for all brokers; ``local``: in a broker's process, for its brokers.
        grpc_max_inbound_message_size: bytes of one call's message, at most.
        grpc_client_idle_time_mills: milliseconds without a call after which a connection is closed.
        max_message_size: bytes of a body, at most; producers are told.
        enable_message_body_empty_check: messages without a body are refused.
        max_user_property_size: bytes of a message's own properties, tag and keys, at most.
        user_property_max_num: own properties of a message, at most.
        max_message_group_size: bytes that the name of a message group stays below.
        default_invisible_time_mills: milliseconds for which a message is hidden at first that the proxy renews.
        min_invisible_time_mills_for_recv: milliseconds for which a receive hides what is not renewed, at least.
        max_invisible_time_mills: milliseconds for which a message may be hidden at a time, at most.
        max_delay_time_mills: milliseconds ahead that a message may ask to be delivered, at most.
        max_transaction_recovery_second: seconds that a half message may ask for, until its producer is asked about it,
            at most.
        enable_topic_message_type_check: topics take messages of their type only.
        grpc_client_producer_max_attempts: told to producers: how often they try to send a message.
        grpc_client_producer_backoff_initial_millis: told to producers: milliseconds before they try again first.
        grpc_client_producer_backoff_max_millis: told to producers: milliseconds before they try again, at most.
        grpc_client_producer_backoff_multiplier: told to producers: by what factor the wait grows with each try.
        grpc_client_consumer_min_long_polling_timeout_millis: milliseconds that a receive waits for messages, at least.
        grpc_client_consumer_max_long_polling_timeout_millis: milliseconds that a receive waits for messages, at most;
            consumers are told.
        grpc_client_consumer_long_polling_batch_size: told to consumers: messages to ask for in one receive.
        enable_proxy_auto_renew: what a push consumer works on stays hidden as long as it lives.
        renew_ahead_time_millis: milliseconds before a message would come again at which it is renewed.
        renew_schedule_period_millis: milliseconds between looks for messages that are to be renewed.
        renew_max_time_millis: milliseconds for which a message is renewed; then it comes again as its group retries.
        max_renew_retry_times: how often a renewal that fails is tried again.
        invisible_time_millis_when_clear: milliseconds until a message comes again whose client is gone.
        topic_route_service_cache_expired_seconds: seconds without use after which routes, types and groups are
            forgotten.
        topic_route_service_cache_refresh_seconds: seconds after which routes, types and groups are asked for again,
            while the old ones serve.
        topic_route_service_cache_max_num: routes, types and groups that are remembered, at most of each.
        remoting_access_addr: the address that remoting clients are told; else ``localServeAddr``.
        remoting_listen_port: the port for remoting clients, which takes gRPC clients, too; 0: none.
        signature_window_seconds: ours; seconds that the date of a signed call may be off, since clients write the time
            of their zone; 0: any.
        security: who may call, by the keys that brokers have, too.
        metrics: where metrics are served; ``None`` for nowhere.
        tls: how the ports speak TLS; without files of a certificate they make one for themselves.
    """

    rocketmq_cluster_name: str = keyed("rocketMQClusterName", "DefaultCluster")
    proxy_cluster_name: str = "DefaultCluster"
    proxy_name: str = ""
    namesrv_addr: str = ""
    local_serve_addr: str = ""
    use_endpoint_port_from_request: bool = False
    tls_test_mode_enable: bool = True
    tls_key_path: str = ""
    tls_cert_path: str = ""
    tls_server_mode: str = TlsMode.PERMISSIVE.value
    grpc_server_port: Port = 8081
    proxy_mode: str = "CLUSTER"
    grpc_max_inbound_message_size: Count = 136_314_880
    grpc_client_idle_time_mills: Count = 120_000
    max_message_size: Count = 4_194_304
    enable_message_body_empty_check: bool = True
    max_user_property_size: Count = 16_384
    user_property_max_num: Count = 128
    max_message_group_size: Count = 64
    default_invisible_time_mills: Count = 60_000
    min_invisible_time_mills_for_recv: Count = 10_000
    max_invisible_time_mills: Count = 43_200_000
    max_delay_time_mills: Count = 86_400_000
    max_transaction_recovery_second: Count = 3_600
    enable_topic_message_type_check: bool = True
    grpc_client_producer_max_attempts: Count = 3
    grpc_client_producer_backoff_initial_millis: Count = 10
    grpc_client_producer_backoff_max_millis: Count = 1_000
    grpc_client_producer_backoff_multiplier: Count = 2
    grpc_client_consumer_min_long_polling_timeout_millis: Count = 5_000
    grpc_client_consumer_max_long_polling_timeout_millis: Count = 20_000
    grpc_client_consumer_long_polling_batch_size: Count = 32
    enable_proxy_auto_renew: bool = True
    renew_ahead_time_millis: Count = 10_000
    renew_schedule_period_millis: Annotated[int, Between(100, INT[1])] = 5_000
    renew_max_time_millis: Count = 10_800_000
    max_renew_retry_times: Count = 3
    invisible_time_millis_when_clear: Count = 1_000
    topic_route_service_cache_expired_seconds: Count = 300
    topic_route_service_cache_refresh_seconds: Count = 20
    topic_route_service_cache_max_num: Count = 20_000
    remoting_access_addr: str = ""
    remoting_listen_port: Port = 8080
    signature_window_seconds: Count = 54_000
    metrics_exporter_type: str = "0"
    metrics_grpc_exporter_target: str = ""
    metrics_grpc_exporter_header: str = ""
    metric_grpc_exporter_time_out_in_mills: Count = 3_000
    metric_grpc_exporter_interval_in_mills: Count = 60_000
    metric_logging_exporter_interval_in_mills: Count = 10_000
    metrics_in_delta: bool = False
    metrics_otel_cardinality_limit: Count = 50_000
    metrics_prom_exporter_host: str = ""
    metrics_prom_exporter_port: Port = 5557
    metrics_label: str = ""
    security: SecuritySettings = attrs.field(factory=SecuritySettings, metadata=UNKEYED)
    metrics: ExportSettings | None = attrs.field(default=None, metadata=UNKEYED)
    tls: TlsSettings = attrs.field(factory=TlsSettings, metadata=UNKEYED)

    @property
    def send_rules(self) -> SendRules:
        return SendRules(
            self.max_message_size,
            self.enable_message_body_empty_check,
            self.user_property_max_num,
            self.max_user_property_size,
            self.max_message_group_size,
            self.max_delay_time_mills,
            self.max_transaction_recovery_second,
        )

    @property
    def client_rules(self) -> ClientRules:
        return ClientRules(
            self.grpc_client_producer_max_attempts,
            (self.grpc_client_producer_backoff_initial_millis, self.grpc_client_producer_backoff_max_millis),
            self.grpc_client_producer_backoff_multiplier,
            self.max_message_size,
            self.enable_topic_message_type_check,
            self.grpc_client_consumer_long_polling_batch_size,
            self.grpc_client_consumer_max_long_polling_timeout_millis,
        )

    @property
    def receive_rules(self) -> ReceiveRules:
        return ReceiveRules(
            self.grpc_client_consumer_min_long_polling_timeout_millis,
            self.grpc_client_consumer_max_long_polling_timeout_millis,
            self.enable_proxy_auto_renew,
            self.default_invisible_time_mills,
            self.min_invisible_time_mills_for_recv,
            self.max_invisible_time_mills,
        )

    @property
    def cache_rules(self) -> CacheRules:
        return CacheRules(
            max(1, self.topic_route_service_cache_refresh_seconds),
            max(1, self.topic_route_service_cache_expired_seconds),
            most=max(1, self.topic_route_service_cache_max_num),
        )


def _as_they_are(keys: Properties) -> Properties:
    return keys


def default_file(environment: dict[str, str]) -> str | None:
    """Return where the file is when no option names it; ``None`` when no home is set."""
    for variable in HOME_VARIABLES:
        if environment.get(variable):
            return os.path.join(environment[variable], FILE)
    return None


def read_config(
    disk: Files, path: str, home: str | None, with_tls: Callable[[Properties], Properties] = _as_they_are
) -> tuple[ProxyConfig, list[str]]:
    """Read a proxy's file.

    Args:
        disk: where it is.
        path: its path; a relative one is looked for below the current folder and then below *home*.
        home: folder of the installation, if there is one.
        with_tls: adds the keys of the file of TLS keys.

    Returns:
        The settings, and a line for each key that is not known.

    Raises:
        ConfigError: it cannot be read, is no JSON object, or a value is no good.
    """
    text, path = read_text_file(disk, path, home, _WANTED)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: no JSON: {error}; {_WANTED}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a JSON object is expected, with the settings by key")
    return config_of(values, path, with_tls)


def config_of(
    values: dict[str, Any], source: str, with_tls: Callable[[Properties], Properties] = _as_they_are
) -> tuple[ProxyConfig, list[str]]:
    """Return the settings in *values*, and a line for each key that is not known; see :func:`read_config`."""
    texts = Properties(
        {
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in values.items()
            if value is not None
        },
        source,
    )
    refuse_lost(texts)
    config = with_values(ProxyConfig(), texts, source)
    if config.proxy_mode.lower() not in MODES:
        raise ConfigError(f"{source}: proxyMode={config.proxy_mode[:64]}: expected cluster or local")
    if not config.tls_test_mode_enable and not (config.tls_key_path and config.tls_cert_path):
        raise ConfigError(
            f"{source}: tlsTestModeEnable=false: tlsKeyPath and tlsCertPath must name files in PEM format"
        )
    try:
        metrics, warning = read_metrics_settings(config)
    except ConfigError as error:
        raise texts.locate(error) from None
    _refuse_keys_of_servers(texts)
    secured = with_tls(texts)
    tls = tls_of_ports(texts, secured, config.tls_server_mode, config.tls_test_mode_enable)
    known = fields_of(ProxyConfig).keys() | SECURITY_KEYS
    warnings = [unread_key_line(texts, key, [*known]) for key in texts if key not in known]
    config = attrs.evolve(config, security=read_security(secured.without(PORT_KEYS)), metrics=metrics, tls=tls)
    idle = idle_lines(texts, secured, config.tls_test_mode_enable, tls.mode)
    return config, [*warnings, *([warning] if warning else []), *idle]


def _refuse_keys_of_servers(texts: Properties) -> None:
    """Refuse keys that close the ports of every other program, and would leave a proxy's open."""
    for key in texts:
        if key in PORT_KEYS:
            raise ConfigError(
                f"{texts.where(key)}: {key} is no key of this file: here tlsServerMode, tlsCertPath and tlsKeyPath "
                "secure the ports of a proxy"
            )
