"""Commands that name servers answer."""

from __future__ import annotations

from typing import Any

from understudy.mqadmin.command import CommandFailedError, Context, command
from understudy.mqadmin.options import UsageError, needed, value
from understudy.mqadmin.read_back import read_back
from understudy.mqclient.admin import cluster
from understudy.mqclient.errors import ClientError


@command("getNamesrvConfig", "Show the configuration of the name servers.")
async def get_namesrv_config(context: Context) -> Any:
    result = {}
    for address in cluster.name_servers(context.session):
        values = await cluster.name_server_config(context.session, address)
        result[address] = values
        context.output.line(f"============{address}============")
        context.output.lines([f"{name:<50}=  {text}" for name, text in values.items()])
    return result


@command(
    "updateNamesrvConfig",
    "Change a configuration value of the name servers while they run.",
    needed("k", "key", "name of the value"),
    needed("v", "value", "new value"),
)
async def update_namesrv_config(context: Context) -> Any:
    name, text = context.values["k"], context.values["v"]
    addresses = cluster.name_servers(context.session)
    for address in addresses:
        await cluster.update_name_server_config(context.session, address, {name: text})
        await read_back(context, address, cluster.name_server_config, name, text)
    context.output.line(f"update name server config success!\n{name} : {text}")
    return {address: {name: text} for address in addresses}


@command(
    "updateKvConfig",
    "Store a value at the name servers.",
    needed("s", "namespace", "namespace of the key"),
    needed("k", "key", "the key"),
    needed("v", "value", "the value"),
)
async def update_kv_config(context: Context) -> Any:
    await cluster.put_value(context.session, context.values["s"], context.values["k"], context.values["v"])
    context.output.line("create or update kv config to namespace success.")
    return {"namespace": context.values["s"], "key": context.values["k"], "value": context.values["v"]}


@command(
    "deleteKvConfig",
    "Remove a value from the name servers.",
    needed("s", "namespace", "namespace of the key"),
    needed("k", "key", "the key"),
)
async def delete_kv_config(context: Context) -> Any:
    await cluster.delete_value(context.session, context.values["s"], context.values["k"])
    context.output.line("delete kv config from namespace success.")
    return {"namespace": context.values["s"], "key": context.values["k"]}


@command(
    "updateOrderConf",
    "Read or change which queues an ordered topic has.",
    needed("m", "method", "get, put or delete"),
    needed("t", "topic", "the topic"),
    value("v", "orderConf", "for put: brokerName:queues;brokerName:queues"),
)
async def update_order_conf(context: Context) -> Any:
    method, topic = context.values["m"], context.values["t"]
    namespace = cluster.ORDER_CONFIG_NAMESPACE
    if method == "get":
        found = await cluster.get_value(context.session, namespace, topic)
        if found is None:
            raise CommandFailedError(f"topic {topic} has no order configuration")
        context.output.line(f"get orderConf success. topic=[{topic}], orderConf=[{found}] ")
        return {"topic": topic, "orderConf": found}
    if method == "put":
        if "v" not in context.values:
            raise UsageError("missing option: -v,--orderConf")
        text = context.values["v"]
        if not all(name and count.isdecimal() for name, _, count in _order_entries(text)):
            raise UsageError(f"option -v is brokerName:queues;brokerName:queues, not {text!r}")
        await cluster.put_value(context.session, namespace, topic, text)
        context.output.line(f"update orderConf success. topic=[{topic}], orderConf=[{text}]")
        return {"topic": topic, "orderConf": text}
    if method == "delete":
        await cluster.delete_value(context.session, namespace, topic)
        context.output.line(f"delete orderConf success. topic=[{topic}]")
        return {"topic": topic, "orderConf": None}
    raise UsageError(f"option -m is get, put or delete, not {method!r}")


def _order_entries(text: str) -> list[tuple[str, str, str]]:
    return [part.partition(":") for part in text.split(";")]


async def _permission(context: Context, verb: str) -> Any:
    broker_name = context.values["b"]
    change = cluster.wipe_write_permission if verb == "wipe" else cluster.add_write_permission
    topics: dict[str, int | None] = {}
    for address in cluster.name_servers(context.session):
        try:
            count = await change(context.session, address, broker_name)
        except ClientError as error:
            topics[address] = None
            context.output.line(f"{verb} write perm of broker[{broker_name}] in name server[{address}] Failed: {error}")
        else:
            topics[address] = count
            context.output.line(f"{verb} write perm of broker[{broker_name}] in name server[{address}] OK, {count}")
    if all(count is None for count in topics.values()):
        raise CommandFailedError("no name server changed anything")
    if not any(topics.values()):
        context.output.warn(f"no name server has a topic of a broker group {broker_name}; clusterList shows the groups")
    return topics


@command(
    "wipeWritePerm",
    "Stop clients from sending to a broker group.",
    needed("b", "brokerName", "the broker group"),
)
async def wipe_write_perm(context: Context) -> Any:
    return await _permission(context, "wipe")


@command(
    "addWritePerm",
    "Let clients send to a broker group again.",
    needed("b", "brokerName", "the broker group"),
)
async def add_write_perm(context: Context) -> Any:
    return await _permission(context, "add")
