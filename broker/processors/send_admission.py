"""Whether and how an unusual send is let in: checks of its topic, dead letters, delays, and every refusal.

Source: SendMessageProcessor.java, AbstractSendMessageProcessor.java.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from understudy.broker import delay
from understudy.broker.catalog import Catalog
from understudy.broker.delay_rules import DelayRules
from understudy.broker.locks import QueueLocks
from understudy.broker.logical.led_queues import LedQueues
from understudy.broker.node import Node
from understudy.broker.processors import send_header
from understudy.broker.statistics import BrokerStatistics
from understudy.broker.timer import request
from understudy.broker.topics import (
    BATCH_QUEUES,
    CLEANUP_POLICY,
    COMPACTION,
    MULTI_TAG,
    QUEUE_TYPE,
    TopicConfig,
    has_batch_queues,
)
from understudy.broker.transactions.half import is_half, to_half
from understudy.format import names
from understudy.format.properties import parse_properties
from understudy.format.record import FLAG_INNER_BATCH
from understudy.format.unique_id import UniqueIds
from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.fields import CommandError
from understudy.store.status import PutRejected, PutStatus

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
RETRY_OVERRIDE_VERSION = 121  # clients from V3_4_9 on may choose how often a message is retried
MULTI_TAGS_FLAG = 0x2

REJECTION_CODES = {
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
}


#: Counts a request: queue id, messages, their bytes.
Count = Callable[[int, int, int], None]


class TopicPlan:
    """What a send needs to know of its topic, worked out once per change of the topic."""

    __slots__ = (
        "batch_queues",
        "compaction",
        "count",
        "led",
        "ordinary",
        "queue_limit",
        "row",
        "sys_flag",
        "write_queues",
    )

    def __init__(self, row: TopicConfig, count: Count, led: LedQueues | None = None) -> None:
        self.row = row
        self.count = count
        self.led = led  # of a static topic
        self.queue_limit = row.queue_limit
        self.write_queues = row.write_queue_nums
        self.sys_flag = MULTI_TAGS_FLAG if row.filter_type == MULTI_TAG else 0
        retry = row.name.startswith(names.RETRY_PREFIX)
        self.compaction = row.attributes.get(CLEANUP_POLICY) == COMPACTION
        self.batch_queues = has_batch_queues(row.attributes)
        unusual = retry or row.order or self.compaction or self.batch_queues or led is not None
        self.ordinary = not (unusual or row.name == names.TIMER_TOPIC)


@attrs.frozen
class AdmissionParts:
    """What of a broker is needed to let sends in.

    Attributes:
        node: who it is, its settings and its world.
        catalog: topics and groups.
        locks: the locks.
        stats: counts.
        delays: which messages wait, and where.
    """

    node: Node
    catalog: Catalog
    locks: QueueLocks
    stats: BrokerStatistics
    delays: DelayRules


class Admission:
    """The door of one broker's sends.

    Attributes:
        closed: when set, every send is answered with it, whatever the role: the broker changes it.
        plans: what is known of topics that sends named, dropped when the topic changes.
    """

    def __init__(self, parts: AdmissionParts) -> None:
        self._parts = parts
        node = parts.node
        self._identity = node.identity
        self._config = node.options.broker
        self._store_config = node.options.store
        self._ids = UniqueIds.of_broker(node.identity.ip, node.world.random)
        self.plans: dict[str, TopicPlan] = {}
        self.closed: CommandError | None = None
        parts.catalog.topics.on_change.append(self._forget_plans)
        parts.catalog.mappings.on_change.append(self.plans.clear)

    @property
    def refusal(self) -> CommandError | None:
        """What every send is refused with now; ``None``: they are taken. On each of its codes clients try elsewhere."""
        if self.closed is not None or not self._identity.role.is_slave:
            return self.closed
        if self._config.enable_slave_acting_master:
            return CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now: this is a slave")
        return CommandError(
            ResponseCode.SYSTEM_BUSY,
            "[REJECTREQUEST]system busy, start flow control for a while: this is a slave",
        )

    def admit(self, ext: dict[str, str], topic: str) -> TopicPlan:
        """Check the topic of a send and make it if need be. Raises :class:`CommandError`."""
        config = self._config
        rows = self._parts.catalog.topics
        if not config.broker_permission & names.PERM_WRITE and rows.is_order(topic):
            raise self.refused(
                ResponseCode.NO_PERMISSION, f"the broker[{config.broker_ip1}] sending message is forbidden"
            )
        wrong = names.topic_name_error(topic)
        if wrong is not None:
            raise self.refused(ResponseCode.INVALID_PARAMETER, wrong)
        if topic in names.CLOSED_TOPICS:
            raise self.refused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
        row = rows.get(topic)
        if row is not None and topic not in rows.rows:
            # Differs because the reference numbers such messages apart from those that name the queue.
            remark = f"topic[{topic}] is a light message queue; send to a topic and name it in INNER_MULTI_DISPATCH"
            raise self.refused(ResponseCode.NO_PERMISSION, remark)
        if row is None:
            try:
                queues = int(ext["d"])
                template = ext["c"]
            except (KeyError, TypeError, ValueError):
                raise send_header.explain(ext) from None
            row = rows.create_on_send(topic, template, queues, ext.get("k") == "true", config.auto_create_topic_enable)
        if row is None:
            raise self.refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!{FAQ}")
        plan = self.plans.get(topic)
        if plan is None:
            mapping = self._parts.catalog.mappings.table.get(topic)
            led = None if mapping is None else LedQueues(mapping)
            plan = self.plans[topic] = TopicPlan(row, self._parts.stats.topic(topic).add, led)
        return plan

    def rewrite(
        self,
        command: Command,
        plan: TopicPlan,
        topic: str,
        queue_id: int,
        text: str,
        sys_flag: int,
        reconsume_times: int,
        now_ms: int,
    ) -> tuple[str, int, int, dict[str, str]]:
        """Apply everything that changes a message on its way in.

        Args:
            command: the send.
            plan: what is known of the topic that was asked for.
            topic: that was asked for.
            queue_id: that was asked for.
            text: the properties.
            sys_flag: of the message.
            reconsume_times: how often it was consumed in vain.
            now_ms: wall time.

        Returns:
            Topic and queue to store it in, its system flags and its properties.
        """
        config = self._config
        pairs = parse_properties(text)
        pairs.pop("POP_CK", None)
        pairs.pop("__CRC32#", None)
        pairs["MSG_REGION"] = config.region_id
        pairs["TRACE_ON"] = "true" if config.trace_on else "false"
        pairs["CLUSTER"] = config.broker_cluster_name
        if not pairs.get("UNIQ_KEY"):
            pairs["UNIQ_KEY"] = self._ids.next(now_ms)
        if topic.startswith(names.RETRY_PREFIX):
            topic, queue_id = self._dead_letter(command, topic, queue_id, pairs, reconsume_times, now_ms)
        if plan.compaction and not pairs.get("KEYS", "").strip():
            raise self.no_key()
        level = delay.level_of(pairs)
        if sys_flag & FLAG_INNER_BATCH or "INNER_NUM" in pairs:
            self.check_inner_batch(topic, sys_flag)
            if level > 0 or request.asks(pairs) or is_half(pairs, reconsume_times, level):
                raise self.refused(
                    ResponseCode.MESSAGE_ILLEGAL, "an inner batch can be neither delayed nor transactional"
                )
            return topic, queue_id, sys_flag, pairs
        half = is_half(pairs, reconsume_times, level)
        if half and config.reject_transaction_message:
            remark = f"the broker[{config.broker_ip1}] sending transaction message is forbidden"
            raise self.refused(ResponseCode.NO_PERMISSION, remark)
        if topic == names.TIMER_TOPIC:
            self._settle_kept(pairs)
        if half and level > 0:
            return *to_half(topic, queue_id, pairs, sys_flag), pairs
        if level <= 0:
            kept = dict(pairs) if half else pairs  # once it is committed, it is asked again
            try:
                target = request.redirect(topic, queue_id, kept, sys_flag, now_ms, self._parts.delays.timer_door)
            except request.TimerRefusedError as error:
                code = ResponseCode.MESSAGE_ILLEGAL if error.illegal else ResponseCode.SYSTEM_ERROR
                raise self.refused(code, str(error)) from None
            return (*to_half(topic, queue_id, pairs, sys_flag), pairs) if half else (*target, sys_flag, pairs)
        stored_topic, stored_queue = delay.redirect(topic, queue_id, pairs, sys_flag, self._parts.delays.levels)
        return stored_topic, stored_queue, sys_flag, pairs

    def no_key(self) -> CommandError:
        """Return the refusal of a message without a key by a topic of whose keys the last messages are kept."""
        return self.refused(ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")

    def refuse_later(self, topic: str) -> CommandError:
        """Return the refusal of a message for a static topic that would be stored in its queue at a later time.

        Differs because the reference stores it in the queue of today, which readers may have left by then.
        """
        remark = (
            f"static topic {topic} takes no delayed, timed or transactional messages: its queues may move meanwhile"
        )
        return self.refused(ResponseCode.MESSAGE_ILLEGAL, remark)

    def check_inner_batch(self, topic: str, sys_flag: int) -> None:
        """Refuse a message that says it is several where it would count as one, or the other way round.

        Args:
            topic: where it goes.
            sys_flag: of the message.

        Raises:
            CommandError: the refusal.
        """
        row = self._parts.catalog.topics.get(topic)
        if row is None or not has_batch_queues(row.attributes) or not sys_flag & FLAG_INNER_BATCH:
            raise self.refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"an inner batch has {FLAG_INNER_BATCH} in its sysFlag and INNER_NUM in its properties, and goes to a "
                f"topic with {QUEUE_TYPE}={BATCH_QUEUES}; this message to {topic} does not",
            )

    def _settle_kept(self, pairs: dict[str, str]) -> None:
        """Give a message for the timer topic itself a queue that is here; refuse one that says no place or no time.

        Slaves that act send such messages to hand on what they may not keep.
        """
        texts = pairs.get(delay.REAL_QUEUE, ""), pairs.get(delay.TIMER_OUT, "")
        if not all(text.isascii() and text.isdigit() and len(text) < 20 for text in texts):
            remark = f"{names.TIMER_TOPIC} takes whole numbers as {delay.REAL_QUEUE} and {delay.TIMER_OUT}"
            raise self.refused(
                ResponseCode.MESSAGE_ILLEGAL, f"{remark}; send to the topic itself, with a delivery time"
            )
        topic, rows = pairs.get(delay.REAL_TOPIC, ""), self._parts.catalog.topics
        row = rows.get(topic)
        if row is None and names.topic_name_error(topic) is None:
            row = rows.create_on_send(topic, names.DEFAULT_TOPIC, 8, False, self._config.auto_create_topic_enable)
        if row is None or row.name == names.TIMER_TOPIC:
            raise self.refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!{FAQ}")
        pairs[delay.REAL_QUEUE] = str(int(texts[0]) % max(row.write_queue_nums, 1))

    def _dead_letter(
        self, command: Command, topic: str, queue_id: int, pairs: dict[str, str], reconsume_times: int, now_ms: int
    ) -> tuple[str, int]:
        """Give a message that came back too often to the dead letter topic."""
        group = names.group_of_retry_topic(topic)
        row = self._parts.catalog.groups.get(group)
        if row is None:
            raise self.refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group}{FAQ}")
        most = row.retry_max_times
        wish = (command.ext or {}).get("l")
        if wish is not None and command.version >= RETRY_OVERRIDE_VERSION:
            try:
                most = int(wish)
            except ValueError:
                raise send_header.explain(command.ext) from None
        if reconsume_times <= most and not self._parts.locks.any_held(group, now_ms):
            return topic, queue_id
        target = names.dead_letter_topic(group)
        if self._parts.catalog.topics.ensure(target, 1, names.PERM_READ | names.PERM_WRITE) is None:
            raise self.refused(ResponseCode.SYSTEM_ERROR, f"topic[{target}] not exist")
        if delay.DELAY in pairs:
            pairs[delay.DELAY] = "-1"
        self._parts.stats.given_up(group, topic)
        return target, 0

    def _forget_plans(self, rows: tuple[TopicConfig, ...]) -> None:
        if not 0 < len(rows) <= len(self.plans):
            self.plans.clear()
            return
        for row in rows:
            self.plans.pop(row.name, None)

    def refuse_old(self, waited_ms: int) -> None:
        """Refuse a send that waited too long behind others of one receive, so that a stalled broker sheds its load.

        Called when the sends of the receive before waited too long as well: one pause of the machine is no overload.
        One-way sends are let through: nobody would learn of the refusal.

        Raises:
            CommandError: unless ``brokerFastFailureEnable`` is off.
        """
        if self._config.broker_fast_failure_enable:
            raise CommandError(
                ResponseCode.SYSTEM_BUSY,
                "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
                f"period in queue: {waited_ms}ms, limit: {self._config.wait_time_mills_in_send_queue}ms",
            )

    def unready(self, now_ms: int) -> CommandError:
        return self.refusal or self.refused(
            ResponseCode.SYSTEM_ERROR,
            f"broker unable to service, until {self._config.start_accept_send_request_time_stamp} (it is {now_ms} now)",
        )

    def refused(self, code: int, remark: str) -> CommandError:
        """Return a refusal with the two fields that clients read from every answer to a send."""
        trace = "true" if self._config.trace_on else "false"
        return CommandError(code, remark, {"TRACE_ON": trace, "MSG_REGION": self._config.region_id})

    def rejected(self, error: PutRejected) -> CommandError:
        """Return what the sender is told of a message the store refused."""
        code = REJECTION_CODES.get(error.status, ResponseCode.SYSTEM_ERROR)
        if error.special:
            remark = f"the message is illegal: {error.remark}"
        elif error.status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
            remark = (
                "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
                f"{self._store_config.max_message_size}B, msg properties length limit 32KB."
            )
        elif error.status is PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED:
            remark = (
                f"[{error.status.value}]broker config enableLmq and enableMultiDispatch, lmq consumeQueue num exceed "
                f"maxLmqConsumeQueueNum config num, default limit 2w. {error.remark}"
            )
        elif error.status is PutStatus.SERVICE_NOT_AVAILABLE:
            remark = f"service not available now: {error.remark}"
        elif error.status is PutStatus.OS_PAGE_CACHE_BUSY:
            remark = f"[PC_SYNCHRONIZED]broker busy, start flow control for a while: {error.remark}"
        else:
            remark = f"{error.status.value}: {error.remark}"
        self._parts.stats.put_failed += 1
        return self.refused(code, remark)
