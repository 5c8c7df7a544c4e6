"""Who may ask what: every request code stands in one class, and administration can be closed to all but some addresses.

``adminAddresses`` of a server names the addresses whose requests of the class :data:`ADMINISTRATION` are answered;
without it all are, as by the reference. Who may do what there, by name and password, the room ``security`` decides.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated

from understudy.remoting.codes import RequestCode
from understudy.runtime.configuration import Form

_C = RequestCode

MESSAGING = frozenset(
    {
        *(_C.SEND_MESSAGE, _C.SEND_MESSAGE_V2, _C.SEND_BATCH_MESSAGE, _C.SEND_REPLY_MESSAGE, _C.SEND_REPLY_MESSAGE_V2),
        *(_C.PULL_MESSAGE, _C.LITE_PULL_MESSAGE, _C.QUERY_MESSAGE, _C.VIEW_MESSAGE_BY_ID, _C.CONSUMER_SEND_MSG_BACK),
        *(_C.QUERY_BROKER_OFFSET, _C.QUERY_CONSUMER_OFFSET, _C.UPDATE_CONSUMER_OFFSET, _C.SEARCH_OFFSET_BY_TIMESTAMP),
        *(_C.GET_MAX_OFFSET, _C.GET_MIN_OFFSET, _C.GET_EARLIEST_MSG_STORETIME),
        *(_C.HEART_BEAT, _C.UNREGISTER_CLIENT, _C.GET_CONSUMER_LIST_BY_GROUP, _C.CHECK_CLIENT_CONFIG),
        *(_C.END_TRANSACTION, _C.RECALL_MESSAGE, _C.LOCK_BATCH_MQ, _C.UNLOCK_BATCH_MQ, _C.QUERY_ASSIGNMENT),
        *(_C.GET_ROUTEINFO_BY_TOPIC, _C.GET_KV_CONFIG),
        *(_C.POP_MESSAGE, _C.ACK_MESSAGE, _C.PEEK_MESSAGE, _C.CHANGE_MESSAGE_INVISIBLETIME, _C.NOTIFICATION),
        *(_C.POLLING_INFO, _C.POP_ROLLBACK, _C.BATCH_ACK_MESSAGE),
    }
)
"""What producers and consumers ask of servers."""

CALLS_TO_CLIENTS = frozenset(
    {
        *(_C.CHECK_TRANSACTION_STATE, _C.NOTIFY_CONSUMER_IDS_CHANGED, _C.RESET_CONSUMER_CLIENT_OFFSET),
        *(_C.GET_CONSUMER_STATUS_FROM_CLIENT, _C.PUSH_REPLY_MESSAGE_TO_CLIENT),
    }
)
"""What brokers ask of their clients; no server answers it."""

CLUSTER = frozenset(
    {
        *(_C.GET_ALL_TOPIC_CONFIG, _C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, _C.GET_ALL_CONSUMER_OFFSET),
        *(_C.GET_ALL_DELAY_OFFSET, _C.GET_ALL_MESSAGE_REQUEST_MODE, _C.GET_TIMER_CHECK_POINT, _C.GET_TIMER_METRICS),
        *(_C.GET_POP_ORDERS, _C.GET_ACTING_POPS, _C.GET_ALL_USERS),
        *(_C.REGISTER_BROKER, _C.UNREGISTER_BROKER, _C.REGISTER_TOPIC_IN_NAMESRV, _C.REGISTER_FILTER_SERVER),
        *(_C.QUERY_DATA_VERSION, _C.GET_BROKER_CLUSTER_INFO, _C.GET_BROKER_MEMBER_GROUP, _C.BROKER_HEARTBEAT),
        *(_C.NOTIFY_MIN_BROKER_ID_CHANGE, _C.EXCHANGE_BROKER_HA_INFO, _C.GET_BROKER_HA_STATUS, _C.FINISH_PRE_ONLINE),
        *(_C.CONTROLLER_ALTER_SYNC_STATE_SET, _C.CONTROLLER_ELECT_MASTER, _C.CONTROLLER_REGISTER_BROKER),
        *(_C.CONTROLLER_GET_REPLICA_INFO, _C.CONTROLLER_GET_METADATA_INFO, _C.CONTROLLER_GET_SYNC_STATE_DATA),
        *(_C.GET_BROKER_EPOCH_CACHE, _C.NOTIFY_BROKER_ROLE_CHANGED, _C.READ_LOG),
        _C.SETTLE_FIRST_READS,
        *(_C.CONTROLLER_GET_NEXT_BROKER_ID, _C.CONTROLLER_APPLY_BROKER_ID),
    }
)
"""What brokers, name servers and controllers ask of each other."""

ADMINISTRATION = frozenset(
    {
        *(_C.UPDATE_AND_CREATE_TOPIC, _C.UPDATE_AND_CREATE_TOPIC_LIST, _C.UPDATE_AND_CREATE_STATIC_TOPIC),
        *(_C.DELETE_TOPIC_IN_BROKER, _C.DELETE_TOPIC_IN_NAMESRV, _C.GET_TOPIC_CONFIG, _C.GET_TOPIC_STATS_INFO),
        *(_C.UPDATE_BROKER_CONFIG, _C.GET_BROKER_CONFIG, _C.GET_BROKER_RUNTIME_INFO),
        *(_C.UPDATE_NAMESRV_CONFIG, _C.GET_NAMESRV_CONFIG, _C.UPDATE_CONTROLLER_CONFIG, _C.GET_CONTROLLER_CONFIG),
        *(_C.PUT_KV_CONFIG, _C.DELETE_KV_CONFIG, _C.GET_KVLIST_BY_NAMESPACE),
        *(_C.WIPE_WRITE_PERM_OF_BROKER, _C.ADD_WRITE_PERM_OF_BROKER),
        *(_C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, _C.GET_TOPICS_BY_CLUSTER, _C.GET_SYSTEM_TOPIC_LIST_FROM_NS),
        *(_C.GET_UNIT_TOPIC_LIST, _C.GET_HAS_UNIT_SUB_TOPIC_LIST, _C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST),
        *(_C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST),
        *(_C.DELETE_SUBSCRIPTIONGROUP, _C.GET_SUBSCRIPTIONGROUP_CONFIG, _C.UPDATE_AND_GET_GROUP_FORBIDDEN),
        *(_C.GET_CONSUMER_CONNECTION_LIST, _C.GET_PRODUCER_CONNECTION_LIST, _C.GET_ALL_PRODUCER_INFO),
        *(_C.GET_CONSUME_STATS, _C.GET_BROKER_CONSUME_STATS, _C.QUERY_CONSUME_TIME_SPAN, _C.QUERY_CORRECTION_OFFSET),
        *(_C.INVOKE_BROKER_TO_RESET_OFFSET, _C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, _C.CLONE_GROUP_OFFSET),
        *(_C.QUERY_TOPIC_CONSUME_BY_WHO, _C.QUERY_TOPICS_BY_CONSUMER, _C.QUERY_SUBSCRIPTION_BY_CONSUMER),
        *(_C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, _C.QUERY_CONSUME_QUEUE, _C.VIEW_BROKER_STATS_DATA),
        *(_C.CLEAN_EXPIRED_CONSUMEQUEUE, _C.CLEAN_UNUSED_TOPIC, _C.DELETE_EXPIRED_COMMITLOG),
        *(_C.GET_CONSUMER_RUNNING_INFO, _C.CONSUME_MESSAGE_DIRECTLY, _C.RESUME_CHECK_HALF_MESSAGE),
        *(_C.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, _C.EXPORT_ROCKSDB_CONFIG_TO_JSON, _C.SET_MESSAGE_REQUEST_MODE),
        *(_C.ADD_BROKER, _C.REMOVE_BROKER, _C.RESET_MASTER_FLUSH_OFFSET, _C.CLEAN_BROKER_DATA),
        *(_C.GET_BROKER_ROSTER, _C.GET_PRE_ONLINE_REPORT, _C.CONTROLLER_EXPLAIN_MASTER, _C.CONTROLLER_QUORUM_FACTS),
        *(_C.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, _C.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, _C.GET_COLD_DATA_FLOW_CTR_INFO),
        *(_C.SET_COMMITLOG_READ_MODE, _C.SWITCH_TIMER_ENGINE, _C.SCRUB_LOG, _C.LIST_STUCK_WORK),
        _C.SETTLE_STUCK_WORK,
        *(_C.AUTH_CREATE_USER, _C.AUTH_UPDATE_USER, _C.AUTH_DELETE_USER, _C.AUTH_GET_USER, _C.AUTH_LIST_USER),
        *(_C.AUTH_CREATE_ACL, _C.AUTH_UPDATE_ACL, _C.AUTH_DELETE_ACL, _C.AUTH_GET_ACL, _C.AUTH_LIST_ACL),
    }
)
"""What operators and their tools ask: what changes tables, settings or files, and what shows their content."""


ADMINISTRATION_BY_FIELD: dict[int, str] = {_C.CONTROLLER_ELECT_MASTER: "designateElect"}
"""Codes of another class that are administration when the header field of that name is true."""


class AddressRanges:
    """Addresses and networks that may do something.

    Args:
        text: addresses (``10.0.0.7``) and networks (``10.1.0.0/16``), divided by ``;``.

    Raises:
        ValueError: a part is neither; the message is that part.
    """

    def __init__(self, text: str) -> None:
        self._networks = [_network(part.strip()) for part in text.split(";") if part.strip()]

    def holds(self, host: str) -> bool:
        """Return whether *host*, an IP address, lies in one of them."""
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(text) from None


def _no_ranges(text: str) -> str | None:
    try:
        AddressRanges(text)
    except ValueError:
        return "addresses or networks divided by ';', like 127.0.0.1;10.1.0.0/16"
    return None


AdminAddresses = Annotated[str | None, Form(_no_ranges)]
"""The type of the setting ``adminAddresses``."""

ADMIN_KEY = "adminAddresses"


def ranges_of(text: str | None) -> AddressRanges | None:
    """Return who may administrate a server with this setting; ``None`` for everybody."""
    return AddressRanges(text) if text and text.strip() else None
