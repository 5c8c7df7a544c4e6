"""Commands about clusters and what their brokers say of themselves."""

from __future__ import annotations

from typing import Any

from understudy.mqadmin.command import CommandFailedError, Context, command
from understudy.mqadmin.options import flag, needed, value
from understudy.mqadmin.read_back import read_back
from understudy.mqadmin.text import millis_text
from understudy.mqclient.admin import cluster
from understudy.mqclient.errors import BrokerError, ClientError

_CLUSTER_ROW = "%-22s  %-22s  %-4s  %-22s %-16s  %16s  %30s  %-22s  %11s  %-12s  %-8s  %10s"
_CLUSTER_HEAD = "%-22s  %-22s  %-4s  %-22s %-16s  %16s  %30s  %-22s  %-11s  %-12s  %-8s  %-10s"
_MORE_ROW = "%-16s  %-32s %14s %14s %14s %14s"
_IN = "%9.2f(%s,%sms)"
_OUT = "%9.2f(%s,%sms|%s,%sms)"
_TIMER = "%d-%d(%.1fw, %.1f, %.1f)"
_NO_BROKER_FILE = "addBroker properties empty"  # all that containers say of it


@command(
    "clusterList",
    "List clusters, their brokers and how busy they are.",
    flag("m", "moreStats", "messages of yesterday and today instead"),
    value("i", "interval", "print again every so many seconds"),
    value("c", "clusterName", "only this cluster"),
)
async def cluster_list(context: Context) -> Any:
    info = await cluster.cluster_info(context.session)
    names = [context.values["c"]] if "c" in context.values else list(info.clusters)
    more = "m" in context.values
    if more:
        context.output.line(
            _MORE_ROW
            % ("#Cluster Name", "#Broker Name", "#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday")
        )
    else:
        context.output.line(
            _CLUSTER_HEAD
            % (
                "#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version", "#InTPS(LOAD)", "#OutTPS(LOAD)",
                "#Timer(Progress)", "#PCWait(ms)", "#Hour", "#SPACE", "#ACTIVATED",
            )
        )  # fmt: skip
    rows = []
    for name in names:
        for group in info.groups_of(name):
            for broker_id, address in group.addresses.items():
                try:
                    figures = await cluster.runtime_info(context.session, address)
                except ClientError as error:
                    figures = {}
                    context.output.line(f"{name}  {group.name}  {broker_id}  {address}  does not answer: {error}")
                else:
                    identity = (name, group.name, broker_id, address)
                    context.output.line(
                        _more_line(identity, figures) if more else _base_line(context, identity, figures)
                    )
                rows.append(
                    {
                        "clusterName": name,
                        "brokerName": group.name,
                        "brokerId": broker_id,
                        "brokerAddr": address,
                        "runtime": figures or None,
                    }
                )
    return rows


def _number(figures: dict[str, str], name: str) -> float:
    try:
        return float(figures.get(name, "").split(" ")[0])
    except ValueError:
        return 0.0


def _base_line(context: Context, identity: tuple[str, str, int, str], figures: dict[str, str]) -> str:
    earliest = _number(figures, "earliestMessageTimeStamp")
    hours = (context.session.world.clock.wall_ms() - earliest) / 3_600_000 if earliest > 0 else 0.0  # -1: no message
    load = _IN % (
        _number(figures, "putTps"),
        figures.get("sendThreadPoolQueueSize", ""),
        figures.get("sendThreadPoolQueueHeadWaitTimeMills", ""),
    )
    out = _OUT % (
        _number(figures, "getTransferredTps"),
        figures.get("pullThreadPoolQueueSize", ""),
        figures.get("pullThreadPoolQueueHeadWaitTimeMills", ""),
        figures.get("ackThreadPoolQueueSize", "N"),
        figures.get("ackThreadPoolQueueHeadWaitTimeMills", "N"),
    )
    timer = _TIMER % (
        _number(figures, "timerReadBehind"),
        _number(figures, "timerOffsetBehind"),
        _number(figures, "timerCongestNum") / 10_000,
        _number(figures, "timerEnqueueTps"),
        _number(figures, "timerDequeueTps"),
    )
    return _CLUSTER_ROW % (
        *identity,
        figures.get("brokerVersionDesc", ""),
        load,
        out,
        timer,
        figures.get("pageCacheLockTimeMills", ""),
        f"{hours:.2f}",
        f"{_number(figures, 'commitLogDiskRatio'):.4f}",
        figures.get("brokerActive", "false"),
    )


def _more_line(identity: tuple[str, str, int, str], figures: dict[str, str]) -> str:
    def between(kind: str, later: str, earlier: str) -> int:
        return int(_number(figures, f"msg{kind}Total{later}") - _number(figures, f"msg{kind}Total{earlier}"))

    return _MORE_ROW % (
        identity[0],
        identity[1],
        between("Put", "TodayMorning", "YesterdayMorning"),
        between("Get", "TodayMorning", "YesterdayMorning"),
        between("Put", "TodayNow", "TodayMorning"),
        between("Get", "TodayNow", "TodayMorning"),
    )


@command(
    "brokerStatus",
    "Show the figures of a broker.",
    value("b", "brokerAddr", "host:port of the broker"),
    value("c", "clusterName", "all brokers of this cluster"),
    one_of=("b", "c"),
)
async def broker_status(context: Context) -> Any:
    whole_cluster = "c" in context.values and "b" not in context.values
    result = {}
    for address in await context.brokers():
        figures = await cluster.runtime_info(context.session, address)
        result[address] = figures
        for name in sorted(figures):
            prefix = f"{address:<24} " if whole_cluster else ""
            context.output.line(f"{prefix}{name:<32}: {figures[name]}")
    return result


@command(
    "getBrokerConfig",
    "Show the configuration of brokers.",
    value("b", "brokerAddr", "host:port of the broker"),
    value("c", "clusterName", "all brokers of this cluster"),
    one_of=("b", "c"),
)
async def get_broker_config(context: Context) -> Any:
    if "b" in context.values:
        targets = [(f"============{context.values['b']}============", context.values["b"])]
    else:
        info = await cluster.cluster_info(context.session)
        targets = []
        for group in info.groups_of(context.values["c"]):
            for broker_id, address in group.addresses.items():
                role = "Master" if broker_id == 0 else "My Slave"
                targets.append((f"============{role}: {address}============", address))
    result = {}
    for title, address in targets:
        values = await cluster.broker_config(context.session, address)
        result[address] = values
        context.output.line(title)
        context.output.lines([f"{name:<50}=  {text}" for name, text in values.items()])
        context.output.line()
    return result


@command(
    "updateBrokerConfig",
    "Change a configuration value of brokers while they run.",
    value("b", "brokerAddr", "host:port of the broker"),
    value("c", "clusterName", "the masters of this cluster"),
    value("a", "updateAllBroker", "true: slaves of the cluster too"),
    needed("k", "key", "name of the value"),
    needed("v", "value", "new value"),
    one_of=("b", "c"),
)
async def update_broker_config(context: Context) -> Any:
    everyone = context.values.truth("a", False)
    name, text = context.values["k"], context.values["v"]
    addresses = await (context.brokers() if everyone else context.masters())
    for address in addresses:
        await cluster.update_broker_config(context.session, address, {name: text})
        await read_back(context, address, cluster.broker_config, name, text)
        context.output.line(f"update broker config success, {address}")
    return {address: {name: text} for address in addresses}


@command(
    "addBroker",
    "Start a broker in a running container.",
    needed("c", "brokerContainerAddr", "host:port of the container"),
    needed("b", "brokerConfigPath", "the broker's configuration file, as the container sees it"),
)
async def add_broker(context: Context) -> Any:
    try:
        await cluster.add_broker(context.session, context.values["c"], context.values["b"])
    except BrokerError as error:
        if error.remark != _NO_BROKER_FILE:
            raise
        file = f"{context.values['b']} on the machine of {context.values['c']}"
        raise CommandFailedError(f"{error}: {file} cannot be read, or has no key=value line") from error
    context.output.line(f"add broker to {context.values['c']} success")
    return {"container": context.values["c"], "configPath": context.values["b"]}


@command(
    "removeBroker",
    "Stop one broker of a running container.",
    needed("c", "brokerContainerAddr", "host:port of the container"),
    needed("b", "brokerIdentity", "cluster:name:id of the broker"),
)
async def remove_broker(context: Context) -> Any:
    parts = context.values["b"].rsplit(":", 2)
    if len(parts) != 3 or not parts[2].isdigit():
        raise CommandFailedError(f"{context.values['b']!r} is no broker; write cluster:name:id with an id of 0 or more")
    await cluster.remove_broker(context.session, context.values["c"], parts[0], parts[1], int(parts[2]))
    context.output.line(f"remove broker from {context.values['c']} success")
    return {"container": context.values["c"], "cluster": parts[0], "brokerName": parts[1], "brokerId": int(parts[2])}


@command(
    "haStatus",
    "Show replication: a master's slaves, or a slave's connection to its master.",
    value("b", "brokerAddr", "host:port of the broker"),
    value("c", "clusterName", "the masters of this cluster"),
    value("i", "interval", "print again every so many seconds"),
    one_of=("b", "c"),
)
async def ha_status(context: Context) -> Any:
    row = "%-32s  %-16s %16s %16s %16s %16s"
    result = {}
    for address in await context.masters():
        status = await cluster.ha_status(context.session, address)
        result[address] = status
        if status.get("master", True):
            slaves = status.get("haConnectionInfo") or []
            context.output.line(
                f"\n#MasterAddr\t{address}\n#MasterCommitLogMaxOffset\t{status.get('masterCommitLogMaxOffset', 0)}\n"
                f"#SlaveNum\t{len(slaves)}\n#InSyncSlaveNum\t{status.get('inSyncSlaveNums', 0)}"
            )
            head = ("#SlaveAddr", "#SlaveAckOffset", "#Diff", "#TransferSpeed(KB/s)", "#Status", "#TransferFromWhere")
            context.output.line(row % head)
            for slave in slaves:
                context.output.line(
                    row
                    % (
                        slave.get("addr"),
                        slave.get("slaveAckOffset"),
                        slave.get("diff"),
                        f"{(slave.get('transferredByteInSecond') or 0) / 1024:.2f}",
                        "OK" if slave.get("inSync") else "Fall Behind",
                        slave.get("transferFromWhere"),
                    )
                )
        else:
            link = status.get("haClientRuntimeInfo") or {}
            context.output.lines(
                [
                    f"\n#MasterAddr\t{link.get('masterAddr')}",
                    f"#CommitLogMaxOffset\t{link.get('maxOffset')}",
                    f"#TransferSpeed(KB/s)\t{(link.get('transferredByteInSecond') or 0) / 1024:.2f}",
                    f"#LastReadTime\t{millis_text(link.get('lastReadTimestamp') or 0)}",
                    f"#LastWriteTime\t{millis_text(link.get('lastWriteTimestamp') or 0)}",
                    f"#MasterFlushOffset\t{link.get('masterFlushOffset')}",
                ]
            )
    return result
