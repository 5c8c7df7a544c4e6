"""Consumer groups as a page shows them: how far they are in each queue, and who their members are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understudy.console.model.lag import QueueLag, queues_of
from understudy.console.model.memory import Memory
from understudy.console.questions import ask
from understudy.format.versions import version_text
from understudy.mqclient.admin import groups
from understudy.mqclient.errors import ClientError
from understudy.mqclient.session import Session
from understudy.remoting.codes import RequestCode

MOST_QUEUES = 20_000
MOST_MEMBERS = 2_000


def every_group(known: Memory) -> dict[str, Any]:
    """Return all groups with how far they are behind, as they were told last."""
    looks = known.lags
    return {
        "rows": list(known.ranking.groups),
        "missing": [name for name in sorted(known.groups) if name not in looks or looks[name].error],
        "cut": sorted(name for name, look in looks.items() if look.cut),
        "at": min((look.at_ms for look in looks.values()), default=0),
    }


async def one_group(session: Session, known: Memory, group: str) -> dict[str, Any]:
    """Return how far *group* is in each queue, and its members, as all brokers say that lead a group."""
    found: list[QueueLag] = []
    missing: list[str] = []
    members: dict[str, dict[str, Any]] = {}
    told: Mapping[str, Any] = {}
    for name, each in sorted(known.groups.items()):
        if not each.leader:
            missing.append(f"{name}: nobody leads it")
            continue
        try:
            ext = {"consumerGroup": group, "topic": None}
            found += queues_of(await ask(session, each.leader, RequestCode.GET_CONSUME_STATS, ext, timeout_ms=10_000))
        except ClientError as error:
            missing.append(f"{name}: {error}")
            continue
        try:
            connection = await groups.consumer_connection(session, group, each.leader)
        except ClientError:
            continue  # nobody is connected there
        told = told or connection
        for member in connection.get("connectionSet") or ():
            members[str(member.get("clientId"))] = _member(member)
    return {
        "name": group,
        "queues": [_queue(queue) for queue in found[:MOST_QUEUES]],
        "members": list(members.values())[:MOST_MEMBERS],
        "type": str(told.get("consumeType") or ""),
        "model": str(told.get("messageModel") or ""),
        "subscriptions": [
            {"topic": str(topic), "expression": str((each or {}).get("subString") or "")}
            for topic, each in (told.get("subscriptionTable") or {}).items()
        ],
        "missing": missing,
    }


def _queue(queue: QueueLag) -> dict[str, Any]:
    return {
        "topic": queue.topic,
        "broker": queue.broker,
        "id": queue.queue_id,
        "end": queue.end,
        "consumed": queue.consumed,
        "behind": queue.behind,
        "last": queue.last_ms,
    }


def _member(member: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "client": str(member.get("clientId") or ""),
        "address": str(member.get("clientAddr") or ""),
        "language": str(member.get("language") or ""),
        "version": version_text(int(member.get("version") or 0)),
    }
