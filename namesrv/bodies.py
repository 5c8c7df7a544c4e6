"""Bodies of requests and answers: parsed into records, written as the reference writes them.

Two forms of JSON are written. *Standard* quotes every key. *Compatible* leaves numeric keys bare, as fastjson does by
default: old Go clients split the address table by hand and need exactly that (ClientRequestProcessor.java chooses).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from understudy.format.data_version import DataVersion
from understudy.format.json_dialect import dumps
from understudy.namesrv.records import BrokerGroup, MappingInfo
from understudy.namesrv.routes import Route, RouteBroker


def route(value: Route, *, standard: bool) -> bytes:
    """Write the answer to a route request (TopicRouteData.java)."""
    fields: dict[str, object] = {
        "brokerDatas": [_broker(broker) for broker in value.brokers],
        "filterServerTable": {address: list(servers) for address, servers in value.filter_servers.items()},
    }
    if value.order_config is not None:
        fields["orderTopicConf"] = value.order_config
    fields["queueDatas"] = [
        {
            "brokerName": queues.broker_name,
            "perm": queues.perm,
            "readQueueNums": queues.read_queues,
            "topicSysFlag": queues.topic_flags,
            "writeQueueNums": queues.write_queues,
        }
        for queues in value.queues
    ]
    if value.mappings is not None:
        fields["topicQueueMappingByBroker"] = {name: _mapping(info) for name, info in value.mappings.items()}
    return dumps(fields, bare_keys=not standard)


def _broker(broker: RouteBroker) -> dict[str, object]:
    fields: dict[str, object] = {
        "brokerAddrs": broker.addresses,
        "brokerName": broker.name,
        "cluster": broker.cluster,
        "enableActingMaster": broker.acting,
    }
    if broker.zone is not None:
        fields["zoneName"] = broker.zone
    return fields


def _mapping(info: MappingInfo) -> dict[str, object]:
    return {
        "bname": info.broker_name,
        "currIdMap": dict(info.current_ids),
        "dirty": info.dirty,
        "epoch": info.epoch,
        "scope": info.scope,
        "topic": info.topic,
        "totalQueues": info.total_queues,
    }


def cluster_info(groups: Iterable[BrokerGroup], clusters: Mapping[str, Iterable[str]]) -> bytes:
    """Write the answer to a cluster request (ClusterInfo.java)."""
    brokers = {
        group.name: _broker(RouteBroker(group.cluster, group.name, group.addresses(), group.acting, group.zone))
        for group in groups
    }
    names = {cluster: list(members) for cluster, members in clusters.items()}
    return dumps({"brokerAddrTable": brokers, "clusterAddrTable": names}, bare_keys=True)


def member_group(cluster: str | None, name: str | None, addresses: dict[int, str]) -> bytes:
    """Write the answer to a member group request; the cluster is the asker's word (BrokerMemberGroup.java)."""
    fields: dict[str, object] = {"brokerAddrs": addresses}
    if name is not None:
        fields["brokerName"] = name
    if cluster is not None:
        fields["cluster"] = cluster
    return dumps({"brokerMemberGroup": fields}, bare_keys=True)


def topic_list(topics: list[str], broker_address: str | None = None) -> bytes:
    """Write a list of topics (TopicList.java)."""
    fields: dict[str, object] = {} if broker_address is None else {"brokerAddr": broker_address}
    fields["topicList"] = topics
    return dumps(fields)


def key_values(table: Mapping[str, str]) -> bytes:
    """Write a namespace of the key-value configuration (KVTable.java)."""
    return dumps({"table": dict(table)})


def data_version(version: DataVersion) -> bytes:
    """Write a version (DataVersion.java)."""
    return dumps(version.to_json())
