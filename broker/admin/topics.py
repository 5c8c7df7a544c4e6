"""Topics: create, change, delete, list (17, 18, 21, 202, 215, 305, 351)."""

from __future__ import annotations

import itertools
import operator
from typing import TYPE_CHECKING

import attrs

from understudy.broker.admin import attributes
from understudy.broker.admin.answers import (
    UNSET_REMARK,
    body_list,
    json_answer,
    long_json_answer,
    queue_key,
    unknown_topic,
)
from understudy.broker.admin.paging import page
from understudy.broker.topics import MULTI_TAG, QUEUE_LIMIT, SINGLE_TAG, TopicConfig
from understudy.format import names
from understudy.format.json_dialect import ObjectKey, Rows
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional, optional_bool, optional_int, required, required_int
from understudy.remoting.server import RemotingServer
from understudy.runtime.pace import Pace
from understudy.store.deletions import to_json

if TYPE_CHECKING:
    from understudy.broker.broker import Broker


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer topic requests of *broker* on *server*."""
    handlers = TopicAdmin(broker)
    server.register_async(RequestCode.UPDATE_AND_CREATE_TOPIC, handlers.update)
    server.register_async(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, handlers.update_list)
    server.register_async(RequestCode.DELETE_TOPIC_IN_BROKER, handlers.delete)
    server.register_async(RequestCode.GET_ALL_TOPIC_CONFIG, handlers.get_all)
    server.register(RequestCode.GET_TOPIC_CONFIG, handlers.get)
    server.register_async(RequestCode.GET_TOPIC_STATS_INFO, handlers.status)
    server.register(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, handlers.system_topics)


class TopicAdmin:
    """Handlers over one broker's topic table."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def update(self, connection: Connection, command: Command) -> Command:
        """Create or change one topic (17)."""
        name = optional(command, "topic") or ""
        self._check_name(name)
        row = TopicConfig(
            name,
            required_int(command, "readQueueNums"),
            required_int(command, "writeQueueNums"),
            required_int(command, "perm"),
            optional(command, "topicFilterType") or SINGLE_TAG,
            optional_int(command, "topicSysFlag") or 0,
            optional_bool(command, "order") or False,
        )
        try:
            changes = attributes.parse(optional(command, "attributes"))
        except attributes.AttributeRefusedError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        self._check_not_slave()
        await self._put([(row, changes)])
        return response(command, ResponseCode.SUCCESS, UNSET_REMARK)

    async def update_list(self, connection: Connection, command: Command) -> Command:
        """Create or change several topics, all or none (18)."""
        wanted = []
        async with Pace(self._broker.world) as pace:
            for value in body_list(command, "topicConfigList", "topic configurations"):
                self._check_name(str(value.get("topicName") or ""))
                try:
                    row = TopicConfig.from_json(value)
                except ValueError as error:
                    raise CommandError(ResponseCode.INVALID_PARAMETER, str(error)) from None
                row.attributes = {}
                signed = value.get("attributes") or {}
                wanted.append(
                    (row, {str(key): str(text) for key, text in signed.items()} if isinstance(signed, dict) else {})
                )
                await pace.breathe()
        self._check_not_slave()
        await self._put(wanted)
        return response(command, ResponseCode.SUCCESS, UNSET_REMARK)

    async def delete(self, connection: Connection, command: Command) -> Command:
        """Delete a topic with its offsets, queues and POP retry topics (215)."""
        topic = optional(command, "topic") or ""
        if not topic.strip():
            raise CommandError(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        self._check_not_system(topic)
        self._check_not_slave()
        broker = self._broker
        doomed = [topic]
        if broker.options.broker.clear_retry_topic_when_delete_topic:
            for group in broker.offsets.groups_of(topic):
                retries = (names.retry_topic(f"{group}+{topic}"), names.retry_topic(f"{group}_{topic}"))
                doomed += [retry for retry in retries if broker.topics.get(retry) is not None]
        for name in doomed:
            broker.topics.delete(name)
            broker.forget_topic(name)
        await broker.persistence.save("topics")
        await broker.store.save_deletions()
        await broker.persistence.save("offsets")
        await broker.registration.settled()
        return response(command)

    async def get_all(self, connection: Connection, command: Command) -> Command:
        """List topics, whole or by pages (21)."""
        topics, config = self._broker.topics, self._broker.options.broker
        size = config.split_metadata_size if config.enable_split_metadata else 0
        async with Pace(self._broker.world) as pace:
            rows = page(command, topics.rows, topics.version, "topicSeq", "maxTopicNum", size)
            mappings = self._broker.queue_mappings
            body = {
                "dataVersion": topics.version.to_json(),
                "mappingDataVersion": mappings.version.to_json(),
                "topicConfigTable": Rows((name, row.to_json()) for name, row in list(rows.items())),
                "topicQueueMappingDetailMap": mappings.rows,
                "topicQueueMappingInfoMap": {},
            }
            if deletions := self._broker.store.deletions:
                body["deletedTopicTable"] = to_json(deletions)
            total = {"totalTopicNum": str(len(topics.rows))}
            return await long_json_answer(command, body, pace, ext=total)

    def get(self, connection: Connection, command: Command) -> Command:
        """Return one topic (351)."""
        topic = required(command, "topic")
        row = self._broker.topics.get(topic)
        if row is None:
            raise unknown_topic(topic, "No topic in this broker. topic: {topic}")
        return json_answer(command, row.to_json())

    async def status(self, connection: Connection, command: Command) -> Command:
        """Return first and last offset of each queue (202)."""
        topic = required(command, "topic")
        row = self._broker.topics.get(topic)
        if row is None:
            raise unknown_topic(topic, "topic[{topic}] not exist")
        body = {
            "offsetTable": Rows(map(self._offsets, itertools.repeat(topic), range(row.queue_limit))),
            "topicPutTps": self._broker.stats.topic_put_rate(topic),
        }
        async with Pace(self._broker.world) as pace:
            return await long_json_answer(command, body, pace)

    def _offsets(self, topic: str, queue_id: int) -> tuple[ObjectKey, dict[str, int]]:
        store = self._broker.store
        low = max(store.min_queue_offset(topic, queue_id), 0)
        high = max(store.max_queue_offset(topic, queue_id), 0)
        return queue_key(topic, self._broker.identity.name, queue_id), {
            "lastUpdateTimestamp": store.store_time_of(topic, queue_id, high - 1) if high > 0 else 0,
            "maxOffset": high,
            "minOffset": low,
        }

    def system_topics(self, connection: Connection, command: Command) -> Command:
        """List the topics that belong to the system (305)."""
        return json_answer(command, {"topicList": sorted(self._broker.topics.system_names)})

    async def _put(self, wanted: list[tuple[TopicConfig, dict[str, str]]]) -> None:
        """Take all of *wanted*, each a row and changes of attributes, or none; checked in pieces, taken at once."""
        topics = self._broker.topics
        checked: list[TopicConfig] = []
        before: list[TopicConfig | None] = []
        async with Pace(self._broker.world) as pace:
            for row, changes in wanted:
                known = topics.get(row.name)
                altered = self._altered(row, changes, known)
                checked.append(known if known is not None and altered == known else altered)
                before.append(known)
                await pace.breathe()
        self._check_not_slave()  # it may have become one meanwhile
        now = [topics.rows.get(row.name) for row in checked]
        if not all(map(operator.is_, now, before)):  # somebody has changed some of them meanwhile
            for number, (row, changes) in enumerate(wanted):
                if now[number] is not before[number]:
                    checked[number] = self._altered(row, changes, now[number])
        changed = list(itertools.compress(checked, map(operator.is_not, checked, now)))
        if changed:
            topics.update(changed)
            await self._broker.persistence.save("topics")
            await self._broker.registration.settled()

    def _altered(self, row: TopicConfig, changes: dict[str, str], known: TopicConfig | None) -> TopicConfig:
        """Return *row* with the attributes of *known* after *changes*. Raises CommandError."""
        self._check_row(row)
        if changes.get("+message.type") == "MIXED" and not self._broker.options.broker.enable_mixed_message_type:
            raise CommandError(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
        current = None if known is None else known.attributes
        try:
            altered = attributes.alter(attributes.TOPIC_ATTRIBUTES, current, changes)
        except attributes.AttributeRefusedError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return attrs.evolve(row, attributes=altered)

    def _check_not_slave(self) -> None:
        """Refuse on a slave, also on one that acts: its table is its master's (differs because the reference accepts a
        topic, drops it when the master is back, and lets a deletion take messages away that the master still has)."""
        broker = self._broker
        if broker.role.is_slave:
            address = broker.replication.master_address
            where = address or "which is not there now; the other groups take topics meanwhile"
            remark = f"a slave of {broker.identity.name} has its master's topics; change them at the master, {where}"
            raise CommandError(ResponseCode.NO_PERMISSION, remark)

    def _check_name(self, name: str) -> None:
        refusal = names.topic_name_error(name)
        if refusal is not None:
            raise CommandError(ResponseCode.INVALID_PARAMETER, refusal)
        self._check_not_system(name)

    def _check_not_system(self, name: str) -> None:
        if not self._broker.options.broker.validate_system_topic_when_update_topic:
            return
        if names.is_system_topic(name) or name in self._broker.topics.system_names:
            raise CommandError(ResponseCode.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic.")

    @staticmethod
    def _check_row(row: TopicConfig) -> None:
        if row.filter_type not in (SINGLE_TAG, MULTI_TAG):
            remark = f"topicFilterType = [{row.filter_type}] value invalid"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
        for label, number in (("readQueueNums", row.read_queue_nums), ("writeQueueNums", row.write_queue_nums)):
            if not 0 <= number <= QUEUE_LIMIT:
                remark = f"{label} of topic {row.name} is {number}, it must be from 0 to {QUEUE_LIMIT}"
                raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
        if not 0 <= row.perm <= 7:
            remark = f"perm of topic {row.name} is {row.perm}, it must be from 0 to 7 (4 read, 2 write, 1 inherit)"
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
