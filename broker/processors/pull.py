"""Pulls (11, 361): read at once, or park until a message arrives.

Source: PullMessageProcessor.java, DefaultPullMessageResultHandler.java.
"""

from __future__ import annotations

import attrs

from understudy.broker.catalog import Catalog
from understudy.broker.clients import BROADCASTING
from understudy.broker.commit_bounds import commit_refusal
from understudy.broker.conditions import NotCompiledError
from understudy.broker.first_reads import ANSWER_MS
from understudy.broker.groups import GroupConfig
from understudy.broker.logical.pulls import LogicalPulls
from understudy.broker.node import Node
from understudy.broker.parked_pulls import ParkedPull, Wanted
from understudy.broker.processors.pull_broadcast import BroadcastPulls
from understudy.broker.processors.pull_subscriptions import (
    FORBIDDEN_BROKER,
    FORBIDDEN_GROUP,
    FORBIDDEN_TOPIC,
    Subscriptions,
    forbidden,
)
from understudy.broker.processors.pull_waits import PullWaits, explain
from understudy.broker.processors.send_admission import FAQ
from understudy.broker.property_filter import PropertyFilter
from understudy.broker.replicated.offsets import ReplicatedOffsets
from understudy.broker.statistics import BrokerStatistics
from understudy.format import names
from understudy.format.pull_flags import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, held_bytes
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer, failure
from understudy.remoting.fields import CommandError
from understudy.remoting.frame import Buffer, encode, framed, reply_head, success_format
from understudy.remoting.server import RemotingServer
from understudy.store.message_store import MessageStore
from understudy.store.status import GetStatus

PULL_MAX_BYTES = 128 << 20
"""The reference's cap of one answer; the store's own bounds are far below it."""

_MOVED = frozenset({GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_RESET})
_EMPTY = frozenset({GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE})
_RETRY = frozenset({GetStatus.MESSAGE_WAS_REMOVING, GetStatus.NO_MATCHED_MESSAGE})
_EXT = (
    b'"suggestWhichBrokerId":"%d","groupSysFlag":"%d","nextBeginOffset":"%d","maxOffset":"%d","minOffset":"%d",'
    b'"topicSysFlag":"%d"'
)
_FOUND = success_format(_EXT, b"FOUND")

_ISOLATED = b"this broker was away, readers wait until it is online again"
_ASKING = b"the master is asked where this group stands"


@attrs.frozen
class PullParts:
    """What of a broker is needed to answer pulls.

    Attributes:
        node: who it is, its settings and its world.
        store: the messages.
        catalog: topics and groups.
        offsets: where groups are; a slave notes what its master must be told.
        waits: what pulls may have to wait for, and those that do.
        stats: counts.
    """

    node: Node
    store: MessageStore
    catalog: Catalog
    offsets: ReplicatedOffsets
    waits: PullWaits
    stats: BrokerStatistics


class PullProcessor:
    """Handlers of the pull codes of one broker.

    Args:
        parts: of the broker.
        subscriptions: finds out what pulls want.
        broadcasts: follows broadcasting members.
        logical: answers for the queues of static topics.
    """

    def __init__(
        self, parts: PullParts, subscriptions: Subscriptions, broadcasts: BroadcastPulls, logical: LogicalPulls
    ) -> None:
        node, waits = parts.node, parts.waits
        self._config = node.options.broker
        self._store_config = node.options.store
        self._threads = node.world.threads
        self._clock = node.world.clock
        self._identity = node.identity
        self._store = parts.store
        self._stats = parts.stats
        self._topics, self._groups = parts.catalog.topics, parts.catalog.groups
        self._offsets, self._note_commit = parts.offsets.table, parts.offsets.note_commit
        self._waits, self._presence, self._first_reads = waits, waits.presence, waits.first_reads
        self._subscriptions = subscriptions
        self._consumers, self._conditions = subscriptions.consumers, subscriptions.conditions
        self._broadcasts = broadcasts
        self._mapped, self._logical = parts.catalog.mappings.table, logical

    def register(self, server: RemotingServer) -> None:
        """Answer the pull codes at *server*."""
        pull = self._conditions.beside(server, self._threads, self.pull)
        server.register(RequestCode.PULL_MESSAGE, pull)
        server.register(RequestCode.LITE_PULL_MESSAGE, pull)

    def pull(self, connection: Connection, command: Command) -> Answer:
        """Answer a pull with messages or the reason why there are none; park it when it may wait."""
        return self._pull(connection, command, True)

    def again(self, parked: ParkedPull) -> None:
        """Answer a pull that was parked, whatever there is now."""
        connection, command = parked.connection, parked.command
        answer: Buffer | list[Buffer] | None
        try:
            answer = self._again(parked)
        except NotCompiledError:  # its group has subscribed to another one
            answer = self._conditions.compiling(lambda: self._again(parked))
        except Exception as error:
            answer = encode(failure(connection, command, error))
        if answer is not None:
            connection.write(answer)

    def _again(self, parked: ParkedPull) -> list[Buffer] | None:
        stood = parked.stood
        return self._pull(parked.connection, parked.command, stood is not None, stood=stood, known=parked.wanted)

    def _pull(
        self,
        connection: Connection,
        command: Command,
        may_wait: bool,
        *,
        stood: int | None = None,
        known: Wanted = None,
        asked: Command | None = None,
    ) -> list[Buffer] | None:
        """Answer a pull, or park it, or *asked* in its place: the pull of a logical queue of which it reads a piece."""
        ext = command.ext
        try:
            group = ext["consumerGroup"]  # type: ignore[index]  # an absent header is explained below
            topic = ext["topic"]  # type: ignore[index]
            queue_id = int(ext["queueId"])  # type: ignore[index]
            offset = int(ext["queueOffset"])  # type: ignore[index]
            wanted = int(ext["maxMsgNums"])  # type: ignore[index]
            sys_flag = int(ext["sysFlag"])  # type: ignore[index]
        except (KeyError, TypeError, ValueError):
            raise explain(command) from None
        assert ext is not None
        if self._mapped and topic in self._mapped and ext.get("lo") != "false":
            return self._logical.pull(
                connection,
                command,
                lambda piece: self._pull(connection, piece, may_wait, stood=stood, known=known, asked=command),
            )
        config = self._config
        if not config.slave_read_enable and self._identity.role.is_slave:
            raise CommandError(
                ResponseCode.SYSTEM_BUSY,
                "[REJECTREQUEST]system busy, start flow control for a while: this slave serves no reads "
                "(slaveReadEnable=false)",
            )
        if not config.broker_permission & names.PERM_READ:
            raise forbidden(f"the broker[{config.broker_ip1}] pulling message is forbidden", FORBIDDEN_BROKER)
        if command.code == RequestCode.LITE_PULL_MESSAGE and not config.lite_pull_message_enable:
            raise forbidden(f"the broker[{config.broker_ip1}] for lite pull consumer is forbidden", FORBIDDEN_BROKER)
        row = self._groups.rows.get(group)
        if row is None:
            row = self._group(group)
        if not row.consume_enable:
            raise forbidden(f"subscription group no permission, {group}", FORBIDDEN_GROUP)
        topic_row = self._topics.rows.get(topic) or self._topics.get(topic)
        if topic_row is None:
            raise CommandError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please! {FAQ}", {})
        if not topic_row.perm & names.PERM_READ:
            raise forbidden(f"the topic[{topic}] pulling message is forbidden", FORBIDDEN_TOPIC)
        if not 0 <= queue_id < topic_row.read_queue_nums:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{topic_row.read_queue_nums}] "
                f"consumer:[/{connection.address}]",
                {},
            )
        if sys_flag & SUBSCRIPTION:
            filtered = self._subscriptions.of_header(ext, known)
        else:
            filtered = self._subscriptions.of_group(ext, group, topic, row, known)

        before_ms = self._clock.wall_ms()
        if before_ms > self._presence.readable_until_ms:
            # Differs because the reference gives out messages whose commit may reach nobody.
            if may_wait and sys_flag & COMMIT_OFFSET:
                self._commit(ext, group, topic, queue_id, self._store.max_queue_offset(topic, queue_id), stood)
            if may_wait and sys_flag & SUSPEND:
                self._waits.park(connection, asked or command, ext, topic, queue_id, filtered)
                return None
            low, high = self._store.min_queue_offset(topic, queue_id), self._store.max_queue_offset(topic, queue_id)
            answer = _EXT % (row.broker_id, row.sys_flag, offset, high, low, topic_row.sys_flag)
            return [reply_head(command.opaque or 0, ResponseCode.PULL_NOT_FOUND, answer, 0, _ISOLATED)]
        if self._first_reads.active and self._first_reads.must_wait(group, topic, queue_id, offset):
            if may_wait and stood is None:
                parked = ParkedPull(connection, asked or command, filtered, held_bytes(command))
                parked.stood = self._offsets.query(group, topic, queue_id)
                self._waits.keep(parked, (topic, queue_id), ANSWER_MS)
                return None
            answer = _EXT % (row.broker_id, row.sys_flag, offset, offset, 0, topic_row.sys_flag)
            return [reply_head(command.opaque or 0, ResponseCode.PULL_NOT_FOUND, answer, 0, _ASKING)]
        offsets = self._offsets
        pending = None
        if offsets.reset or offsets.doubts.active:
            pending = offsets.correction(group, topic, queue_id, offset)
        if pending is not None:
            low = self._store.min_queue_offset(topic, queue_id)
            high = self._store.max_queue_offset(topic, queue_id)
            answer = _EXT % (0, row.sys_flag, pending, high, low, topic_row.sys_flag)
            offsets.record_pull(group, topic, queue_id, pending)
            return [reply_head(command.opaque or 0, ResponseCode.PULL_OFFSET_MOVED, answer, 0, b"OFFSET_RESET")]

        info = self._consumers.groups.get(group)
        if (info is not None and info.message_model == BROADCASTING) or "requestSource" in ext:
            moved = self._broadcasts.follow(connection, ext, group, topic, queue_id, offset)
            if moved >= 0:
                low = self._store.min_queue_offset(topic, queue_id)
                high = self._store.max_queue_offset(topic, queue_id)
                answer = _EXT % (0, row.sys_flag, moved, high, low, topic_row.sys_flag)
                return [reply_head(command.opaque or 0, ResponseCode.PULL_OFFSET_MOVED, answer, 0, b"OFFSET_RESET")]

        if filtered is None:
            found = self._store.get(topic, queue_id, offset, wanted, PULL_MAX_BYTES)
        elif isinstance(filtered, PropertyFilter):
            passes, most = filtered.reading(), filtered.most_records
            bits = self._subscriptions.bits_of(group, topic, filtered)
            found = self._store.get(topic, queue_id, offset, wanted, PULL_MAX_BYTES, None, passes, most, bits)
        else:
            found = self._store.get(topic, queue_id, offset, wanted, PULL_MAX_BYTES, filtered.__contains__)
        self._stats.get_took(self._clock.wall_ms() - before_ms)
        status = found.status
        offsets.record_pull(group, topic, queue_id, found.next_begin_offset)
        if may_wait and sys_flag & COMMIT_OFFSET:
            self._commit(ext, group, topic, queue_id, found.max_offset, stood)
        suggested = row.broker_id
        if found.suggest_slave and config.slave_read_enable:
            suggested = row.which_broker_when_consume_slowly
        elif not config.slave_read_enable:
            suggested = 0
        if status is GetStatus.FOUND:
            answer = _FOUND % (
                suggested,
                row.sys_flag,
                found.next_begin_offset,
                found.max_offset,
                found.min_offset,
                topic_row.sys_flag,
                command.opaque or 0,
            )
            self._stats.group(group, topic).add(queue_id, found.count, found.size_bytes)
            self._stats.get_found += 1
            self._stats.transferred += found.count
            return [framed(answer, found.size_bytes), *found.parts]
        self._stats.get_missed += 1
        code = _code_of(status, offset)
        if code == ResponseCode.PULL_NOT_FOUND and may_wait and sys_flag & SUSPEND:
            self._waits.park(connection, asked or command, ext, topic, queue_id, filtered)
            return None
        if (
            code == ResponseCode.PULL_OFFSET_MOVED
            and self._identity.role.is_slave
            and not self._store_config.offset_check_in_slave
        ):
            if may_wait and sys_flag & SUSPEND:
                # The master knows better: this slave does not have it yet, or never had it, when it got the end of the
                # log only. Differs because the reference answers at once and the client, whose route may show no master
                # but this slave, asks for the same place again thousands of times a second.
                waits = self._waits
                waits.park(connection, asked or command, ext, topic, queue_id, filtered, waits.behind_ms)
                return None
            code, suggested = ResponseCode.PULL_RETRY_IMMEDIATELY, row.broker_id
        answer = _EXT % (
            suggested,
            row.sys_flag,
            found.next_begin_offset,
            found.max_offset,
            found.min_offset,
            topic_row.sys_flag,
        )
        return [reply_head(command.opaque or 0, code, answer, 0, status.value.encode())]

    def _commit(self, ext: dict[str, str], group: str, topic: str, queue_id: int, end: int, stood: int | None) -> None:
        try:
            offset = int(ext.get("commitOffset") or -1)
        except ValueError:
            return
        if stood is not None and self._offsets.query(group, topic, queue_id) != stood:
            return  # the group has committed again while this pull waited: that one is newer
        # Nearly always it is an offset of the queue as it is.
        if 0 <= offset <= end or commit_refusal(offset, end, is_slave=self._identity.role.is_slave) is None:
            offsets = self._offsets
            if not (offsets.reset or offsets.doubts.active):  # nearly always, and a call less
                offsets.commit(group, topic, queue_id, offset)
            elif not offsets.commit_unless_reset(group, topic, queue_id, offset):
                return
            if offsets.following:
                self._note_commit(group, topic, queue_id, offset)

    def _group(self, group: str) -> GroupConfig:
        row = self._groups.get(group)
        if row is None:
            raise CommandError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group}] does not exist, {FAQ}", {}
            )
        return row


def _code_of(status: GetStatus, offset: int) -> int:
    if status in _RETRY:
        return ResponseCode.PULL_RETRY_IMMEDIATELY
    if status in _MOVED or (status in _EMPTY and offset != 0):
        return ResponseCode.PULL_OFFSET_MOVED
    return ResponseCode.PULL_NOT_FOUND
