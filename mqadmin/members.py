"""Commands about who is connected and what consumers are doing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from understudy.format.names import retry_topic
from understudy.format.versions import version_text
from understudy.mqadmin.command import CommandFailedError, Context, command
from understudy.mqadmin.options import flag, needed, value
from understudy.mqadmin.running_report import report_lines
from understudy.mqclient.admin import groups, topics
from understudy.mqclient.errors import BrokerError
from understudy.mqclient.offsets import parse_queue
from understudy.mqclient.queue import MessageQueue

_CONNECTION_ROW = "%-36s %-22s %-10s %s"
_PRODUCER_ROW = "%04d  %-32s %-22s %-8s %s"
_MEMBER_ROW = "%-10s %-40s %-20s %s"


@command(
    "consumerConnection",
    "Show the members of a consumer group and their subscriptions.",
    needed("g", "consumerGroup", "the group"),
    value("b", "brokerAddr", "ask this broker"),
)
async def consumer_connection(context: Context) -> Any:
    body = await groups.consumer_connection(context.session, context.values["g"], context.values.get("b"))
    context.output.line(_CONNECTION_ROW % ("#ClientId", "#ClientAddr", "#Language", "#Version"))
    for member in body.get("connectionSet") or ():
        context.output.line(_CONNECTION_ROW % _connection(member))
    context.output.line("\nBelow is subscription:")
    context.output.line(f"{'#Topic':<20} #SubExpression")
    for entry in (body.get("subscriptionTable") or {}).values():
        context.output.line(f"{entry.get('topic'):<20} {entry.get('subString')}")
    context.output.lines(
        [
            "",
            f"ConsumeType: {body.get('consumeType')}",
            f"MessageModel: {body.get('messageModel')}",
            f"ConsumeFromWhere: {body.get('consumeFromWhere')}",
        ]
    )
    return body


def _connection(member: dict[str, Any]) -> tuple[Any, Any, Any, str]:
    version = version_text(int(member.get("version") or 0))
    return member.get("clientId"), member.get("clientAddr"), member.get("language"), version


@command(
    "producerConnection",
    "Show the members of a producer group.",
    needed("g", "producerGroup", "the group"),
    needed("t", "topic", "a topic it sends to"),
)
async def producer_connection(context: Context) -> Any:
    members = await groups.producer_connections(context.session, context.values["g"], context.values["t"])
    for number, member in enumerate(members, 1):
        context.output.line(_PRODUCER_ROW % (number, *_connection(member)))
    return members


@command("producer", "List all producers of a broker.", needed("b", "broker", "host:port of the broker"))
async def producer(context: Context) -> Any:
    found = await groups.all_producers(context.session, context.values["b"])
    if not found:
        context.output.line(f"no producer is connected to {context.values['b']}")
    for group, members in found.items():
        if not members:
            context.output.line(f"producer group ({group}) instances are empty")
        for member in members:
            context.output.line(
                f"producer group ({group}) instance : clientId={member.get('clientId')},"
                f"remoteIP={member.get('remoteIP')}, language={member.get('language')}, "
                f"version={member.get('version')}, lastUpdateTimestamp={member.get('lastUpdateTimestamp')}"
            )
    return found


async def queue_owners(context: Context, group: str) -> dict[MessageQueue, str]:
    """Return which member has each queue; members that do not answer are left out."""
    owners = {}
    for member, report in (await _reports(context, group, stacks=False)).items():
        for key in report.get("mqTable") or {}:
            owners[parse_queue(key)] = member.split("@")[0]
    return owners


async def _reports(context: Context, group: str, *, stacks: bool) -> dict[str, dict[str, Any]]:
    connection = await groups.consumer_connection(context.session, group, context.values.get("b"))
    addresses = (
        [context.values["b"]]
        if "b" in context.values
        else await topics.master_addresses(context.session, retry_topic(group))
    )
    reports = {}
    for member in connection.get("connectionSet") or ():
        client_id = str(member.get("clientId"))
        for address in addresses:
            try:
                reports[client_id] = await groups.running_info(
                    context.session, address, group, client_id, stacks=stacks
                )
                break
            except BrokerError as error:
                context.output.line(f"{client_id} does not report through {address}: {error.remark}")
    return reports


@command(
    "consumerStatus",
    "Show what the members of a consumer group are doing.",
    needed("g", "consumerGroup", "the group"),
    value("i", "clientId", "only this member, on the screen"),
    value("b", "brokerAddr", "ask this broker"),
    flag("s", "jstack", "with the stacks of the member's threads"),
)
async def consumer_status(context: Context) -> Any:
    group = context.values["g"]
    stacks = "s" in context.values
    if "i" in context.values:
        client_id = context.values["i"]
        addresses = (
            [context.values["b"]]
            if "b" in context.values
            else await topics.master_addresses(context.session, retry_topic(group))
        )
        report = await groups.running_info(context.session, addresses[0], group, client_id, stacks=stacks)
        context.output.lines(report_lines(report))
        return report
    connection = await groups.consumer_connection(context.session, group, context.values.get("b"))
    versions = {str(m.get("clientId")): int(m.get("version") or 0) for m in connection.get("connectionSet") or ()}
    reports = await _reports(context, group, stacks=stacks)
    context.output.line(_MEMBER_ROW % ("#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile"))
    folder = Path(str(context.session.world.clock.wall_ms()))
    for number, client_id in enumerate(sorted(reports), 1):
        path = folder / client_id.replace("/", "_")
        if not context.output.as_json:
            _save(path, report_lines(reports[client_id]))
        context.output.line(_MEMBER_ROW % (number, client_id, version_text(versions.get(client_id, 0)), path))
    subscriptions = {
        json.dumps(sorted((s.get("topic"), s.get("subString")) for s in report.get("subscriptionSet") or ()))
        for report in reports.values()
    }
    if len(subscriptions) > 1:
        context.output.line("\n\nWARN: Different subscription in the same group of consumer!!!")
    elif reports:
        owned = [key for report in reports.values() for key in report.get("mqTable") or {}]
        fair = len(owned) == len(set(owned))
        context.output.line("\n\nSame subscription in the same group of consumer")
        context.output.line(f"\nRebalance {'OK' if fair else 'Failed'}")
    return reports


def _save(path: Path, lines: list[str]) -> None:
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
    except OSError as error:
        raise CommandFailedError(f"report cannot be written to {path}: {error.strerror}") from error
