"""Consumer groups: create, change, delete, list, permissions (200, 201, 207, 225, 352, 353)."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from understudy.broker.admin import attributes
from understudy.broker.admin.answers import body_list, body_object, json_answer, long_json_answer
from understudy.broker.admin.paging import page
from understudy.broker.broker_config import BrokerConfig
from understudy.broker.groups import GroupConfig, GroupTable
from understudy.broker.offsets import OffsetTable
from understudy.broker.persistence import Persistence
from understudy.broker.statistics import BrokerStatistics
from understudy.format import names
from understudy.format.json_dialect import Rows
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional_bool, required
from understudy.remoting.server import RemotingServer
from understudy.runtime.pace import Pace
from understudy.runtime.world import World

if TYPE_CHECKING:
    from understudy.broker.broker import Broker


@attrs.frozen
class GroupAdminParts:
    """What of a broker is needed to administrate groups.

    Attributes:
        world: clock and threads.
        config: read at each request.
        groups, offsets: the tables.
        persistence: saves the tables.
        stats: counts.
    """

    world: World
    config: BrokerConfig
    groups: GroupTable
    offsets: OffsetTable
    persistence: Persistence
    stats: BrokerStatistics


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer group requests of *broker* on *server*."""
    handlers = GroupAdmin(
        GroupAdminParts(
            world=broker.world,
            config=broker.options.broker,
            groups=broker.groups,
            offsets=broker.offsets,
            persistence=broker.persistence,
            stats=broker.stats,
        )
    )
    server.register_async(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, handlers.update)
    server.register_async(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, handlers.update_list)
    server.register_async(RequestCode.DELETE_SUBSCRIPTIONGROUP, handlers.delete)
    server.register_async(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, handlers.get_all)
    server.register(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, handlers.get)
    server.register_async(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, handlers.forbid)


class GroupAdmin:
    """Handlers over one broker's group table."""

    def __init__(self, parts: GroupAdminParts) -> None:
        self._parts = parts

    async def update(self, connection: Connection, command: Command) -> Command:
        """Create or change one group (200). An empty request changes nothing, as in the reference."""
        with self._parts.stats.creations.of_groups():
            if command.body:
                await self._put([body_object(command, "a subscription group configuration")])
        return response(command)

    async def update_list(self, connection: Connection, command: Command) -> Command:
        """Create or change several groups, all or none (225)."""
        with self._parts.stats.creations.of_groups():
            await self._put(body_list(command, "groupConfigList", "subscription group configurations"))
        return response(command)

    async def delete(self, connection: Connection, command: Command) -> Command:
        """Delete a group, with its offsets when the request says so (207)."""
        group, parts = required(command, "groupName"), self._parts
        parts.groups.delete(group)
        if optional_bool(command, "cleanOffset"):
            parts.offsets.remove_group(group)
        if parts.config.auto_delete_unused_stats:
            parts.stats.group_deleted(group)
        await parts.persistence.save("groups")
        await parts.persistence.save("offsets")
        return response(command)

    async def get_all(self, connection: Connection, command: Command) -> Command:
        """List groups, whole or by pages (201)."""
        groups, config = self._parts.groups, self._parts.config
        size = config.split_metadata_size if config.enable_split_metadata else 0
        async with Pace(self._parts.world) as pace:
            rows = page(command, groups.rows, groups.version, "groupSeq", "maxGroupNum", size)
            body = {
                "dataVersion": groups.version.to_json(),
                "forbiddenTable": {group: dict(topics) for group, topics in groups.forbidden.items() if group in rows},
                "subscriptionGroupTable": Rows((name, row.to_json()) for name, row in list(rows.items())),
            }
            total = {"totalGroupNum": str(len(groups.rows))}
            return await long_json_answer(command, body, pace, ext=total)

    def get(self, connection: Connection, command: Command) -> Command:
        """Return one group, made on first use when groups are (352)."""
        row = self._parts.groups.get(required(command, "group"))
        if row is None:
            raise CommandError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return json_answer(command, row.to_json())

    async def forbid(self, connection: Connection, command: Command) -> Command:
        """Take reading a topic from a group, give it back, or only tell (353)."""
        group, topic = required(command, "group"), required(command, "topic")
        refusal = names.group_name_error(group) or names.topic_name_error(topic)
        if refusal is not None:
            raise CommandError(ResponseCode.INVALID_PARAMETER, refusal)
        readable = optional_bool(command, "readable")
        if readable is not None:
            self._parts.groups.forbid(group, topic, not readable)
            await self._parts.persistence.save("groups")
        body = {"group": group, "readable": not self._parts.groups.is_forbidden(group, topic), "topic": topic}
        return json_answer(command, body, remark="")

    async def _put(self, values: list[dict[str, Any]]) -> None:
        """Take all of *values* or none; checked in pieces, taken at once."""
        groups = self._parts.groups
        rows: list[GroupConfig] = []
        before: list[GroupConfig | None] = []
        async with Pace(self._parts.world) as pace:
            for value in values:
                row, known = _altered(value, groups.find)
                rows.append(row)
                before.append(known)
                await pace.breathe()
        now = [groups.rows.get(row.name) for row in rows]
        if not all(map(operator.is_, now, before)):  # somebody has changed some of them meanwhile
            for number, value in enumerate(values):
                if now[number] is not before[number]:
                    rows[number], _ = _altered(value, groups.find)
        groups.update(rows)
        await self._parts.persistence.save("groups")


def _altered(
    value: dict[str, Any], find: Callable[[str], GroupConfig | None]
) -> tuple[GroupConfig, GroupConfig | None]:
    """Return the row that *value* says, with the attributes of the known one after its changes, and the known one.

    Raises:
        CommandError: it is no row.
    """
    name = value.get("groupName")
    refusal = names.group_name_error(name if isinstance(name, str) else None)
    if refusal is not None:
        raise CommandError(ResponseCode.INVALID_PARAMETER, refusal)
    try:
        row = GroupConfig.from_json(value)
    except ValueError as error:
        raise CommandError(ResponseCode.INVALID_PARAMETER, str(error)) from None
    if row.retry_queue_nums < 0:
        remark = f"retryQueueNums of group {row.name} is {row.retry_queue_nums}, it must be 0 or more"
        raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
    signed = value.get("attributes") or {}
    known = find(row.name)
    try:
        row.attributes = attributes.alter(
            attributes.GROUP_ATTRIBUTES,
            None if known is None else known.attributes,
            {str(key): str(text) for key, text in signed.items()} if isinstance(signed, dict) else {},
        )
    except attributes.AttributeRefusedError as error:
        raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
    return row, known
