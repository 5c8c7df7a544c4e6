"""Messages a consumer wants again (36): a copy for the retry topic, delayed, or for the dead letters.

A slave takes no messages; it hands the copy to a master that runs beside it, as far as there is one.

Source: AbstractSendMessageProcessor.java.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random

import attrs

from understudy.broker import delay, inner
from understudy.broker.acknowledgement import Acknowledgements
from understudy.broker.broker_config import BrokerConfig
from understudy.broker.groups import GroupConfig, GroupTable
from understudy.broker.identity import Identity
from understudy.broker.inner import InnerMessage
from understudy.broker.processors.send_admission import FAQ, RETRY_OVERRIDE_VERSION
from understudy.broker.statistics import BrokerStatistics
from understudy.broker.topics import TopicConfig, TopicTable
from understudy.format import names
from understudy.format.record import Record, RecordError, decode_record, offset_message_id
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import ONEWAY_BIT, Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer
from understudy.remoting.fields import CommandError, optional_bool, optional_int, required, required_int
from understudy.remoting.frame import encode
from understudy.remoting.server import RemotingServer
from understudy.store.message_store import MessageStore
from understudy.store.status import PutRejected, PutStatus

FIRST_RETRY_LEVEL = 3
LANE = "send back"
_PERM = names.PERM_READ | names.PERM_WRITE


PutBeside = Callable[[Sequence[TopicConfig], InnerMessage], Awaitable[PutStatus | None]]
"""Puts a message, whose topics are given, to a master that runs beside the broker; ``None`` when there is none."""


@attrs.frozen
class SendBackParts:
    """What of a broker is needed to take messages back.

    Attributes:
        identity: its role decides where copies go.
        config: read at each request.
        groups, topics: how often a group retries, and where.
        store: has the originals, and the copies of a master.
        acknowledgements: answers when a copy is durable; ``None`` when no send waits for the disk.
        stats: counts.
        delay_levels: how many there are.
        random: draws a queue.
        put_beside: where the copies of a slave go.
    """

    identity: Identity
    config: BrokerConfig
    groups: GroupTable
    topics: TopicTable
    store: MessageStore
    acknowledgements: Acknowledgements | None
    stats: BrokerStatistics
    delay_levels: int
    random: Random
    put_beside: PutBeside


@attrs.frozen
class _Returned:
    """A message that was given back.

    Attributes:
        topics: those that the copy needs, its own last.
        copy: what is to be put.
        topic: where it was read.
        origin: where it was sent first.
        given_up: whether it is a dead letter.
    """

    topics: tuple[TopicConfig, ...]
    copy: InnerMessage
    topic: str
    origin: str
    given_up: bool


class SendBackProcessor:
    """Handler of CONSUMER_SEND_MSG_BACK of one broker."""

    def __init__(self, parts: SendBackParts) -> None:
        self._parts = parts
        self._config = parts.config

    def register(self, server: RemotingServer) -> None:
        """Answer the code at *server*."""
        self._lane = server.lane(LANE)
        server.register(RequestCode.CONSUMER_SEND_MSG_BACK, self.send_back)

    def send_back(self, connection: Connection, command: Command) -> Answer:
        """Store the copy; with synchronous flush the answer waits for the disk."""
        parts = self._parts
        if parts.identity.role.is_slave:
            return self._lane.submit(connection, command, self._send_back_beside)
        returned = self._read(command)
        if returned is None:
            return response(command)
        for row in returned.topics:
            target = parts.topics.ensure(row.name, row.write_queue_nums, _PERM, sys_flag=row.sys_flag)
            if target is None:
                raise CommandError(ResponseCode.SYSTEM_ERROR, f"topic[{row.name}] not exist")
            if not target.perm & names.PERM_WRITE:
                raise CommandError(ResponseCode.NO_PERMISSION, f"the topic[{row.name}] sending message is forbidden")
        try:
            put = inner.append(parts.store, returned.copy)
        except PutRejected as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"{error.status.value}: {error.remark}") from None
        self._count(command, returned)
        if parts.acknowledgements is not None and not command.flag & ONEWAY_BIT:
            # Differs because the reference answers before the copy is on the disk, although the consumer will now
            # commit past the original.
            parts.acknowledgements.add(put.physical_offset + put.size_bytes, connection, encode(response(command)))
            return None
        return response(command)

    async def _send_back_beside(self, connection: Connection, command: Command) -> Answer:
        """Have a master beside this slave store the copy."""
        returned = self._read(command)
        if returned is None:
            return response(command)
        status = await self._parts.put_beside(returned.topics, returned.copy)
        if status is None:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "no master available along with " + self._config.broker_ip1)
        if status is not PutStatus.PUT_OK:
            raise CommandError(ResponseCode.SYSTEM_ERROR, status.value)
        self._count(command, returned)
        return response(command)

    def _count(self, command: Command, returned: _Returned) -> None:
        group = required(command, "group")
        if returned.given_up:
            self._parts.stats.given_up(group, returned.topic)
        self._parts.stats.sent_back(group, returned.origin)

    def _read(self, command: Command) -> _Returned | None:
        """Read what is given back; ``None`` when the group wants no retries. Raises :class:`CommandError`."""
        parts = self._parts
        group = required(command, "group")
        offset = required_int(command, "offset")
        level = required_int(command, "delayLevel")
        row = parts.groups.get(group)
        if row is None:
            raise CommandError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group} {FAQ}"
            )
        if not self._config.broker_permission & names.PERM_WRITE:
            raise CommandError(
                ResponseCode.NO_PERMISSION, f"the broker[{self._config.broker_ip1}] sending message is forbidden"
            )
        if row.retry_queue_nums <= 0:
            return None
        record = self._record(offset)
        pairs = record.properties
        origin = pairs.setdefault("RETRY_TOPIC", record.topic)
        pairs["WAIT"] = "false"
        queues = row.retry_queue_nums
        flag = names.SYSFLAG_UNIT_SUBSCRIPTION if optional_bool(command, "unitMode") is True else 0
        topics = [TopicConfig(names.retry_topic(group), queues, queues, sys_flag=flag)]
        queue_id = parts.random.randrange(queues)
        given_up = record.reconsume_times >= self._most(command, row) or level < 0
        if given_up:
            topics.append(TopicConfig(names.dead_letter_topic(group), 1, 1))
            queue_id = 0
            pairs[delay.DELAY] = "0"
        else:
            pairs[delay.DELAY] = str(level if level > 0 else FIRST_RETRY_LEVEL + record.reconsume_times)
        pairs.setdefault("ORIGIN_MESSAGE_ID", offset_message_id(record.store_host, record.physical_offset))
        copy = inner.copy_of(record, topics[-1].name, queue_id, b"", record.reconsume_times + 1)
        copy = inner.with_delay(copy, pairs, parts.delay_levels)
        return _Returned(tuple(topics), copy, record.topic, origin, given_up)

    def _record(self, offset: int) -> Record:
        raw = self._parts.store.read(offset) if offset >= 0 else None
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
