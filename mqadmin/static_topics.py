"""Commands about static topics: topics whose logical queues stay the same while they move between brokers."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from understudy.format.static_topics import MappingError
from understudy.mqadmin.command import CommandFailedError, Context, command
from understudy.mqadmin.options import UsageError, needed, value
from understudy.mqclient.admin import static_plans, static_topics
from understudy.mqclient.admin.cluster import ClusterInfo, cluster_info
from understudy.mqclient.admin.static_plans import Brokers, Plan
from understudy.mqclient.admin.topics import QueueRange
from understudy.mqclient.queue import MessageQueue, check_topic

_FILE = value("mf", "mapFile", "carry out the plan in this file")
_FORCE = value("fr", "forceReplace", "true: brokers take the plan of a file although it contradicts what they have")
_BROKERS = value("b", "brokers", "names of brokers, separated by commas")
_CLUSTERS = value("c", "clusters", "all brokers of these clusters, separated by commas")


@command(
    "updateStaticTopic",
    "Create a static topic, or give it more queues.",
    _CLUSTERS,
    _BROKERS,
    needed("t", "topic", "the topic"),
    needed("qn", "totalQueueNum", "how many logical queues it shall have"),
    _FILE,
    _FORCE,
    one_of=("b", "c"),
)
async def update_static_topic(context: Context) -> Any:
    topic, queues = context.values["t"], context.values.number("qn", 0)
    if queues < 1:
        raise UsageError("option -qn needs at least one queue")
    info = await cluster_info(context.session)
    targets = _targets(context, info)
    known = await _known(context, info, topic)
    if "mf" in context.values:
        plan = _read(context.values["mf"], topic, static_plans.CREATE)
    else:
        plan = _planned(
            context, topic, known, lambda now_ms: static_plans.create(topic, queues, targets, known, now_ms)
        )
    return await _carry_out(context, info, plan)


@command(
    "remappingStaticTopic",
    "Have the queues of a static topic led by other brokers.",
    _CLUSTERS,
    _BROKERS,
    needed("t", "topic", "the topic"),
    _FILE,
    _FORCE,
    one_of=("b", "c"),
)
async def remapping_static_topic(context: Context) -> Any:
    topic = context.values["t"]
    info = await cluster_info(context.session)
    targets = _targets(context, info)
    known = await _known(context, info, topic)
    if not known:
        raise CommandFailedError(f"no broker has topic {topic}")
    if "mf" in context.values:
        plan = static_plans.with_known(_read(context.values["mf"], topic, static_plans.REMAP), known)
    else:
        plan = _planned(context, topic, known, lambda now_ms: static_plans.remap(topic, targets, known, now_ms))
    return await _carry_out(context, info, plan)


async def logical_queues(context: Context, queues: Mapping[MessageQueue, QueueRange]) -> dict[MessageQueue, QueueRange]:
    """Return what the logical queues of the static topic that the command line names hold.

    Args:
        context: of the command.
        queues: what the physical queues hold.
    """
    info = await cluster_info(context.session)
    return static_plans.logical_ranges(await _known(context, info, context.values["t"]), queues)


def _targets(context: Context, info: ClusterInfo) -> list[str]:
    """Return the names of the groups that the command line names; each has a master."""
    check_topic(context.values["t"])
    if "b" in context.values:
        names = _parts(context.values["b"])
    else:
        names = [group.name for cluster in _parts(context.values["c"]) for group in info.groups_of(cluster)]
    for name in names:
        static_topics.master_of(info, name)
    if not names:
        raise UsageError("name brokers (-b) or clusters (-c)")
    return sorted(set(names))


def _parts(text: str) -> list[str]:
    return [part for part in (each.strip() for each in text.split(",")) if part]


async def _known(context: Context, info: ClusterInfo, topic: str) -> Brokers:
    try:
        return await static_topics.static_topic(context.session, info, topic)
    except MappingError as error:
        raise CommandFailedError(str(error)) from None


def _planned(context: Context, topic: str, known: Brokers, make: Callable[[int], Plan]) -> Plan:
    """Return the plan that *make* makes, and write it and what is known to files."""
    now_ms = context.session.world.clock.wall_ms()
    epoch = max((each.mapping.epoch for each in known.values()), default=now_ms)
    _write(context, "old", Plan(topic, static_plans.CREATE, epoch, known), "before")
    try:
        plan = make(now_ms)
    except MappingError as error:
        raise CommandFailedError(str(error)) from None
    _write(context, "new", plan, "after")
    return plan


def _write(context: Context, which: str, plan: Plan, suffix: str) -> None:
    path = Path(tempfile.gettempdir()) / f"{plan.topic}-{plan.epoch}.{suffix}"
    try:
        path.write_text(json.dumps(plan.to_json()))
    except OSError as error:
        raise CommandFailedError(f"{path} cannot be written: {error.strerror}") from error
    context.output.line(f"The {which} mapping data is written to file {path}")


def _read(path: str, topic: str, kind: str) -> Plan:
    try:
        content = json.loads(Path(path).read_bytes())
        plan = Plan.from_json(content if isinstance(content, dict) else {})
    except OSError as error:
        raise CommandFailedError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CommandFailedError(f"{path} is no plan: {error}") from error
    if (plan.topic, plan.kind) != (topic, kind):
        raise CommandFailedError(f"{path} is a plan of kind {plan.kind} for topic {plan.topic}")
    return plan


async def _carry_out(context: Context, info: ClusterInfo, plan: Plan) -> Any:
    clusters = {info.brokers[name].cluster for name in plan.brokers if name in info.brokers}
    bystanders = [name for name, group in info.brokers.items() if group.cluster in clusters]
    plan = static_plans.with_bystanders(plan, bystanders)
    force = "mf" in context.values and context.values.truth("fr", False)
    await static_topics.carry_out(context.session, info, plan, force=force)
    return plan.to_json()
