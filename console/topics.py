"""Topics as a page shows them, from what the brokers that lead a group keep. Pure but for the asking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understudy.console.model.memory import Memory
from understudy.format import names
from understudy.mqclient.admin import cluster, topics
from understudy.mqclient.errors import ClientError
from understudy.mqclient.session import Session

MOST_TOPICS = 50_000
MOST_QUEUES = 20_000


def kind_of(topic: str) -> str:
    """Return what a topic is for, in a word."""
    if topic.startswith(names.RETRY_PREFIX):
        return "retry"
    if topic.startswith(names.DEAD_LETTER_PREFIX):
        return "dead letters"
    return "system" if names.is_system_topic(topic) else "normal"


def rows_of(settings: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return one row for each topic, by name.

    Args:
        settings: of each broker group, its topics with what it keeps of them (TopicConfig.java).
    """
    found: dict[str, dict[str, Any]] = {}
    for group, rows in settings.items():
        for name, row in rows.items():
            topic = found.setdefault(
                name, {"name": name, "kind": kind_of(name), "brokers": [], "queues": 0, "perm": 0, "type": ""}
            )
            topic["brokers"].append(group)
            topic["queues"] += int(row.get("writeQueueNums") or 0)
            topic["perm"] |= int(row.get("perm") or 0)
            topic["type"] = str((row.get("attributes") or {}).get("message.type") or topic["type"])
    return [found[name] for name in sorted(found)][:MOST_TOPICS]


async def every_topic(session: Session, known: Memory) -> dict[str, Any]:
    """Return all topics, and which broker groups did not say theirs."""
    settings, missing = {}, []
    for name, group in sorted(known.groups.items()):
        try:
            if not group.leader:
                raise ClientError("nobody leads it")
            settings[name] = await topics.all_settings(session, group.leader)
        except ClientError as error:
            missing.append(f"{name}: {error}")
    return {"rows": rows_of(settings), "missing": missing}


async def one_topic(session: Session, known: Memory, topic: str) -> dict[str, Any]:
    """Return the queues of *topic* with what they hold, its rates, and who consumes it."""
    queues: list[dict[str, Any]] = []
    missing: list[str] = []
    rate = 0.0
    day = 0
    for name, group in sorted(known.groups.items()):
        if not group.leader:
            missing.append(f"{name}: nobody leads it")
            continue
        try:
            stats = await topics.topic_stats(session, topic, [group.leader])
            figures = await cluster.stats(session, group.leader, "TOPIC_PUT_NUMS", topic)
        except ClientError as error:
            if "not exist" not in str(error):
                missing.append(f"{name}: {error}")
            continue
        rate += stats.put_tps
        day += int(((figures or {}).get("statsDay") or {}).get("sum") or 0)
        queues += [
            {
                "broker": queue.broker_name,
                "id": queue.queue_id,
                "min": held.min_offset,
                "max": held.max_offset,
                "last": held.last_update_ms,
            }
            for queue, held in sorted(stats.queues.items())
        ]
    consumers = [
        {"group": row.group, "behind": row.behind, "perSecond": row.per_second}
        for row in known.ranking.topics
        if row.topic == topic
    ]
    return {
        "name": topic,
        "kind": kind_of(topic),
        "queues": queues[:MOST_QUEUES],
        "putPerSecond": rate,
        "putToday": day,
        "consumers": consumers,
        "missing": missing,
    }
