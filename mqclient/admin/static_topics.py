"""Static topics: what brokers have of them, and carrying out a plan.

Source: MQAdminUtils.java.
"""

from __future__ import annotations

from understudy.format.json_dialect import dumps
from understudy.format.names import DEFAULT_TOPIC
from understudy.mqclient.admin.cluster import ClusterInfo
from understudy.mqclient.admin.static_plans import REMAP, Brokers, BrokerTopic, Plan, decided, undecided_queues
from understudy.mqclient.admin.topics import topic_stats
from understudy.mqclient.errors import BrokerError, ClientError
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import Session, json_body
from understudy.remoting.codes import RequestCode, ResponseCode


def master_of(info: ClusterInfo, name: str) -> str:
    """Return the address of the master of group *name*. Raises :class:`ClientError`."""
    group = info.brokers.get(name)
    if group is None or group.master is None:
        raise ClientError(
            f"broker {name} has no master at the moment; static topics are changed with all of them there"
        )
    return group.master


async def static_topic(session: Session, info: ClusterInfo, topic: str) -> Brokers:
    """Return *topic* as every group has it; those without it are left out.

    Raises:
        MappingError: a group has an ordinary topic of that name.
    """
    found: Brokers = {}
    for name in sorted(info.brokers):
        try:
            ext = {"topic": topic, "lo": True}
            answer = await session.call(master_of(info, name), RequestCode.GET_TOPIC_CONFIG, ext)
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            continue
        found[name] = BrokerTopic.from_json(await json_body(session, answer))
    return found


async def carry_out(session: Session, info: ClusterInfo, plan: Plan, *, force: bool = False) -> None:
    """Give every group its part of *plan*.

    Moved queues go to their new leaders first, which take messages but cannot be read yet, then the former ones are
    closed. Only when nothing can be stored there any more is it asked where they end, and decided where the new ones
    begin. What fails half way leaves queues that nobody takes messages for; the plan can be carried out again.

    Args:
        session: connections to servers.
        info: where the groups are.
        plan: the plan.
        force: brokers take it although it contradicts what they have.
    """
    addresses = {name: master_of(info, name) for name in sorted(plan.brokers)}
    if plan.kind != REMAP:
        for name, address in addresses.items():
            await save_static_topic(session, address, plan.brokers[name], force=force)
        return
    for names in (plan.map_in, plan.map_out):
        for name in sorted(names):
            await save_static_topic(session, addresses[name], plan.brokers[name], force=force)
    plan = decided(plan, await _ends(session, addresses, plan))
    for name in sorted(plan.map_in):
        await save_static_topic(session, addresses[name], plan.brokers[name], force=force)
    for name in sorted(plan.brokers.keys() - plan.map_in):
        await save_static_topic(session, addresses[name], plan.brokers[name], force=force)


async def _ends(session: Session, addresses: dict[str, str], plan: Plan) -> dict[int, int]:
    """Return where the former pieces of moved queues end, by global id."""
    former = undecided_queues(plan)
    stats = {
        name: await topic_stats(session, plan.topic, [addresses[name]])
        for name in sorted({item.broker_name for item in former.values()})
    }
    ends = {}
    for global_id, item in former.items():
        held = stats[item.broker_name].queues.get(MessageQueue(plan.topic, item.broker_name, item.queue_id))
        if held is None:
            raise ClientError(f"{item.broker_name} does not say where queue {item.queue_id} of {plan.topic} ends")
        ends[global_id] = held.max_offset
    return ends


async def save_static_topic(session: Session, address: str, topic: BrokerTopic, *, force: bool) -> None:
    """Create or change a static topic on the broker at *address*.

    Args:
        session: connections to servers.
        address: ``host:port``.
        topic: the topic as that broker shall have it.
        force: the broker takes it although it contradicts what it has.
    """
    settings = topic.settings
    ext = {
        "topic": settings.name,
        "defaultTopic": DEFAULT_TOPIC,
        "readQueueNums": settings.read_queues,
        "writeQueueNums": settings.write_queues,
        "perm": settings.permission,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": settings.sys_flag,
        "order": settings.ordered,
        "force": force,
    }
    body = dumps(topic.mapping.to_json())
    await session.call(address, RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, ext, body)
