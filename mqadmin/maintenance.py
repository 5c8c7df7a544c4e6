"""Commands that clean up and repair brokers."""

from __future__ import annotations

import json
from typing import Any

from understudy.mqadmin.command import Context, command
from understudy.mqadmin.options import UsageError, flag, needed, value
from understudy.mqclient.admin import cluster
from understudy.mqclient.session import json_body
from understudy.remoting.codes import RequestCode

SCRUB_LOOK_SECONDS = 0.5
"""Between two looks at how far a comparison is."""


async def _everywhere(context: Context, code: RequestCode) -> list[str]:
    """Send a request without fields to the broker named, to a cluster's masters, or to all masters."""
    if "b" in context.values or "c" in context.values:
        addresses = await context.masters()
    else:
        info = await cluster.cluster_info(context.session)
        addresses = cluster.unique(address for name in info.clusters for address in info.masters_of(name))
    for address in addresses:
        await context.session.call(address, code, timeout_ms=60_000)
    context.output.line("success")
    return addresses


@command(
    "cleanExpiredCQ",
    "Remove files of consume queues that point below the log.",
    value("b", "brokerAddr", "on this broker"),
    value("c", "cluster", "on all masters of this cluster; without -b and -c everywhere"),
)
async def clean_expired_cq(context: Context) -> Any:
    return await _everywhere(context, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)


@command(
    "deleteExpiredCommitLog",
    "Remove expired files of the log now.",
    value("b", "brokerAddr", "on this broker"),
    value("c", "cluster", "on all masters of this cluster; without -b and -c everywhere"),
)
async def delete_expired_commit_log(context: Context) -> Any:
    return await _everywhere(context, RequestCode.DELETE_EXPIRED_COMMITLOG)


@command(
    "cleanUnusedTopic",
    "Remove the queues of topics that no longer exist.",
    value("b", "brokerAddr", "on this broker"),
    value("c", "cluster", "on all masters of this cluster; without -b and -c everywhere"),
)
async def clean_unused_topic(context: Context) -> Any:
    return await _everywhere(context, RequestCode.CLEAN_UNUSED_TOPIC)


@command(
    "scrub",
    "Compare every message of a broker with its checksum and show which ones have rotted on its disk.",
    needed("b", "brokerAddr", "host:port of the broker, a master or a slave"),
    flag("s", "status", "only tell how far the last comparison is"),
)
async def scrub(context: Context) -> Any:
    address = context.values["b"]
    report = await cluster.scrub(context.session, address, start="s" not in context.values)
    while report["running"] and "s" not in context.values:
        await context.session.world.clock.sleep(SCRUB_LOOK_SECONDS)
        report = await cluster.scrub(context.session, address, start=False)
    state = f"running, at {report['position']}" if report["running"] else "finished"
    context.output.lines(
        [
            f"#Log\t{report['begin']} to {report['end']}",
            f"#State\t{state}",
            f"#Whole messages\t{report['records']}",
            f"#Units entered again\t{report['units']}",
            f"#Index entries written anew\t{report['entries']}",
            f"#Damaged places\t{len(report['damaged'])}",
            *(f"{first} to {after}" for first, after in report["damaged"]),
        ]
    )
    if report["damaged"]:
        context.output.line(
            "These messages are left out of every answer. A slave gets them from its master by itself, a master of an "
            "acting group from its slaves when it is started again."
        )
    return report


@command(
    "resetMasterFlushOffset",
    "Tell a slave how far its master has flushed.",
    needed("b", "brokerAddr", "host:port of the slave"),
    needed("o", "offset", "log offset"),
)
async def reset_master_flush_offset(context: Context) -> Any:
    offset = context.values.number("o", 0)
    await context.session.call(
        context.values["b"], RequestCode.RESET_MASTER_FLUSH_OFFSET, {"masterFlushOffset": offset}
    )
    context.output.line(f"reset master flush offset to {offset} success")
    return {"broker": context.values["b"], "masterFlushOffset": offset}


@command(
    "getBrokerEpoch",
    "Show the epochs of brokers that a controller manages (servers with enableControllerMode=true).",
    value("b", "brokerName", "the broker group"),
    value("c", "clusterName", "all broker groups of this cluster"),
    value("i", "interval", "print again every so many seconds"),
    one_of=("b", "c"),
)
async def get_broker_epoch(context: Context) -> Any:
    info = await cluster.cluster_info(context.session)
    if "b" in context.values:
        chosen = [group for name, group in info.brokers.items() if name == context.values["b"]]
        if not chosen:
            raise UsageError(f"the name server knows no broker {context.values['b']}")
    else:
        chosen = info.groups_of(context.values["c"])
    result = {}
    for group in chosen:
        for address in group.addresses.values():
            body = await json_body(
                context.session, await context.session.call(address, RequestCode.GET_BROKER_EPOCH_CACHE)
            )
            result[address] = body
            context.output.line(
                f"\n#clusterName\t{body.get('clusterName')}\n#brokerName\t{body.get('brokerName')}\n"
                f"#brokerAddr\t{address}\n#brokerId\t{body.get('brokerId')}"
            )
            epochs = [dict(entry) for entry in body.get("epochList") or ()]
            if epochs:
                epochs[-1]["endOffset"] = body.get("maxOffset")  # the last one is still growing
            for entry in epochs:
                context.output.line(
                    f"#Epoch: EpochEntry{{epoch={entry.get('epoch')}, startOffset={entry.get('startOffset')}, "
                    f"endOffset={entry.get('endOffset')}}}"
                )
    return result


@command(
    "getColdDataFlowCtrInfo",
    "Show which groups read old data and their limits.",
    value("b", "brokerAddr", "host:port of the broker"),
    value("c", "clusterName", "all masters of this cluster"),
    one_of=("b", "c"),
)
async def get_cold_data_flow_ctr_info(context: Context) -> Any:
    result = {}
    for address in await context.masters():
        body = await json_body(
            context.session, await context.session.call(address, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
        )
        result[address] = body
        context.output.line(f" ============{address}============")
        context.output.lines(json.dumps(body, indent="\t", separators=(",", ":")).splitlines())
    return result


@command(
    "updateColdDataFlowCtrGroupConfig",
    "Set the limit of a group that reads old data (brokers of this project show it, and hold nobody back).",
    value("b", "brokerAddr", "host:port of the broker"),
    value("c", "clusterName", "all masters of this cluster"),
    needed("g", "consumerGroup", "the group"),
    needed("v", "threshold", "bytes per second"),
    one_of=("b", "c"),
)
async def update_cold_data_flow_ctr_group_config(context: Context) -> Any:
    body = f"{context.values['g']}={context.values.number('v', 0)}\n".encode()
    addresses = await context.masters()
    for address in addresses:
        await context.session.call(address, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=body)
        context.output.line(f"updateColdDataFlowCtrGroupConfig success, {address}")
    return {"brokers": addresses, "group": context.values["g"], "threshold": context.values["v"]}


@command(
    "removeColdDataFlowCtrGroupConfig",
    "Remove the limit of a group that reads old data.",
    value("b", "brokerAddr", "host:port of the broker"),
    value("c", "clusterName", "all masters of this cluster"),
    needed("g", "consumerGroup", "the group"),
    one_of=("b", "c"),
)
async def remove_cold_data_flow_ctr_group_config(context: Context) -> Any:
    addresses = await context.masters()
    for address in addresses:
        await context.session.call(
            address, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, body=context.values["g"].encode()
        )
        context.output.line(f"remove broker cold read threshold success, {address}")
    return {"brokers": addresses, "group": context.values["g"]}


@command(
    "setCommitLogReadAheadMode",
    "Choose how the system reads files of the log.",
    value("b", "brokerAddr", "host:port of the broker"),
    value("c", "clusterName", "all brokers of this cluster"),
    needed("m", "commitLogReadAheadMode", "0 normal, 1 random"),
    one_of=("b", "c"),
)
async def set_commit_log_read_ahead_mode(context: Context) -> Any:
    mode = context.values["m"]
    if mode not in ("0", "1"):
        raise UsageError(f"option -m is 0 or 1, not {mode!r}")
    addresses = await context.brokers()
    for address in addresses:
        answer = await context.session.call(address, RequestCode.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": mode})
        context.output.line(f" ============{address}============")
        context.output.line(f"commitLog set readAhead mode rstStr{answer.remark or ''}")
    return {"brokers": addresses, "mode": int(mode)}


@command(
    "switchTimerEngine",
    "Choose what keeps timed messages (Java brokers only; brokers of this project have one way).",
    value("b", "brokerAddr", "host:port of the broker"),
    value("c", "clusterName", "all masters of this cluster"),
    needed("e", "engineType", "F file wheel, R RocksDB"),
    one_of=("b", "c"),
)
async def switch_timer_engine(context: Context) -> Any:
    engine = context.values["e"]
    if engine not in ("F", "R"):
        raise UsageError(f"option -e is F or R, not {engine!r}")
    addresses = await context.masters()
    for address in addresses:
        await context.session.call(address, RequestCode.SWITCH_TIMER_ENGINE, {"E_T": engine})
        context.output.line(f"switchTimerEngine to {engine} success, {address}")
    return {"brokers": addresses, "engine": engine}
