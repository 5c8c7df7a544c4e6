"""Settings of the name server under the reference's key names (NamesrvConfig.java, NettyServerConfig.java).

Keys that size the reference's thread pools and sockets are read, shown and stored, so that an existing file and every
tool work unchanged, but have no effect; setting one is answered by a warning line that says so.
"""

from __future__ import annotations

import os

import attrs

from understudy.remoting import netty_config
from understudy.remoting.access import ADMIN_KEY
from understudy.remoting.netty_config import POOLS, WAITING_KEYS, NettyServerConfig
from understudy.remoting.shared_keys import refuse_lost, unread_key_line
from understudy.runtime.configuration import Count, Port, fields_of, shown, with_values
from understudy.runtime.properties import Properties, format_properties
from understudy.security.settings import KEYS as SECURITY_KEYS
from understudy.security.tls import idle_keys


def _home(*names: str) -> str:
    return os.path.join(os.environ.get("HOME") or os.getcwd(), *names)


@attrs.frozen
class NamesrvConfig(NettyServerConfig):
    """All settings, those of its listening side included; a field's key is its name in camel case.

    The ones with an effect: where to listen, where things are stored, how registrations and routes are treated, and
    ``server_channel_max_idle_time_seconds``. Times without a unit in their name are milliseconds, as in the reference.

    Attributes:
        config_black_list: keys, divided by ``;``, that nobody may change over the network, besides those that nobody
            ever may.
        config_store_path: the file that changes over the network are written to.
        delete_topic_with_broker_registration: a registration takes away topics that it does not name; safe with
            ``enableSingleTopicRegister=true`` alone.
        enable_all_topic_list: answers who asks for all topics.
        enable_controller_in_namesrv: runs a controller, too, by the keys of controllers in this file.
        enable_topic_list: answers who asks for the topics of a cluster or of units.
        kv_config_path: the file of key-value pairs, such as which topics are ordered; users are kept in ``users.json``
            beside it.
        need_wait_for_service: refuses routes for ``waitSecondsForService``, so that brokers can register before clients
            ask.
        notify_min_broker_id_changed: tells the members of a group at once that its smallest id came or left.
        order_message_enable: routes tell which queues of an ordered topic are where, from the key-value pairs.
        return_order_topic_config_to_broker: answers registrations with the list of ordered topics.
        rocketmq_home: accepted, has no effect here: relative paths are looked for below ``$ROCKETMQ_HOME`` of the
            environment.
        support_acting_master: routes show the slave that acts in place of a master that is away, for reads.
        un_register_broker_queue_capacity: brokers that wait to be signed off, at most; more are refused.
        wait_seconds_for_service: with ``needWaitForService``: seconds from the start in which routes are refused.
    """

    client_request_thread_pool_nums: Count = 8
    client_request_thread_pool_queue_capacity: Count = 50_000
    cluster_test: bool = False
    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"
    config_store_path: str = attrs.field(factory=lambda: _home("namesrv", "namesrv.properties"))
    default_thread_pool_nums: Count = 16
    default_thread_pool_queue_capacity: Count = 10_000
    delete_topic_with_broker_registration: bool = False
    enable_all_topic_list: bool = True
    enable_controller_in_namesrv: bool = False
    enable_topic_list: bool = True
    kv_config_path: str = attrs.field(factory=lambda: _home("namesrv", "kvConfig.json"))
    listen_port: Port = 9876
    need_wait_for_service: bool = False
    notify_min_broker_id_changed: bool = False
    order_message_enable: bool = False
    product_env_name: str = "center"
    return_order_topic_config_to_broker: bool = True
    rocketmq_home: str = attrs.field(factory=lambda: os.environ.get("ROCKETMQ_HOME", ""))
    scan_not_active_broker_interval: Count = 5000
    support_acting_master: bool = False
    un_register_broker_queue_capacity: Count = 3000
    wait_seconds_for_service: Count = 45


FIELDS = fields_of(NamesrvConfig)

NO_EFFECT = {
    **netty_config.NO_EFFECT,
    "clientRequestThreadPoolNums": POOLS,
    "clientRequestThreadPoolQueueCapacity": POOLS,
    "clusterTest": "routes are never asked of another name server",
    "defaultThreadPoolNums": POOLS,
    "defaultThreadPoolQueueCapacity": POOLS,
    "productEnvName": "routes are never asked of another name server",
    "scanNotActiveBrokerInterval": "a silent broker is dropped at its own deadline, not by the next scan",
}


@attrs.frozen
class MetricsKeys:
    """Keys of the reference's brokers and controllers that a name server of ours reads at its start; never shown."""

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


# Keys that may never be changed over the network, whatever configBlackList says (AdminBrokerProcessor's rule as well).
ALWAYS_BLACK = (
    frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome", ADMIN_KEY}) | WAITING_KEYS
)


START_ONLY = frozenset({"bindAddress", "enableControllerInNamesrv"})
"""Which address it takes, and whether a controller runs beside it, which needs keys that only the file can give. A port
is taken and counts at the next start, as by the reference."""


def read_config(values: Properties, base: NamesrvConfig | None = None) -> tuple[NamesrvConfig, list[str]]:
    """Read the settings of a file.

    Args:
        values: what stands in it.
        base: settings the file does not mention; the defaults if not given.

    Returns:
        The settings and one warning per key that is unknown or has no effect.

    Raises:
        ConfigError: a value that its key cannot have.
    """
    refuse_lost(values)
    config = with_values(base or NamesrvConfig(), values, values.source)
    warnings = []
    for key in values:
        if key in SECURITY_KEYS:
            continue
        if key in NO_EFFECT and getattr(config, FIELDS[key].name) == FIELDS[key].default:
            continue  # a file that was stored here names every key
        if key in NO_EFFECT:
            warnings.append(f"{values.where(key)}: {key} has no effect here: {NO_EFFECT[key]}")
        elif key not in FIELDS and key not in fields_of(MetricsKeys) and not config.enable_controller_in_namesrv:
            warnings.append(unread_key_line(values, key, list(FIELDS)))
    return config, [*warnings, *idle_keys(values)]


def show(config: NamesrvConfig) -> str:
    """Return all settings as sorted ``key=value`` lines."""
    return format_properties(shown(config))
