"""What comes of a message that a consumer gives back: a copy for the retry topic of its group, or for the dead letters.

Source: AbstractSendMessageProcessor.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from understudy.broker import delay, inner
from understudy.broker.delay_rules import DelayRules
from understudy.broker.groups import GroupConfig, GroupTable
from understudy.broker.inner import InnerMessage
from understudy.broker.node import Node
from understudy.broker.processors.send_admission import FAQ, RETRY_OVERRIDE_VERSION
from understudy.broker.topics import TopicConfig
from understudy.format import light_queues, names
from understudy.format.record import FLAG_INNER_BATCH, Record, RecordError, decode_record, offset_message_id
from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.fields import CommandError, optional_bool, optional_int, required, required_int
from understudy.store.message_store import MessageStore
from understudy.store.status import PutStatus

if TYPE_CHECKING:
    from understudy.security.gate import Gate

FIRST_RETRY_LEVEL = 3


@attrs.frozen
class GivenBack:
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


class RetryCopies:
    """Makes the copies at one broker; nothing is stored here.

    Args:
        node: who it is, its settings and its world.
        groups: how often a group retries.
        store: has the originals.
        delays: how many delay levels there are.
        gate: who may read what; ``None``: everybody everything.
    """

    def __init__(
        self, node: Node, groups: GroupTable, store: MessageStore, delays: DelayRules, gate: Gate | None
    ) -> None:
        self._node = node
        self._groups = groups
        self._store = store
        self._delays = delays
        self._gate = gate

    def of(self, command: Command, address: str) -> GivenBack | None:
        """Read what is given back; ``None`` when the group wants no retries.

        Args:
            command: the request.
            address: IP address of who sent it.

        Raises:
            CommandError: it cannot be given back, or is no message that its sender may read (16).
        """
        config, group = self._node.options.broker, required(command, "group")
        offset = required_int(command, "offset")
        level = required_int(command, "delayLevel")
        row = self._groups.get(group)
        if row is None:
            raise CommandError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group} {FAQ}"
            )
        if not config.broker_permission & names.PERM_WRITE:
            raise CommandError(
                ResponseCode.NO_PERMISSION, f"the broker[{config.broker_ip1}] sending message is forbidden"
            )
        if row.retry_queue_nums <= 0:
            return None
        record = self._record(offset, command.ext or {})
        if self._gate is not None:
            # Differs: the reference copies whatever stands at that position of the log to a group of one's own.
            self._gate.check_reading(command, topics_of(record, group), address)
        if record.sys_flag & FLAG_INNER_BATCH:
            # As the reference, by its check of such flags; clients send the one message they want again by themselves.
            remark = f"{PutStatus.MESSAGE_ILLEGAL.value}: the message at {offset} is one of a batch; send it anew"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
        pairs = record.properties
        origin = pairs.setdefault("RETRY_TOPIC", record.topic)
        pairs["WAIT"] = "false"
        queues = row.retry_queue_nums
        flag = names.SYSFLAG_UNIT_SUBSCRIPTION if optional_bool(command, "unitMode") is True else 0
        topics = [TopicConfig(names.retry_topic(group), queues, queues, sys_flag=flag)]
        queue_id = self._node.world.random.randrange(queues)
        given_up = record.reconsume_times >= self._most(command, row) or level < 0
        if given_up:
            topics.append(TopicConfig(names.dead_letter_topic(group), 1, 1))
            queue_id = 0
            pairs[delay.DELAY] = "0"
        else:
            pairs[delay.DELAY] = str(level if level > 0 else FIRST_RETRY_LEVEL + record.reconsume_times)
        pairs.setdefault("ORIGIN_MESSAGE_ID", offset_message_id(record.store_host, record.physical_offset))
        copy = inner.copy_of(record, topics[-1].name, queue_id, b"", record.reconsume_times + 1)
        copy = inner.with_delay(copy, pairs, self._delays.levels)
        return GivenBack(tuple(topics), copy, record.topic, origin, given_up)

    def _record(self, offset: int, ext: dict[str, str]) -> Record:
        topic, raw = ext.get("originTopic", ""), self._store.read(offset) if offset >= 0 else None
        try:
            if topic in self._store.compacted_topics:
                # It may say a position in the compaction log, where the reference takes it for one of the commit log.
                for each in (raw, *self._store.compacted_copies(topic, offset)):
                    record = None if each is None else decode_record(each)
                    if record is not None and record.topic == topic and _is_named(record, ext.get("originMsgId", "")):
                        return record
            elif raw is not None:
                return decode_record(raw)
        except RecordError:
            pass  # told below: to the sender it is no message either way
        raise CommandError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")

    def _most(self, command: Command, row: GroupConfig) -> int:
        wish = optional_int(command, "maxReconsumeTimes")
        if wish is not None and command.version >= RETRY_OVERRIDE_VERSION:
            return wish
        return row.retry_max_times


def topics_of(record: Record, group: str) -> list[str]:
    """Return the topics by which *group* may have read a message: one of a pop's retries by the topic it popped."""
    return [names.popped_topic(record.topic, group), *light_queues.names_in(record.properties)]


def _is_named(record: Record, message_id: str) -> bool:
    """Whether *record* is the message of which a consumer says the id."""
    return message_id in (
        record.properties.get("UNIQ_KEY"),
        offset_message_id(record.store_host, record.physical_offset),
    )
