"""Commands of ours about roles: what runs on a broker and why, what a returning master took over, ending its wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understudy.mqadmin.command import Context, command
from understudy.mqadmin.options import flag, needed, value
from understudy.mqadmin.text import millis_text
from understudy.mqclient.admin import cluster

_SERVICE_ROW = "%-28s %-9s %-23s %s"
_OFFSET_ROW = "%-5s %-44s %6s %12s %12s %12s  %s"


@command(
    "brokerRoster",
    "Show what runs on a broker, what does not, and why.",
    needed("b", "brokerAddr", "host:port of the broker"),
)
async def broker_roster(context: Context) -> Any:
    roster = await cluster.roster(context.session, context.values["b"])
    state = "active" if roster["active"] else "not active"
    why = f" ({roster['activeReason']})" if roster["activeReason"] else ""
    members = ", ".join(f"{number} at {address}" for number, address in roster["members"].items()) or "unknown"
    context.output.lines(
        [
            f"#Broker\t{roster['brokerName']} {roster['brokerId']}, {state}{why}",
            f"#Container\t{roster.get('container') or 'none'}",
            f"#Role\t{roster['role']['kind']}, epoch {roster['role']['epoch']} ({roster['role']['reason']})",
            f"#Isolated\t{str(roster['isolated']).lower()}",
            f"#Members\t{members}",
            *(f"#Warning\t{warning}" for warning in roster["warnings"]),
            "",
            _SERVICE_ROW % ("#Service", "#State", "#Since", "#Reason"),
        ]
    )
    for row in roster["services"]:
        since = millis_text(row["startedAt"]) if row["startedAt"] and row["state"] != "off" else "-"
        context.output.line(_SERVICE_ROW % (row["name"], row["state"], since, row["reason"]))
    return roster


@command(
    "preOnlineReport",
    "Show what a master took over from its slaves when it came back: before, slave, merged and why, queue by queue.",
    needed("b", "brokerAddr", "host:port of the master"),
    value("g", "consumerGroup", "only offsets of this group"),
    flag("a", "all", "offsets too that stayed as they were although the slave's differed"),
)
async def pre_online_report(context: Context) -> Any:
    report = await cluster.pre_online_report(context.session, context.values["b"])
    group = context.values.get("g")
    if group is not None:
        report["rows"] = [row for row in report["rows"] if row["key"].endswith(f"@{group}")]
    if "a" not in context.values:
        report["rows"] = [row for row in report["rows"] if row["before"] != row["merged"]]
    context.output.lines(
        [
            f"#Broker\t{report['broker']}",
            f"#Cause\t{report['cause']}",
            f"#Began\t{millis_text(report['beganAt'])}",
            f"#Ended\t{_ended(report)}",
            f"#Compared\t{report['compared']} offsets, {report['changed']} changed",
        ]
    )
    if report["trouble"]:
        context.output.line(f"#Trouble\t{report['trouble']}")
    for slave in report["slaves"]:
        ahead = f", its log is {slave['aheadBytes']} bytes longer" if slave["aheadBytes"] else ""
        taken = f", gave back the last {slave['takenBytes']} bytes of the log" if slave.get("takenBytes") else ""
        context.output.line(f"#Slave {slave['brokerId']}\t{slave['address']}{taken}{ahead}")
        context.output.lines([f"\t{count:>8} {why}" for why, count in sorted(slave["reasons"].items())])
    context.output.line()
    context.output.line(_OFFSET_ROW % ("#From", "#Key", "#Queue", "#Before", "#Slave", "#Merged", "#Why"))
    for row in report["rows"]:
        values = ("-" if row[side] is None else row[side] for side in ("before", "slave", "merged"))
        context.output.line(_OFFSET_ROW % (row["slaveId"], row["key"], row["queueId"], *values, row["why"]))
    return report


@command(
    "finishPreOnline",
    "Let a master that waits for its slaves go online now; what only they know is taken over when they answer. "
    "Once it is online, have it forget slaves that will never answer.",
    needed("b", "brokerAddr", "host:port of the master"),
)
async def finish_pre_online(context: Context) -> Any:
    address = context.values["b"]
    await cluster.finish_pre_online(context.session, address)
    context.output.line(f"The broker at {address} waits no longer; see its log and `preOnlineReport`.")
    return {"broker": address, "finished": True}


def _ended(report: Mapping[str, Any]) -> str:
    """Return when a return ended and how long it took; one that a stop or a crash broke off has no end."""
    if report["endedAt"] is None:
        return "not: it was broken off"
    return f"{millis_text(report['endedAt'])} ({report['endedAt'] - report['beganAt']} ms)"
