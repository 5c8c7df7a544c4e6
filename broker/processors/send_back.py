"""Messages a consumer wants again (36): a copy for the retry topic, delayed, or for the dead letters.

Source: AbstractSendMessageProcessor.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.broker import delay, inner
from understudy.broker.groups import GroupConfig
from understudy.broker.processors.send_admission import FAQ, RETRY_OVERRIDE_VERSION
from understudy.format import names
from understudy.format.record import Record, RecordError, decode_record, offset_message_id
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer
from understudy.remoting.fields import CommandError, optional_bool, optional_int, required, required_int
from understudy.remoting.frame import encode
from understudy.remoting.server import RemotingServer
from understudy.store.status import PutRejected

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

FIRST_RETRY_LEVEL = 3


class SendBackProcessor:
    """Handler of CONSUMER_SEND_MSG_BACK of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._config = broker.options.broker
        self._store = broker.store

    def register(self, server: RemotingServer) -> None:
        """Answer the code at *server*."""
        server.register(RequestCode.CONSUMER_SEND_MSG_BACK, self.send_back)

    def send_back(self, connection: Connection, command: Command) -> Answer:
        """Store the copy; with synchronous flush the answer waits for the disk."""
        group = required(command, "group")
        offset = required_int(command, "offset")
        level = required_int(command, "delayLevel")
        if self._broker.role.is_slave:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "no master available along with " + self._config.broker_ip1)
        row = self._broker.groups.get(group)
        if row is None:
            raise CommandError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group} {FAQ}"
            )
        if not self._config.broker_permission & names.PERM_WRITE:
            raise CommandError(
                ResponseCode.NO_PERMISSION, f"the broker[{self._config.broker_ip1}] sending message is forbidden"
            )
        if row.retry_queue_nums <= 0:
            return response(command)
        unit = optional_bool(command, "unitMode") is True
        topic, queue_id = self._retry_place(group, row.retry_queue_nums, unit)
        record = self._record(offset)
        pairs = record.properties
        pairs.setdefault("RETRY_TOPIC", record.topic)
        pairs["WAIT"] = "false"
        if record.reconsume_times >= self._most(command, row) or level < 0:
            topic, queue_id = names.dead_letter_topic(group), 0
            if self._broker.topics.ensure(topic, 1, names.PERM_READ | names.PERM_WRITE) is None:
                raise CommandError(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] not exist")
            pairs[delay.DELAY] = "0"
            self._broker.stats.given_up(group, record.topic)
        else:
            pairs[delay.DELAY] = str(level if level > 0 else FIRST_RETRY_LEVEL + record.reconsume_times)
        pairs.setdefault("ORIGIN_MESSAGE_ID", offset_message_id(record.store_host, record.physical_offset))
        copy = inner.copy_of(record, topic, queue_id, b"", record.reconsume_times + 1)
        copy = inner.with_delay(copy, pairs, len(self._broker.delay_levels_ms))
        try:
            put = inner.append(self._store, copy)
        except PutRejected as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"{error.status.value}: {error.remark}") from None
        self._broker.stats.sent_back(group, pairs["RETRY_TOPIC"])
        if self._broker.sync_flush and not command.flag & 2:
            # Differs because the reference answers before the copy is on the disk, although the consumer will now
            # commit past the original.
            self._broker.acknowledgements.add(
                put.physical_offset + put.size_bytes, connection, encode(response(command))
            )
            return None
        return response(command)

    def _retry_place(self, group: str, queues: int, unit: bool) -> tuple[str, int]:
        topic = names.retry_topic(group)
        flag = names.SYSFLAG_UNIT_SUBSCRIPTION if unit else 0
        place = self._broker.topics.ensure(topic, queues, names.PERM_READ | names.PERM_WRITE, sys_flag=flag)
        if place is None:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] not exist")
        if not place.perm & names.PERM_WRITE:
            raise CommandError(ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")
        return topic, self._broker.world.random.randrange(queues)

    def _record(self, offset: int) -> Record:
        raw = self._store.read(offset) if offset >= 0 else None
        try:
            if raw is not None:
                return decode_record(raw)
        except RecordError:
            pass  # told below: to the sender it is no message either way
        raise CommandError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")

    def _most(self, command: Command, row: GroupConfig) -> int:
        wish = optional_int(command, "maxReconsumeTimes")
        if wish is not None and command.version >= RETRY_OVERRIDE_VERSION:
            return wish
        return row.retry_max_times
