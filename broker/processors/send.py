"""Sends of single messages (10, 310); batches (320) go on in :mod:`~understudy.broker.processors.send_batches`.

The usual send of a known topic runs straight through :meth:`SendProcessor.send`: a few dict look-ups, a few searches in
the properties text, one append, one template. Whatever is unusual (unknown topic, retry topic, delay, transaction,
timer, properties that must be rewritten) leaves that path early.

Source: SendMessageProcessor.java, AbstractSendMessageProcessor.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from understudy.broker import delay
from understudy.broker.identity import host_bytes
from understudy.broker.node import Node
from understudy.broker.processors import send_header
from understudy.broker.processors.send_admission import Admission, Count
from understudy.broker.processors.send_answers import AnswerForms, MessageIds, with_recall_handle
from understudy.broker.processors.send_batches import SendBatches
from understudy.broker.processors.send_properties import KEYS, UNIQUE, CommonProperties, describe
from understudy.broker.processors.stored_answer import StoredAnswers
from understudy.broker.statistics import BrokerStatistics
from understudy.broker.topic_counters import DELAYED
from understudy.broker.transactions.service import Transactions
from understudy.format import json_dialect, names
from understudy.format.properties import format_properties
from understudy.format.record import FLAG_INNER_BATCH, Record
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import ONEWAY_BIT, Command
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer
from understudy.remoting.fields import CommandError
from understudy.remoting.frame import framed
from understudy.remoting.server import RemotingServer
from understudy.store.message_store import MessageStore
from understudy.store.status import Appended, PutRejected

_LONG_MIN, _LONG_LIMIT = -(1 << 63), 1 << 63
_SMALL = send_header.SMALL
_LATER = frozenset({names.SCHEDULE_TOPIC, names.TIMER_TOPIC})


@attrs.frozen
class SendParts:
    """What of a broker is needed to take sends.

    Attributes:
        node: who it is, its settings and its world.
        store: the messages.
        stats: counts.
        stored: sends that wait for the disk or for copies.
        transactions: count and remember half messages.
    """

    node: Node
    store: MessageStore
    stats: BrokerStatistics
    stored: StoredAnswers
    transactions: Transactions


class SendProcessor:
    """Handlers of the send codes of one broker.

    Attributes:
        admission: decides about everything unusual; its ``refusal`` closes the broker for sends.
        message_ids, forms: what answers say.
        waits: whether sends of this receive wait for the disk or for copies.
    """

    def __init__(self, parts: SendParts, admission: Admission) -> None:
        self._parts = parts
        node, stored = parts.node, parts.stored
        self._config = node.options.broker
        self._store = parts.store
        self._clock = node.world.clock
        self._random = node.world.random
        self.admission = admission
        self._plans = self.admission.plans
        self._identity = node.identity
        self._acknowledgements = stored.acknowledgements
        self._replication = stored.replication
        self._flushes = stored.flushes
        self._copies = self.waits = False  # as the role says when a receive begins
        self.message_ids = MessageIds(host_bytes(node.identity.ip, node.identity.port))
        self.forms = AnswerForms(self._config, self.message_ids)
        self._common = CommonProperties()
        self._received_ms = 0  # of the receive that is in work; 0 between receives
        self._stored: list[tuple[Count, int, int, int]] = []
        self._stalled = self._was_stalled = False
        self._copies_needed: int | None = 1
        self._batches = SendBatches(parts, admission, self)

    def register(self, server: RemotingServer) -> None:
        """Answer the send codes at *server*."""
        self._batches.register(server)
        server.register(RequestCode.SEND_MESSAGE_V2, self.send)
        server.register(RequestCode.SEND_BATCH_MESSAGE, self.send)
        server.register(RequestCode.SEND_MESSAGE, self.send_long)

    def send_long(self, connection: Connection, command: Command) -> Answer:
        """Answer code 10, whose header spells its fields out."""
        command.ext = send_header.to_letters(command.ext)
        return self.send(connection, command)

    def send(self, connection: Connection, command: Command) -> Answer:
        """Store one message or batch and answer, or take a place among those that wait for the flush."""
        ext, body = command.ext, command.body
        if ext is None:
            raise send_header.explain(ext)
        try:
            topic, born_ms = ext["b"], int(ext["g"])
            queue_id, sys_flag, flag = _SMALL[ext["e"]], _SMALL[ext["f"]], _SMALL[ext["h"]]
            reconsume_times = _SMALL[ext.get("j") or "0"]
        except (KeyError, TypeError, ValueError):
            topic, queue_id, sys_flag, born_ms, flag, reconsume_times = send_header.numbers(ext)
            if sys_flag & FLAG_INNER_BATCH:
                self.admission.check_inner_batch(topic, sys_flag)
        if not _LONG_MIN <= born_ms < _LONG_LIMIT:
            raise send_header.explain(ext)
        properties = ext.get("i") or ""
        if not body:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "the message has no body; send at least one byte")
        now_ms = self._clock.wall_ms()
        if not self._received_ms:
            if self.admission.refusal is not None or self._config.start_accept_send_request_time_stamp > now_ms:
                raise self.admission.unready(now_ms)
            self.begin_receive(now_ms)
        elif now_ms - self._received_ms > self._config.wait_time_mills_in_send_queue:
            self._stalled = True
            if self._was_stalled and not command.flag & ONEWAY_BIT:
                self.admission.refuse_old(now_ms - self._received_ms)
        plan = self._plans.get(topic)
        if plan is None or not plan.ordinary:
            plan = self.admission.admit(ext, topic)
            if plan.led is not None:
                queue_id = plan.led.queue_of(queue_id, self._random)
        if queue_id >= plan.queue_limit:
            raise self.admission.refused(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, {plan.row.describe()} Producer: {connection.address}",
            )
        if queue_id < 0:
            if plan.write_queues <= 0:
                raise self.admission.refused(
                    ResponseCode.INVALID_PARAMETER, f"topic[{topic}] has no write queues; give it some with updateTopic"
                )
            queue_id = self._random.randrange(plan.write_queues)
        sys_flag |= plan.sys_flag
        waits = self.waits and not command.flag & ONEWAY_BIT
        if waits and self._acknowledgements.full:
            raise self.admission.refused(
                ResponseCode.SYSTEM_BUSY,
                "[OVERLOAD]system busy, start flow control for a while: too many sends wait for the disk or for copies",
            )
        copies = self.copies_of(properties) if self._copies else 1
        born_host: Any = connection.state.get("born_host")
        if born_host is None:
            born_host = connection.state["born_host"] = host_bytes(*connection.peer)
        if ext.get("m") == "true":
            return self._batches.send(
                plan,
                connection,
                command,
                queue_id,
                properties,
                born_ms,
                born_host,
                sys_flag,
                reconsume_times,
                now_ms,
                copies,
            )
        if properties and properties[-1] != "\x02":
            properties += "\x02"
        common = keys = half = None
        at = properties.find(UNIQUE)
        end = properties.find("\x02", at)
        if end > at + 9 and at >= 0 and (at == 0 or properties[at - 1] == "\x02") and plan.ordinary:
            rest = properties[:at] + properties[end + 1 :]
            if KEYS in rest:
                keys_at = rest.find(KEYS)
                if keys_at == 0 or rest[keys_at - 1] == "\x02":
                    keys_end = rest.find("\x02", keys_at)
                    keys = rest[keys_at + 5 : keys_end] or None
                    rest = rest[:keys_at] + rest[keys_end + 1 :]
            common = self._common.look_up(rest)
        forms = self.forms
        stored_topic, stored_queue, count, layout = topic, queue_id, plan.count, forms.single
        if common is not None:
            unique = properties[at + 9 : end]
            properties += forms.tail
        else:
            stored_topic, stored_queue, sys_flag, pairs = self.admission.rewrite(
                command, plan, topic, queue_id, properties, sys_flag, reconsume_times, now_ms
            )
            if plan.led is not None and stored_topic != topic:
                raise self.admission.refuse_later(topic)
            properties = format_properties(pairs)
            common, keys, unique = describe(pairs), pairs.get("KEYS"), pairs["UNIQ_KEY"]
            if stored_topic == names.HALF_TOPIC:
                half, count = pairs, self._parts.transactions.count_of(topic)
                before = self._parts.transactions.taken_before(pairs, born_ms)
                if before is not None:
                    return self._answer_before(before, layout, connection, command, queue_id, pairs, copies)
            elif stored_topic in _LATER and stored_topic != topic:
                count = self._parts.stats.topic(stored_topic).of(DELAYED)
            if stored_topic == names.TIMER_TOPIC != topic:
                layout = with_recall_handle(layout, topic, self._identity.name, int(pairs[delay.TIMER_OUT]), unique)
        tags, tags_code, wants_wait, type_ = common
        if type_ and stored_topic == topic:
            count = self._parts.stats.topic(topic).of(type_)
        try:
            unique_key = unique.encode()
            physical, size, queue_offset = self._store.append(
                stored_topic,
                stored_queue,
                body,
                properties.encode(),
                born_ms,
                born_host,
                flag=flag,
                sys_flag=sys_flag,
                reconsume_times=reconsume_times,
                tags_code=tags_code,
                tags=tags,
                keys=keys.encode() if keys else None,
                uniq_key=unique_key or None,
                now_ms=now_ms,
            )
        except PutRejected as error:
            raise self.admission.rejected(error) from None
        except UnicodeEncodeError:
            raise self.admission.refused(
                ResponseCode.MESSAGE_ILLEGAL, "the properties are not valid Unicode text"
            ) from None
        self._stored.append((count, queue_id, 1, size))
        if half is not None:
            record = Record(
                stored_topic,
                stored_queue,
                queue_offset,
                physical,
                bytes(body),
                properties,
                flag,
                sys_flag,
                born_ms,
                born_host,
                now_ms,
                reconsume_times=reconsume_times,
                size_bytes=size,
            )
            self._parts.transactions.note_stored(record, half)
        if command.flag & ONEWAY_BIT:
            return None
        if plan.led is not None:
            queue_id, queue_offset = plan.led.told(queue_id, queue_offset)
        answer = framed(
            layout
            % (
                queue_id,
                unique_key if unique.isalnum() else json_dialect.dumps(unique)[1:-1],
                physical,
                queue_offset,
                command.opaque or 0,
            )
        )
        if waits and wants_wait:
            return self.park(physical + size, connection, answer, copies)
        return answer

    def _answer_before(
        self,
        before: Appended,
        layout: bytes,
        connection: Connection,
        command: Command,
        queue_id: int,
        pairs: Mapping[str, str],
        copies: int,
    ) -> Answer:
        """Answer a message that was stored *before* as if it were now."""
        if command.flag & ONEWAY_BIT:
            return None
        unique = json_dialect.dumps(pairs["UNIQ_KEY"])[1:-1]
        answer = framed(layout % (queue_id, unique, before.physical_offset, before.queue_offset, command.opaque or 0))
        if self.waits:
            return self.park(before.physical_offset + before.size_bytes, connection, answer, copies)
        return answer

    def begin_receive(self, now_ms: int) -> None:
        """Take note of the first send of a receive; nothing else happens until its last one, no setting changes."""
        self._received_ms = now_ms
        forms = self.forms
        if forms.region is not self._config.region_id or forms.trace is not self._config.trace_on:
            forms.renew()
        self._stalled, self._was_stalled = False, self._stalled
        self._copies = self._identity.role.waits_for_copies
        self.waits = self._copies or self._flushes
        if self._copies:
            self._copies_needed = self._replication.copies_needed()

    def count(self, count: Count, queue_id: int, messages: int, size_bytes: int) -> None:
        """Have *messages* of this receive counted by *count* after its answers.

        Args:
            count: is called with the rest.
            queue_id: of the messages.
            messages: how many.
            size_bytes: of their records together.
        """
        self._stored.append((count, queue_id, messages, size_bytes))

    def end_receive(self) -> None:
        """End a receive, after its answers: do for its sends what nobody waits for."""
        received_ms, self._received_ms = self._received_ms, 0
        if self._stored:
            stored, self._stored = self._stored, []
            for count, queue_id, messages, size_bytes in stored:
                count(queue_id, messages, size_bytes)
            self._parts.stats.put_took(self._clock.wall_ms() - received_ms, len(stored))
            self._store.enter_keys()

    # --- waiting -----------------------------------------------------------------------------------------------

    def copies_of(self, properties: str) -> int:
        """Return how many copies a send needs. Raises :class:`CommandError` when too few replicas are in sync."""
        if not self._copies:
            return 1
        if "WAIT\x01false" in properties and "\x02WAIT\x01false\x02" in f"\x02{properties}\x02":
            return 1
        if self._copies_needed is None:
            raise self.admission.refused(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
        return self._copies_needed

    def park(self, offset: int, connection: Connection, answer: bytes, copies: int) -> Answer:
        """Let a stored send wait until it is safe; answer at once when it is already.

        Args:
            offset: byte of the log behind the record.
            connection: that waits for the answer.
            answer: encoded.
            copies: how many replicas must have it, the master included.
        """
        if copies <= 1 and not self._flushes:
            return answer
        self._acknowledgements.add(offset, connection, answer, copies)
        self._replication.log_grew()
        return None
