"""Commands about consumer and producer groups."""

from __future__ import annotations

import json
from typing import Any

from understudy.format.names import dead_letter_topic, retry_topic
from understudy.mqadmin.command import CommandFailedError, Context, command
from understudy.mqadmin.options import UsageError, needed, value
from understudy.mqadmin.text import map_text
from understudy.mqadmin.topics import read_list
from understudy.mqclient.admin import cluster, groups, topics
from understudy.mqclient.queue import check_group

# SubscriptionGroupConfig.java, in the order its tool prints.
_GROUP_FIELDS = (
    "groupName", "consumeEnable", "consumeFromMinEnable", "consumeBroadcastEnable", "consumeMessageOrderly",
    "retryQueueNums", "retryMaxTimes", "groupRetryPolicy", "brokerId", "whichBrokerWhenConsumeSlowly",
    "notifyConsumerIdsChangedEnable", "groupSysFlag", "consumeTimeoutMinute", "subscriptionDataSet", "attributes",
)  # fmt: skip


@command(
    "updateSubGroup",
    "Create a consumer group or change it.",
    value("b", "brokerAddr", "on this broker"),
    value("c", "clusterName", "on all masters of this cluster"),
    needed("g", "groupName", "the group"),
    value("s", "consumeEnable", "true: may consume (default)"),
    value("m", "consumeFromMinEnable", "true: may start at the lowest offset"),
    value("d", "consumeBroadcastEnable", "true: may broadcast"),
    value("o", "consumeMessageOrderly", "true: consumes in order"),
    value("q", "retryQueueNums", "queues of the retry topic (default 1)"),
    value("r", "retryMaxTimes", "retries before a message is a dead letter (default 16)"),
    value("p", "groupRetryPolicy", "waits between retries, as JSON"),
    value("i", "brokerId", "replica to consume from (default 0)"),
    value("w", "whichBrokerWhenConsumeSlowly", "replica for slow consumers (default 1)"),
    value("a", "notifyConsumerIdsChanged", "true: tell members when others come and go (default)"),
    value("attributes", "attributes", "+name=value,-name of priority.factor (without effect here)"),
    one_of=("b", "c"),
)
async def update_sub_group(context: Context) -> Any:
    values = context.values
    check_group(values["g"])
    try:
        policy = json.loads(values.text("p", '{"type":"CUSTOMIZED"}'))
    except ValueError as error:
        raise UsageError(f"option -p is no JSON: {error}") from None
    settings: dict[str, Any] = {
        "attributes": topics.parse_attributes(values.text("attributes")),
        "brokerId": values.number("i", 0),
        "consumeBroadcastEnable": values.truth("d", False),
        "consumeEnable": values.truth("s", True),
        "consumeFromMinEnable": values.truth("m", False),
        "consumeMessageOrderly": values.truth("o", False),
        "consumeTimeoutMinute": 15,
        "groupName": values["g"],
        "groupRetryPolicy": policy,
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": values.truth("a", True),
        "retryMaxTimes": values.number("r", 16),
        "retryQueueNums": values.number("q", 1),
        "whichBrokerWhenConsumeSlowly": values.number("w", 1),
    }
    addresses = await context.masters()
    for address in addresses:
        await groups.save_group(context.session, address, settings)
        context.output.line(f"create subscription group to {address} success.")
    shown = ", ".join(f"{name}={_field_text(name, settings.get(name), 'null')}" for name in _GROUP_FIELDS)
    context.output.line(f"SubscriptionGroupConfig{{{shown}}}")
    return {"brokers": addresses, "group": settings}


def _field_text(name: str, content: Any, absent: str) -> str:
    if name == "groupRetryPolicy" and isinstance(content, dict):
        parts = [f"type={content.get('type')}"]
        for part in ("exponentialRetryPolicy", "customizedRetryPolicy"):
            inner = content.get(part)
            fields = ", ".join(f"{key}={number}" for key, number in sorted(inner.items())) if inner else ""
            parts.append(f"{part}={part[0].upper()}{part[1:]}{{{fields}}}" if inner else f"{part}=null")
        return f"GroupRetryPolicy{{{', '.join(parts)}}}"
    if content is None:
        return absent
    if isinstance(content, bool):
        return str(content).lower()
    if isinstance(content, dict):
        return map_text(content)
    return str(content)


@command(
    "updateSubGroupList",
    "Create or change the consumer groups in a file.",
    value("b", "brokerAddr", "on this broker"),
    value("c", "clusterName", "on all masters of this cluster"),
    needed("f", "filename", "file with a JSON list of groups"),
    one_of=("b", "c"),
)
async def update_sub_group_list(context: Context) -> Any:
    wanted = read_list(context.values["f"])
    addresses = await context.masters()
    for address in addresses:
        await groups.save_groups(context.session, address, wanted)
        context.output.line(f"submit batch of group config to {address} success, please check the result later.")
    return {"brokers": addresses, "groups": wanted}


@command(
    "deleteSubGroup",
    "Delete a consumer group.",
    value("b", "brokerAddr", "from this broker"),
    value("c", "clusterName", "from all masters of this cluster, with its retry and dead letter topics"),
    needed("g", "groupName", "the group"),
    value("r", "removeOffset", "true: its progress too"),
    one_of=("b", "c"),
)
async def delete_sub_group(context: Context) -> Any:
    name = context.values["g"]
    clean = context.values.truth("r", False)
    addresses = await context.masters()
    by_cluster = "b" not in context.values
    for address in addresses:
        await groups.delete_group(context.session, address, name, clean_offset=clean)
        where = f" in cluster [{context.values['c']}]" if by_cluster else ""
        context.output.line(f"delete subscription group [{name}] from broker [{address}]{where} success.")
    if by_cluster:
        for topic in (retry_topic(name), dead_letter_topic(name)):
            if not await topics.exists(context.session, topic):
                continue
            for address in addresses:
                await topics.delete_topic_in_broker(context.session, address, topic)
            await topics.delete_topic_in_name_servers(context.session, topic)
            context.output.line(f"delete topic [{topic}] from cluster [{context.values['c']}] success.")
            context.output.line(f"delete topic [{topic}] from NameServer success.")
    return {"group": name, "brokers": addresses}


@command(
    "getConsumerConfig",
    "Show the settings of a consumer group on every master.",
    needed("g", "groupName", "the group"),
)
async def get_consumer_config(context: Context) -> Any:
    info = await cluster.cluster_info(context.session)
    found = []
    for cluster_name in info.clusters:
        for group in info.groups_of(cluster_name):
            if group.master is None:
                continue
            settings = await _existing_settings(context, group.master)
            if settings is None:
                continue
            title = f"{cluster_name}:{group.name}"
            context.output.line(f"{'=' * 29}{title}{'=' * 29}")
            context.output.lines(
                [f"{name:<40}=  {_field_text(name, settings.get(name), '')}" for name in _GROUP_FIELDS]
            )
            found.append({"clusterName": cluster_name, "brokerName": group.name, "config": settings})
    if not found:
        raise CommandFailedError(f"no broker has a consumer group {context.values['g']}")
    return found


async def _existing_settings(context: Context, address: str) -> dict[str, Any] | None:
    # The request for one group would create it on brokers that auto-create groups; the list does not.
    return (await groups.all_settings(context.session, address)).get(context.values["g"])


@command(
    "setConsumeMode",
    "Choose whether a group pulls or pops a topic.",
    value("b", "brokerAddr", "on this broker"),
    value("c", "clusterName", "on all masters of this cluster"),
    needed("t", "topicName", "the topic"),
    needed("g", "groupName", "the group"),
    needed("m", "mode", "PULL or POP"),
    value("q", "popShareQueueNum", "queues that members share when popping"),
    one_of=("b", "c"),
)
async def set_consume_mode(context: Context) -> Any:
    mode = context.values["m"].upper()
    if mode not in ("PULL", "POP"):
        raise UsageError(f"option -m is PULL or POP, not {context.values['m']!r}")
    topic, group, share = context.values["t"], context.values["g"], context.values.number("q", 0)
    addresses = await context.masters()
    for address in addresses:
        await groups.consume_mode(context.session, address, topic, group, mode, share)
        context.output.line(f"set consume mode to {address} success.")
    context.output.line(f"topic[{topic}] group[{group}] consume mode[{mode}] popShareQueueNum[{share}]")
    return {"brokers": addresses, "topic": topic, "group": group, "mode": mode, "popShareQueueNum": share}
