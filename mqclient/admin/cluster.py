"""Clusters, brokers and name servers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from understudy.mqclient.errors import ClientError
from understudy.mqclient.route import BrokerAddresses
from understudy.mqclient.session import Session, json_body
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.runtime.properties import ConfigError, format_properties, parse_properties

ORDER_CONFIG_NAMESPACE = "ORDER_TOPIC_CONFIG"


@attrs.frozen
class ClusterInfo:
    """Which broker groups each cluster has, and where they are."""

    clusters: dict[str, list[str]]
    brokers: dict[str, BrokerAddresses]

    def groups_of(self, cluster: str) -> list[BrokerAddresses]:
        """Return the broker groups of *cluster* by name. Raises :class:`ClientError` for an unknown one."""
        if cluster not in self.clusters:
            known = ", ".join(sorted(self.clusters)) or "none"
            raise ClientError(f"no cluster is called {cluster}; there are: {known}")
        return [self.brokers[name] for name in sorted(self.clusters[cluster]) if name in self.brokers]

    def masters_of(self, cluster: str) -> list[str]:
        """Return the addresses of the masters of *cluster*. Raises :class:`ClientError` when there is none."""
        masters = [group.master for group in self.groups_of(cluster) if group.master]
        if not masters:
            raise ClientError(f"cluster {cluster} has no master at the moment")
        return masters

    def addresses_of(self, cluster: str) -> list[str]:
        """Return the addresses of all brokers of *cluster*, masters first in each group."""
        return [group.addresses[key] for group in self.groups_of(cluster) for key in sorted(group.addresses)]


async def cluster_info(session: Session) -> ClusterInfo:
    """Return all clusters that the name server knows."""
    body = await json_body(session, await session.call_name_server(RequestCode.GET_BROKER_CLUSTER_INFO))
    brokers = {}
    for name, data in (body.get("brokerAddrTable") or {}).items():
        addresses = {int(key): str(address) for key, address in (data.get("brokerAddrs") or {}).items()}
        brokers[name] = BrokerAddresses(name, data.get("cluster") or "", dict(sorted(addresses.items())))
    clusters = {name: list(names or ()) for name, names in (body.get("clusterAddrTable") or {}).items()}
    return ClusterInfo(clusters, brokers)


# --- brokers ---------------------------------------------------------------------------------------------------


async def runtime_info(session: Session, address: str) -> dict[str, str]:
    """Return the figures of the broker at *address* by name."""
    answer = await session.call(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    return {name: str(value) for name, value in ((await json_body(session, answer)).get("table") or {}).items()}


async def roster(session: Session, address: str) -> dict[str, Any]:
    """Return what runs on the broker at *address* and why (a request of ours)."""
    return await json_body(session, await session.call(address, RequestCode.GET_BROKER_ROSTER))


async def stuck_work(
    session: Session,
    address: str,
    *,
    kind: str | None = None,
    group: str | None = None,
    places: str | None = None,
    each: bool = False,
) -> dict[str, Any]:
    """Return what waits in the broker at *address*, and why (a request of ours).

    Args:
        session: connections to servers.
        address: ``host:port``.
        kind: ``half``, ``pop``, ``timer`` or ``delay``; all of them when ``None``.
        group: only half messages of this producer group, or what this consumer group popped; the other kinds have none,
            and are refused when they are named with one.
        places: only half messages that stand there, ``QUEUE:OFFSET`` with commas between.
        each: the single messages of another *kind* that were due, or those of them at *places*.
    """
    wanted = (("kind", kind), ("group", group), ("places", places), ("each", "true" if each else None))
    ext = {name: value for name, value in wanted if value is not None}
    return await json_body(session, await session.call(address, RequestCode.LIST_STUCK_WORK, ext))


async def settle_stuck_work(
    session: Session, address: str, *, kind: str, decision: str, places: str
) -> list[dict[str, str]]:
    """Drop or requeue messages, or check points, that are stuck in the broker at *address* (a request of ours).

    Args:
        session: connections to servers.
        address: ``host:port``.
        kind: ``pop``, ``timer`` or ``delay``.
        decision: ``drop`` or ``requeue``.
        places: where they stand, ``QUEUE:OFFSET`` with commas between.

    Returns:
        Of each its ``place``, ``outcome`` (``done``, ``waits`` or ``refused``) and ``why``.
    """
    ext = {"kind": kind, "decision": decision, "places": places}
    outcomes: list[dict[str, str]] = (
        await json_body(session, await session.call(address, RequestCode.SETTLE_STUCK_WORK, ext))
    )["outcomes"]
    return outcomes


async def scrub(session: Session, address: str, *, start: bool) -> dict[str, Any]:
    """Return what a comparison of the log of the broker at *address* has found so far (a request of ours).

    Args:
        session: connections to servers.
        address: ``host:port``.
        start: begin one unless one runs.
    """
    return await json_body(session, await session.call(address, RequestCode.SCRUB_LOG, {"start": str(start).lower()}))


async def pre_online_report(session: Session, address: str) -> dict[str, Any]:
    """Return what the master at *address* took over when it came back, every page of it (a request of ours)."""
    report: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    while True:
        answer = await session.call(address, RequestCode.GET_PRE_ONLINE_REPORT, {"rowSeq": len(rows)})
        page = await json_body(session, answer)
        if report and page["beganAt"] != report["beganAt"]:
            rows = []  # another return meanwhile: its pages do not continue these
            report = {}
            continue
        report = page
        rows += page["rows"]
        if not page["rows"] or len(rows) >= int((answer.ext or {}).get("totalRowNum") or 0):
            return {**report, "rows": rows}


async def finish_pre_online(session: Session, address: str) -> None:
    """Let the broker at *address*, which waits in pre-online, go online now (a request of ours)."""
    await session.call(address, RequestCode.FINISH_PRE_ONLINE)


async def broker_config(session: Session, address: str) -> dict[str, str]:
    """Return the configuration of the broker or container at *address*."""
    return settings_of((await session.call(address, RequestCode.GET_BROKER_CONFIG)).body, address)


async def update_broker_config(session: Session, address: str, values: dict[str, str]) -> None:
    """Change configuration values of the broker or container at *address*."""
    await session.call(address, RequestCode.UPDATE_BROKER_CONFIG, body=format_properties(values).encode())


async def add_broker(session: Session, container: str, config_path: str) -> None:
    """Let the container at *container* start the broker described by its file *config_path*."""
    await session.call(container, RequestCode.ADD_BROKER, {"configPath": config_path}, timeout_ms=60_000)


async def remove_broker(session: Session, container: str, cluster: str, name: str, broker_id: int) -> None:
    """Let the container at *container* stop one of its brokers.

    Args:
        session: the client below.
        container: address of the container.
        cluster: that the broker belongs to.
        name: of its group.
        broker_id: its id in the group.

    Raises:
        ClientError: the container cannot be reached or refuses.
    """
    ext = {"brokerClusterName": cluster, "brokerName": name, "brokerId": broker_id}
    await session.call(container, RequestCode.REMOVE_BROKER, ext, timeout_ms=60_000)


async def ha_status(session: Session, address: str) -> dict[str, Any]:
    """Return the replication state of the broker at *address*."""
    return await json_body(session, await session.call(address, RequestCode.GET_BROKER_HA_STATUS))


async def stats(session: Session, address: str, name: str, key: str) -> dict[str, Any] | None:
    """Return one figure of the broker's statistics over minute, hour and day; ``None`` when it has none.

    Args:
        session: the client below.
        address: of the broker.
        name: kind of figure, such as ``TOPIC_PUT_NUMS``.
        key: whose figure it is, such as a topic.
    """
    answer = await session.call(
        address,
        RequestCode.VIEW_BROKER_STATS_DATA,
        {"statsName": name, "statsKey": key},
        accept=(ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR),
    )
    return await json_body(session, answer) if answer.code == ResponseCode.SUCCESS else None


# --- name servers ----------------------------------------------------------------------------------------------


async def all_topics(session: Session) -> list[str]:
    """Return the names of all topics."""
    answer = await session.call_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    return [str(topic) for topic in (await json_body(session, answer)).get("topicList") or ()]


async def name_server_config(session: Session, address: str) -> dict[str, str]:
    """Return the configuration of the name server at *address*."""
    return settings_of((await session.call(address, RequestCode.GET_NAMESRV_CONFIG)).body, address)


async def update_name_server_config(session: Session, address: str, values: dict[str, str]) -> None:
    """Change configuration values of the name server at *address*."""
    await session.call(address, RequestCode.UPDATE_NAMESRV_CONFIG, body=format_properties(values).encode())


async def wipe_write_permission(session: Session, address: str, broker_name: str) -> int:
    """Let no client send to *broker_name*, as far as the name server at *address* says; return how many topics."""
    answer = await session.call(address, RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": broker_name})
    return int((answer.ext or {}).get("wipeTopicCount") or 0)


async def add_write_permission(session: Session, address: str, broker_name: str) -> int:
    """Undo :func:`wipe_write_permission`; return how many topics."""
    answer = await session.call(address, RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": broker_name})
    return int((answer.ext or {}).get("addTopicCount") or 0)


async def put_value(session: Session, namespace: str, key: str, value: str) -> None:
    """Store a value at every name server.

    Args:
        session: the client below.
        namespace: of the key.
        key: to be set.
        value: its new value.
    """
    ext = {"namespace": namespace, "key": key, "value": value}
    await tell_name_servers(session, RequestCode.PUT_KV_CONFIG, ext)


async def get_value(session: Session, namespace: str, key: str) -> str | None:
    """Return a value stored at the name servers, ``None`` when there is none."""
    answer = await session.call_name_server(
        RequestCode.GET_KV_CONFIG,
        {"namespace": namespace, "key": key},
        accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
    )
    return (answer.ext or {}).get("value") if answer.code == ResponseCode.SUCCESS else None


async def delete_value(session: Session, namespace: str, key: str) -> None:
    """Remove a value from every name server."""
    await tell_name_servers(session, RequestCode.DELETE_KV_CONFIG, {"namespace": namespace, "key": key})


async def tell_name_servers(session: Session, code: RequestCode, ext: Mapping[str, object]) -> None:
    """Have every name server change something; one that is away keeps the others from nothing.

    Args:
        session: the client.
        code: of the request.
        ext: fields of its header.

    Raises:
        ClientError: one of them did not take it.
    """
    failed: ClientError | None = None
    for address in name_servers(session):
        try:
            await session.call(address, code, ext)
        except ClientError as error:
            failed = error
    if failed is not None:
        raise failed


def name_servers(session: Session) -> list[str]:
    """Return all configured name servers. Raises :class:`ClientError` when there is none."""
    addresses = session.remoting.name_servers
    if not addresses:
        raise ClientError("no name server is configured")
    return addresses


def settings_of(body: bytes, source: str) -> dict[str, str]:
    """Return the settings that a server answers.

    Args:
        body: of the answer.
        source: the server.

    Raises:
        ClientError: they cannot be read.
    """
    try:
        return parse_properties(body.decode(errors="replace"), source)
    except ConfigError as error:
        raise ClientError(str(error)) from None


def unique(addresses: Iterable[str]) -> list[str]:
    """Return *addresses* without repetitions, in order."""
    return list(dict.fromkeys(addresses))
