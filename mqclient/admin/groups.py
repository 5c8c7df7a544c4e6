"""Consumer and producer groups: settings, members, progress."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from understudy.format.json_dialect import dumps
from understudy.format.names import retry_topic
from understudy.mqclient.admin.paging import PagedTable, all_rows
from understudy.mqclient.admin.topics import master_addresses
from understudy.mqclient.errors import ClientError
from understudy.mqclient.offsets import parse_queue
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import Session, json_body
from understudy.remoting.codes import RequestCode

_PAGES = PagedTable(
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable", "groupSeq", "maxGroupNum", "totalGroupNum"
)


@attrs.frozen
class Progress:
    """Progress of a group on one queue.

    Attributes:
        broker_offset: offset the next message will get.
        consumer_offset: stored progress.
        pull_offset: where the next pull starts.
        last_ms: when the last consumed message was stored; 0 unknown.
    """

    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_ms: int

    @property
    def behind(self) -> int:
        return self.broker_offset - self.consumer_offset

    @property
    def in_flight(self) -> int:
        return self.pull_offset - self.consumer_offset


@attrs.frozen
class ConsumeStats:
    """Progress of a group, and messages it consumes per second."""

    queues: dict[MessageQueue, Progress]
    tps: float

    @property
    def behind(self) -> int:
        return sum(progress.behind for progress in self.queues.values())

    @property
    def in_flight(self) -> int:
        return sum(progress.in_flight for progress in self.queues.values())


async def save_group(session: Session, address: str, settings: dict[str, Any]) -> None:
    """Create or change a group, given in its JSON form (SubscriptionGroupConfig.java)."""
    await session.call(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=dumps(settings))


async def save_groups(session: Session, address: str, groups: Iterable[dict[str, Any]]) -> None:
    """Create or change several groups."""
    body = dumps({"groupConfigList": list(groups)})
    await session.call(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body)


async def delete_group(session: Session, address: str, group: str, *, clean_offset: bool) -> None:
    """Delete *group* on the broker at *address*, its progress too with *clean_offset*.

    Args:
        session: the client below.
        address: of the broker.
        group: to be deleted.
        clean_offset: delete its progress, too.
    """
    ext = {"groupName": group, "cleanOffset": clean_offset}
    await session.call(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, ext)


async def consumer_connection(session: Session, group: str, address: str | None = None) -> dict[str, Any]:
    """Return the members of *group* and what they subscribe to, as the first broker that has any says.

    Args:
        session: the client.
        group: consumer group.
        address: broker to ask; those of the group's retry topic when ``None``.
    """
    last: ClientError | None = None
    for broker in [address] if address else await master_addresses(session, retry_topic(group)):
        try:
            body = await json_body(
                session, await session.call(broker, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
            )
        except ClientError as error:
            last = error
            continue
        if body.get("connectionSet"):
            return body
    raise last or ClientError(f"no member of consumer group {group} is connected")


async def producer_connections(session: Session, group: str, topic: str) -> list[dict[str, Any]]:
    """Return the connections of producer *group* at the brokers of *topic*."""
    last: ClientError | None = None
    for broker in await master_addresses(session, topic):
        try:
            answer = await session.call(broker, RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": group})
        except ClientError as error:
            last = error
            continue
        return list((await json_body(session, answer)).get("connectionSet") or ())
    raise last or ClientError(f"no member of producer group {group} is connected")


async def all_producers(session: Session, address: str) -> dict[str, list[dict[str, Any]]]:
    """Return the producers connected to the broker at *address* by group."""
    body = await json_body(session, await session.call(address, RequestCode.GET_ALL_PRODUCER_INFO, {}))
    return {str(group): list(producers or ()) for group, producers in (body.get("data") or {}).items()}


async def consume_stats(session: Session, group: str, topic: str | None = None) -> ConsumeStats:
    """Return the progress of *group* on one topic or on all, from all brokers that serve it."""
    queues: dict[MessageQueue, Progress] = {}
    tps = 0.0
    for address in await master_addresses(session, topic or retry_topic(group)):
        ext = {"consumerGroup": group, "topic": topic}
        body = await json_body(
            session, await session.call(address, RequestCode.GET_CONSUME_STATS, ext, timeout_ms=10_000)
        )
        tps += float(body.get("consumeTps") or 0.0)
        queues.update(parse_progress(body))
    return ConsumeStats(queues, tps)


async def broker_consume_stats(session: Session, address: str, *, ordered: bool, timeout_ms: float) -> dict[str, Any]:
    """Return the progress of every group on the broker at *address*.

    Args:
        session: the client below.
        address: of the broker.
        ordered: only groups that consume in order.
        timeout_ms: for the answer, which may be large.
    """
    return await json_body(
        session,
        await session.call(address, RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": ordered}, timeout_ms=timeout_ms),
    )


def parse_progress(body: dict[str, Any]) -> dict[MessageQueue, Progress]:
    """Return the progress by queue in one ConsumeStats body."""
    return {
        parse_queue(key): Progress(
            int(entry.get("brokerOffset", 0)),
            int(entry.get("consumerOffset", 0)),
            int(entry.get("pullOffset", 0)),
            int(entry.get("lastTimestamp", 0)),
        )
        for key, entry in (body.get("offsetTable") or {}).items()
    }


async def running_info(session: Session, address: str, group: str, client_id: str, *, stacks: bool) -> dict[str, Any]:
    """Return the report of one member of *group*, asked for by the broker at *address*.

    Args:
        session: the client below.
        address: of a broker that the member is connected to.
        group: that it belongs to.
        client_id: of the member.
        stacks: have it report its threads, too.
    """
    ext = {"consumerGroup": group, "clientId": client_id, "jstackEnable": stacks}
    return await json_body(
        session, await session.call(address, RequestCode.GET_CONSUMER_RUNNING_INFO, ext, timeout_ms=12_000)
    )


async def reset_offset(
    session: Session, address: str, group: str, topic: str, *, timestamp_ms: int, queue_id: int = -1, offset: int = -1
) -> dict[MessageQueue, int]:
    """Move the progress of *group* on *topic* at the broker at *address*; return the new offsets.

    Args:
        session: the client.
        address: ``host:port`` of a master.
        group: consumer group.
        topic: the topic.
        timestamp_ms: wall time to go to; -1 is the end.
        queue_id: one queue, -1 all.
        offset: exact offset for that queue instead of a time, -1 none.
    """
    ext = {
        "topic": topic,
        "group": group,
        "timestamp": timestamp_ms,
        "isForce": True,
        "queueId": queue_id,
        "offset": offset,
    }
    answer = await session.call(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext, timeout_ms=10_000)
    table = (await json_body(session, answer)).get("offsetTable") or {}
    return {parse_queue(key): int(value) for key, value in table.items()}


async def set_offset(session: Session, address: str, group: str, queue: MessageQueue, offset: int) -> None:
    """Store *offset* as the progress of *group* on *queue* at the broker at *address*.

    Args:
        session: the client below.
        address: of the queue's broker.
        group: whose progress is set.
        queue: in which it is set.
        offset: queue offset of the next message.
    """
    ext = {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": queue.queue_id,
        "commitOffset": offset,
        "bname": queue.broker_name,
    }
    await session.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, ext)


async def consume_mode(session: Session, address: str, topic: str, group: str, mode: str, share_queues: int) -> None:
    """Choose whether *group* consumes *topic* by ``PULL`` or ``POP``.

    Args:
        session: the client below.
        address: of the broker.
        topic: that is consumed.
        group: that consumes it.
        mode: ``PULL`` or ``POP``.
        share_queues: with ``POP``, of how many members after it a member gets the queues, too; 0 for all.
    """
    body = {"consumerGroup": group, "mode": mode, "popShareQueueNum": share_queues, "topic": topic}
    await session.call(address, RequestCode.SET_MESSAGE_REQUEST_MODE, body=dumps(body))


async def all_settings(session: Session, address: str) -> dict[str, dict[str, Any]]:
    """Return the settings of every group on the broker at *address*, page by page, by name."""
    return await all_rows(session, address, _PAGES)
