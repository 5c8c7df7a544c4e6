"""Topics: making, changing, deleting, and what they hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from understudy.format.json_dialect import dumps
from understudy.format.names import DEFAULT_TOPIC
from understudy.mqclient.admin.cluster import cluster_info, tell_name_servers
from understudy.mqclient.admin.paging import PagedTable, all_rows
from understudy.mqclient.errors import BrokerError, ClientError
from understudy.mqclient.offsets import parse_queue
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import Session, json_body
from understudy.remoting.codes import RequestCode, ResponseCode

_PAGES = PagedTable(RequestCode.GET_ALL_TOPIC_CONFIG, "topicConfigTable", "topicSeq", "maxTopicNum", "totalTopicNum")


@attrs.frozen
class TopicSettings:
    """A topic as brokers keep it (TopicConfig.java).

    Attributes:
        name: the topic.
        read_queues: queues that consumers see.
        write_queues: queues that producers see.
        permission: 2 write, 4 read, 6 both, 1 template for new topics.
        ordered: clients may count on order although brokers come and go.
        sys_flag: 1 unit topic, 2 subscribed by units.
        attributes: further settings; ``+name`` sets and ``-name`` removes one.
    """

    name: str
    read_queues: int = 8
    write_queues: int = 8
    permission: int = 6
    ordered: bool = False
    sys_flag: int = 0
    attributes: dict[str, str] = attrs.field(factory=dict)

    def body(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "attributes": self.attributes,
            "order": self.ordered,
            "perm": self.permission,
            "readQueueNums": self.read_queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": self.name,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queues,
        }


@attrs.frozen
class QueueRange:
    """What a queue holds: lowest offset, next offset, and when its last message was stored (0 never)."""

    min_offset: int
    max_offset: int
    last_update_ms: int


@attrs.frozen
class TopicStats:
    """The queues of a topic, and messages sent to it per second."""

    queues: dict[MessageQueue, QueueRange]
    put_tps: float


async def save_topic(session: Session, address: str, topic: TopicSettings) -> None:
    """Create or change *topic* on the broker at *address*."""
    ext = {
        "topic": topic.name,
        "defaultTopic": DEFAULT_TOPIC,
        "readQueueNums": topic.read_queues,
        "writeQueueNums": topic.write_queues,
        "perm": topic.permission,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": topic.sys_flag,
        "order": topic.ordered,
        "attributes": format_attributes(topic.attributes),
        "force": False,
    }
    await session.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, ext)


async def save_topics(session: Session, address: str, topics: Iterable[dict[str, Any]]) -> None:
    """Create or change several topics, given in their JSON form."""
    body = dumps({"topicConfigList": list(topics)})
    await session.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)


async def topic_settings(session: Session, address: str, topic: str) -> TopicSettings:
    """Return the settings of *topic* on the broker at *address*."""
    ext = {"topic": topic, "lo": True}
    body = await json_body(session, await session.call(address, RequestCode.GET_TOPIC_CONFIG, ext))
    return TopicSettings(
        str(body.get("topicName") or topic),
        int(body.get("readQueueNums", 0)),
        int(body.get("writeQueueNums", 0)),
        int(body.get("perm", 0)),
        bool(body.get("order", False)),
        int(body.get("topicSysFlag", 0)),
        {str(name): str(value) for name, value in (body.get("attributes") or {}).items()},
    )


async def delete_topic_in_broker(session: Session, address: str, topic: str) -> None:
    """Delete *topic* on the broker at *address*."""
    await session.call(address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})


async def delete_topic_in_name_servers(session: Session, topic: str, cluster: str | None = None) -> None:
    """Remove the route of *topic* from every name server, of one cluster or of all."""
    ext = {"topic": topic, "clusterName": cluster}
    await tell_name_servers(session, RequestCode.DELETE_TOPIC_IN_NAMESRV, ext)


async def topic_stats(session: Session, topic: str, addresses: Iterable[str] | None = None) -> TopicStats:
    """Return what the queues of *topic* hold.

    Args:
        session: the client.
        topic: the topic.
        addresses: brokers to ask; those of the route when ``None``.
    """
    if addresses is None:
        route = await session.fresh_route(topic)
        addresses = [address for group in route.brokers.values() if (address := group.any_address())]
    queues: dict[MessageQueue, QueueRange] = {}
    put_tps = 0.0
    for address in addresses:
        body = await json_body(session, await session.call(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic}))
        put_tps += float(body.get("topicPutTps") or 0.0)
        for key, entry in (body.get("offsetTable") or {}).items():
            queues[parse_queue(key)] = QueueRange(
                int(entry.get("minOffset", 0)), int(entry.get("maxOffset", 0)), int(entry.get("lastUpdateTimestamp", 0))
            )
    return TopicStats(queues, put_tps)


async def consuming_groups(session: Session, topic: str) -> list[str]:
    """Return the groups that consume *topic* at any of its brokers; one that does not answer is left out.

    A group may have progress at one broker only, where all the messages were. Raises :class:`ClientError` when none
    answers.
    """
    names: dict[str, None] = {}
    answered = False
    last: ClientError | None = None
    for address in await master_addresses(session, topic):
        try:
            answer = await session.call(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
        except ClientError as error:
            last = error
            continue
        answered = True
        names |= dict.fromkeys(str(name) for name in (await json_body(session, answer)).get("groupList") or ())
    if last is not None and not answered:
        raise last
    return list(names)


async def clusters_of(session: Session, topic: str) -> list[str]:
    """Return the clusters whose brokers have *topic*."""
    route = await session.fresh_route(topic)
    info = await cluster_info(session)
    return [cluster for cluster, names in info.clusters.items() if any(name in route.brokers for name in names)]


async def master_addresses(session: Session, topic: str) -> list[str]:
    """Return the addresses of the brokers that have *topic*, the master of each group or who acts for it."""
    route = await session.fresh_route(topic)
    addresses = [address for group in route.brokers.values() if (address := group.any_address())]
    if not addresses:
        raise ClientError(f"no broker of topic {topic} has an address at the moment")
    return addresses


async def route_body(session: Session, topic: str) -> dict[str, Any]:
    """Return the route of *topic* as the name server's JSON has it."""
    ext = {"topic": topic, "acceptStandardJsonOnly": True}
    return await json_body(session, await session.call_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext))


async def exists(session: Session, topic: str) -> bool:
    """Return whether any broker has *topic*."""
    try:
        answer = await session.call_name_server(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            {"topic": topic, "acceptStandardJsonOnly": True},
            accept=(ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST),
        )
    except BrokerError as error:
        raise ClientError(f"the name server does not say where {topic} is: {error.remark}") from error
    return answer.code == ResponseCode.SUCCESS


def format_attributes(attributes: dict[str, str]) -> str:
    """Return ``+name=value,-name`` as the request wants it."""
    return ",".join(f"{name}={value}" if value else name for name, value in attributes.items())


def parse_attributes(text: str) -> dict[str, str]:
    """Return the entries of ``+name=value,-name``. Raises :class:`ClientError` for anything else."""
    attributes = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = part.partition("=")
        if name[0] not in "+-" or len(name) < 2 or (name[0] == "+") != bool(value):
            raise ClientError(f"attribute {part!r} is neither +name=value nor -name")
        attributes[name] = value
    return attributes


async def all_settings(session: Session, address: str) -> dict[str, dict[str, Any]]:
    """Return the settings of every topic on the broker at *address*, page by page, by name."""
    return await all_rows(session, address, _PAGES)
