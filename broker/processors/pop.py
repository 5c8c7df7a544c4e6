"""Pops (200050): hand out messages for a time, or park until one arrives.

Source: PopMessageProcessor.java.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from understudy.broker import filters
from understudy.broker.conditions import Conditions, UnsupportedFilterError
from understudy.broker.node import Node
from understudy.broker.parked_pulls import Wanted
from understudy.broker.pop import choice
from understudy.broker.pop.choice import Queue
from understudy.broker.pop.order import next_record
from understudy.broker.pop.revive_log import MOST_MESSAGES
from understudy.broker.pop.state import PopState
from understudy.broker.pop.taking import Taken, Taker, Taking, Wish, as_asked, check_point_of
from understudy.broker.pop.waiting import EARLY_MS, PopHold, WaitingPop, wait_ends_at
from understudy.broker.processors.pop_admission import PopAdmission
from understudy.broker.processors.send_admission import FAQ
from understudy.broker.sql_filter.lexer import SqlError
from understudy.broker.topics import TopicConfig
from understudy.format import names
from understudy.format.receipts import ORDER_QUEUE, count_info, offsets_info, retry_mark, start_info
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, held_bytes
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer, failure
from understudy.remoting.fields import CommandError, optional, optional_bool, required, required_int
from understudy.remoting.frame import Buffer, encode, reply_head
from understudy.remoting.server import RemotingServer
from understudy.runtime.log import get_logger
from understudy.store.status import PutRejected

log = get_logger("broker.pop")

FROM_MAX = 1
"""``initMode``: a new group begins with the newest message; any other value is the oldest one."""
LATE_MS = 500
"""A request that was under way for this much longer than it wanted to wait is not served: nobody waits for it."""
NOTHING = {"invisibleTime": "0", "popTime": "0", "restNum": "0", "reviveQid": "0"}
"""Header fields of a refusal."""
REFUSED_MS = 1000
"""When a pop that waits is tried again whose check point could not be written."""
KIND = "pop"


@attrs.frozen
class PopParts:
    """What of a broker is needed for pops.

    Attributes:
        node: who it is, its settings and its world.
        admission: who may pop what.
        conditions: subscriptions that are no set of tags.
        taker: reads queues.
        state: where it is noted what went out.
        hold: pops that wait.
    """

    node: Node
    admission: PopAdmission
    conditions: Conditions
    taker: Taker
    state: PopState
    hold: PopHold


class PopProcessor:
    """Handler of POP_MESSAGE of one broker."""

    def __init__(self, parts: PopParts) -> None:
        node, state = parts.node, parts.state
        self._config = node.options.broker
        self._store_config = node.options.store
        self._identity = node.identity
        self._world, self._clock = node.world, parts.state.clock
        self._random = node.world.random
        self._admission = parts.admission
        self._topics = parts.admission.catalog.topics
        self._conditions = parts.conditions
        self._taker = parts.taker
        self._hold = parts.hold
        self._offsets, self._orders, self._stats = state.offsets, state.orders, state.stats
        self._log, self._moving = state.log, state.moving

    def register(self, server: RemotingServer) -> None:
        """Answer the code at *server*."""
        pop = self._conditions.beside(server, self._world.threads, self.pop)
        server.register(RequestCode.POP_MESSAGE, pop)

    def pop(self, connection: Connection, command: Command) -> Answer:
        """Answer with messages, or park the pop when it may wait."""
        return self._pop(connection, command, None)

    def again(self, waiting: WaitingPop) -> None:
        """Answer a pop that waited, or let it wait on."""
        connection, command = waiting.connection, waiting.command
        answer: Buffer | list[Buffer] | None
        try:
            answer = self._conditions.compiling(lambda: self._pop(connection, command, waiting))
        except Exception as error:
            answer = encode(failure(connection, command, error))
        if answer is not None:
            connection.write(answer)

    def _pop(self, connection: Connection, command: Command, waited: WaitingPop | None) -> list[Buffer] | None:
        now_ms = self._clock.wall_ms()
        wish, row, ends_at = self._read(connection, command, waited)
        queues = self._queues(wish, row)
        revive_queue = ORDER_QUEUE if wish.in_order else self._log.next_queue()
        taking = self._taker.take(wish, queues)
        noted = self._note(wish, taking, now_ms, revive_queue)
        if noted:
            if taking.rest > 0:
                self._hold.wake(wish.topic, wish.group, wish.queue_id, KIND)
            return self._answer(command, wish, noted, taking.rest, now_ms, revive_queue)
        return self._nothing(connection, command, wish, taking, now_ms, revive_queue, ends_at)

    # --- reading the request -----------------------------------------------------------------------------------

    def _read(
        self, connection: Connection, command: Command, waited: WaitingPop | None
    ) -> tuple[Wish, TopicConfig, float]:
        """Return what is asked for, the topic, and until when it may wait (monotonic seconds).

        Raises:
            CommandError: it is refused.
        """
        config, clock = self._config, self._world.clock
        group, topic = required(command, "consumerGroup"), required(command, "topic")
        queue_id, most = required_int(command, "queueId"), required_int(command, "maxMsgNums")
        invisible_ms = required_int(command, "invisibleTime")
        ends_at = wait_ends_at(command, clock) if waited is None else waited.ends_at
        init_mode = required_int(command, "initMode")
        if (clock.monotonic() - ends_at) * 1000 > LATE_MS:
            raise _refused(
                ResponseCode.POLLING_TIMEOUT, f"the broker[{config.broker_ip1}] pop message is timeout too much"
            )
        if not config.broker_permission & names.PERM_READ:
            raise _refused(ResponseCode.NO_PERMISSION, f"the broker[{config.broker_ip1}] pop message is forbidden")
        if most > MOST_MESSAGES:
            remark = f"the broker[{config.broker_ip1}] pop message's num is greater than {MOST_MESSAGES}"
            raise _refused(ResponseCode.INVALID_PARAMETER, remark)
        if not self._store_config.timer_wheel_enable:
            remark = f"the broker[{config.broker_ip1}] pop message is forbidden because timerWheelEnable is false"
            raise _refused(ResponseCode.SYSTEM_ERROR, remark)
        row = self._topics.rows.get(topic) or self._topics.get(topic)
        if row is None:
            raise _refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please! {FAQ}")
        if not row.perm & names.PERM_READ:
            raise _refused(ResponseCode.NO_PERMISSION, f"the topic[{topic}] peeking message is forbidden")
        if queue_id >= row.read_queue_nums:
            raise _refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{row.read_queue_nums}] "
                f"consumer:[/{connection.address}]",
            )
        self._admission.check_reader(group, row, NOTHING)
        limit_ms = self._store_config.timer_max_delay_sec * 1000
        if most < 1 or not 0 < invisible_ms <= limit_ms:
            remark = f"maxMsgNums must be 1 to {MOST_MESSAGES} and invisibleTime 1 to {limit_ms} ms"
            raise _refused(ResponseCode.INVALID_PARAMETER, f"{remark}, not {most} and {invisible_ms}")
        wish = Wish(
            group,
            topic,
            max(queue_id, -1),
            most,
            invisible_ms,
            init_mode != FROM_MAX,
            _wanted(command, self._conditions, None if waited is None else waited.wanted),
            bool(optional_bool(command, "order")),
            optional(command, "attemptId"),
        )
        return wish, row, ends_at

    def _queues(self, wish: Wish, row: TopicConfig) -> list[Queue]:
        config = self._config
        draw = self._random.randrange(choice.DICE)
        retry: list[Queue] = []
        if not wish.in_order:
            topic = choice.retry_topic_to_read(
                wish.group,
                wish.topic,
                draw,
                second_form=config.enable_retry_topic_v2,
                first_form_too=config.retrieve_message_from_pop_retry_topic_v1,
            )
            retry_row = self._topics.rows.get(topic)
            if retry_row is not None:
                retry = choice.queues_of(topic, retry_row.read_queue_nums, draw)
        return choice.queues_to_read(
            wish.topic,
            wish.queue_id,
            row.read_queue_nums,
            retry,
            draw,
            retry_percent=config.pop_from_retry_probability,
            in_order=wish.in_order,
        )

    # --- taking note -------------------------------------------------------------------------------------------

    def _note(self, wish: Wish, taking: Taking, now_ms: int, revive_queue: int) -> list[Taken]:
        """Take note of what was handed out, then move offsets; return the queues for which that was possible."""
        noted = list[Taken]()
        for each in taking.taken:
            if each.offsets:
                if wish.in_order:
                    self._note_order(wish, each, now_ms)
                else:
                    point = check_point_of(wish, each, now_ms, self._identity.name)
                    try:
                        self._moving.popped(point, revive_queue, each.next)
                    except PutRejected as error:
                        refused = "check point refused, nothing is handed out"
                        self._world.tell(log.warning, refused, topic=each.queue.topic, why=error)
                        continue
                noted.append(each)
                count = len(each.offsets)
                self._stats.group(wish.group, each.queue.topic).add(each.queue.queue_id, count, each.size_bytes)
            else:
                self._moving.passed(wish.group, each.queue.topic, each.queue.queue_id, each.next)
        return noted

    def _note_order(self, wish: Wish, taken: Taken, now_ms: int) -> None:
        queue = taken.queue
        before = self._orders.get(queue.topic, wish.group, queue.queue_id)
        record = next_record(before, wish.attempt_id, now_ms, wish.invisible_ms, taken.offsets, now_ms)
        self._orders.put(queue.topic, wish.group, queue.queue_id, record)
        self._offsets.commit(wish.group, queue.topic, queue.queue_id, taken.start)
        # Acknowledgements count for the newest pop only, and that one is of messages this log has.
        self._offsets.doubts.believe(f"{queue.topic}@{wish.group}", queue.queue_id)

    # --- answering ---------------------------------------------------------------------------------------------

    def _answer(
        self, command: Command, wish: Wish, noted: Sequence[Taken], rest: int, now_ms: int, revive_queue: int
    ) -> list[Buffer]:
        starts, offsets, counts = list[str](), list[str](), list[str]()
        body = list[Buffer]()
        size = messages = 0
        for each in noted:
            queue, mark = each.queue, retry_mark(each.queue.topic)
            starts.append(start_info(mark, queue.queue_id, each.start))
            offsets.append(offsets_info(mark, queue.queue_id, each.offsets))
            if wish.in_order:
                record = self._orders.get(queue.topic, wish.group, queue.queue_id)
                assert record is not None
                counts += count_info(mark, queue.queue_id, dict(record.counts), record.least_count)
            if queue.topic != wish.topic and not self._config.pop_response_return_actual_retry_topic:
                each = as_asked(wish, each, now_ms, revive_queue, self._identity.name)
            body += each.parts
            size += each.size_bytes
            messages += len(each.offsets)
        self._stats.get_found += 1
        self._stats.transferred += messages
        ext = _fields(wish, now_ms, revive_queue, rest, ";".join(starts), ";".join(offsets), ";".join(counts))
        return [reply_head(command.opaque or 0, ResponseCode.SUCCESS, ext, size, b"FOUND"), *body]

    def _nothing(
        self,
        connection: Connection,
        command: Command,
        wish: Wish,
        taking: Taking,
        now_ms: int,
        revive_queue: int,
        ends_at: float,
    ) -> list[Buffer] | None:
        """Park the pop, or tell that there is nothing: what *taking* found could not be noted."""
        code = ResponseCode.POLLING_TIMEOUT
        self._stats.get_missed += 1
        wait_ms = round((ends_at - self._world.clock.monotonic()) * 1000) - EARLY_MS
        if wait_ms > 0:
            if wish.in_order and self._config.enable_notify_after_pop_order_lock_release:
                wait_ms = min(wait_ms, self._orders.opens_in(wish.topic, wish.group, wish.queue_id, wait_ms))
            if taking.found:
                wait_ms = min(wait_ms, REFUSED_MS)
            waiting = WaitingPop(
                connection,
                command,
                wish.wanted,
                wish.topic,
                wish.group,
                wish.queue_id,
                KIND,
                ends_at,
                held_bytes(command),
            )
            if not self._hold.full(waiting):
                # Nothing can arrive between the read above and here: neither yields.
                self._hold.wait(waiting, wait_ms)
                if taking.rest > 0 and taking.passed:  # what was read was not wanted, and more follows
                    self._hold.wake(wish.topic, wish.group, wish.queue_id, KIND)
                return None
            code = ResponseCode.POLLING_FULL
        ext = _fields(wish, now_ms, revive_queue, taking.rest, "", "", "")
        return [reply_head(command.opaque or 0, code, ext, 0, b"NO_MESSAGE_IN_QUEUE")]


def _fields(wish: Wish, pop_ms: int, revive_queue: int, rest: int, starts: str, offsets: str, counts: str) -> bytes:
    """Return the header fields of an answer; none of the texts needs escaping."""
    in_order = f'"orderCountInfo":"{counts}",' if wish.in_order else ""
    return (
        f'"invisibleTime":"{wish.invisible_ms}","startOffsetInfo":"{starts}","restNum":"{rest}",{in_order}'
        f'"popTime":"{pop_ms}","reviveQid":"{revive_queue}","msgOffsetInfo":"{offsets}"'
    ).encode()


def _wanted(command: Command, conditions: Conditions, known: Wanted) -> Wanted:
    kind, expression = optional(command, "expType"), optional(command, "exp")
    if not expression:
        return None
    try:
        if filters.is_tag_type(kind):
            return filters.tag_codes(expression)
        return conditions.get(str(kind), expression, known)
    except (filters.SubscriptionError, SqlError, UnsupportedFilterError) as error:
        remark = f"parse the consumer's subscription failed: {error}"
        raise _refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None


def _refused(code: ResponseCode, remark: str) -> CommandError:
    return CommandError(code, remark, NOTHING)
