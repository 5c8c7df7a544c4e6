"""Commands that write what a cluster has into files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from understudy.format.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from understudy.mqadmin.command import CommandFailedError, Context, command
from understudy.mqadmin.options import flag, needed, value
from understudy.mqclient.admin import cluster, groups, topics

_DEFAULT_FOLDER = "/tmp/rocketmq/export"
_FOLDER = value("f", "filePath", f"folder for the file (default {_DEFAULT_FOLDER})")


def _write(context: Context, name: str, content: dict[str, Any]) -> str:
    path = Path(context.values.text("f", _DEFAULT_FOLDER)) / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n")
    except OSError as error:
        raise CommandFailedError(f"{path} cannot be written: {error.strerror}") from error
    context.output.line(f"export {path} success")
    return str(path)


@command(
    "exportConfigs",
    "Write the configuration of a cluster's brokers into a file.",
    needed("c", "clusterName", "the cluster"),
    _FOLDER,
)
async def export_configs(context: Context) -> Any:
    info = await cluster.cluster_info(context.session)
    brokers = {}
    for group in info.groups_of(context.values["c"]):
        if group.master is not None:
            brokers[group.name] = await cluster.broker_config(context.session, group.master)
    content = {
        "brokerConfigs": brokers,
        "clusterScale": {
            "namesrvSize": len(cluster.name_servers(context.session)),
            "masterBrokerSize": len(brokers),
            "slaveBrokerSize": len(info.addresses_of(context.values["c"])) - len(brokers),
        },
    }
    return {"file": _write(context, "configs.json", content), **content}


@command(
    "exportMetadata",
    "Write topics and consumer groups of a broker or a cluster into a file.",
    value("b", "brokerAddr", "host:port of the broker"),
    value("c", "clusterName", "all masters of this cluster"),
    _FOLDER,
    flag("t", "topic", "only topics"),
    flag("g", "subscriptionGroup", "only consumer groups"),
    flag("s", "specialTopic", "retry and dead letter topics too"),
    one_of=("b", "c"),
)
async def export_metadata(context: Context) -> Any:
    values = context.values
    with_topics, with_groups = "g" not in values or "t" in values, "t" not in values or "g" in values
    found_topics: dict[str, Any] = {}
    found_groups: dict[str, Any] = {}
    for address in await context.masters():
        if with_topics:
            for name, settings in (await topics.all_settings(context.session, address)).items():
                if "s" in values or not name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
                    _merge(found_topics, name, settings, ("readQueueNums", "writeQueueNums"))
        if with_groups:
            for name, settings in (await groups.all_settings(context.session, address)).items():
                _merge(found_groups, name, settings, ("retryQueueNums",))
    content: dict[str, Any] = {"exportTime": context.session.world.clock.wall_ms()}
    if with_topics:
        content["topicConfigTable"] = found_topics
    if with_groups:
        content["subscriptionGroupTable"] = found_groups
    name = "metadata.json" if with_topics and with_groups else "topic.json" if with_topics else "subscriptionGroup.json"
    return {"file": _write(context, name, content), **content}


def _merge(table: dict[str, Any], name: str, settings: dict[str, Any], added: tuple[str, ...]) -> None:
    """Enter *settings* of one broker; what several brokers have of *added* is added up."""
    known = table.get(name)
    if known is None:
        table[name] = dict(settings)
        return
    for field in added:
        known[field] = int(known.get(field) or 0) + int(settings.get(field) or 0)
