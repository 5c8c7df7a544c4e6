"""Who may pop from which queue of one broker, and acknowledge to it, and when it takes neither.

Source: PopMessageProcessor.java, AckMessageProcessor.java.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from understudy.broker.catalog import Catalog
from understudy.broker.presence import Presence
from understudy.broker.processors.send_admission import FAQ
from understudy.broker.topics import BATCH_QUEUES, QUEUE_TYPE, TopicConfig, has_batch_queues
from understudy.remoting.codes import ResponseCode
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError


@attrs.frozen
class PopAdmission:
    """The door of one broker's pops.

    Attributes:
        catalog: topics and groups.
        presence: a broker that was away hands out nothing, and takes nothing.
        serves: tells whether messages are handed out here in its role, and acknowledgements taken.
    """

    catalog: Catalog
    presence: Presence
    serves: Callable[[], bool]

    def check_reader(self, group: str, topic: TopicConfig, ext: dict[str, str]) -> None:
        """Refuse a group that may not consume, a topic that cannot be popped, and all where nothing is handed out.

        Args:
            group: that pops.
            topic: that it pops from.
            ext: header fields of a refusal.

        Raises:
            CommandError: the refusal.
        """
        if self.presence.unreadable:
            raise CommandError(
                ResponseCode.POLLING_TIMEOUT, "this broker was away and is not online yet: pop again", ext
            )
        if not self.serves():
            raise CommandError(
                ResponseCode.SYSTEM_BUSY,
                "[REJECTREQUEST]system busy, start flow control for a while: this broker hands out no messages "
                "now, the one that acts in its group does",
                ext,
            )
        row = self.catalog.groups.get(group)
        if row is None:
            remark = f"subscription group [{group}] does not exist, {FAQ}"
            raise CommandError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark, ext)
        if not row.consume_enable:
            raise CommandError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}", ext)
        if has_batch_queues(topic.attributes):
            # Differs because a batch is one message to a pop: no client unpacks it, and none could give one of it back.
            remark = f"topic[{topic.name}] has batch queues ({QUEUE_TYPE}={BATCH_QUEUES}): pull from it, do not pop"
            raise CommandError(ResponseCode.NO_PERMISSION, remark, ext)

    def check_queue(self, connection: Connection, topic: str, queue_id: int) -> None:
        """Refuse a queue that does not exist, at a broker that takes nothing now. Raises :class:`CommandError`."""
        if self.presence.unreadable:
            raise CommandError(
                ResponseCode.SYSTEM_BUSY,
                "[REJECTREQUEST]system busy, start flow control for a while: this broker was away and is not online",
            )
        if not self.serves():
            raise CommandError(
                ResponseCode.SYSTEM_BUSY,
                "[REJECTREQUEST]system busy, start flow control for a while: this broker takes nothing now, the "
                "one that acts in its group does",
            )
        row = self.catalog.topics.rows.get(topic) or self.catalog.topics.get(topic)
        if row is None:
            raise CommandError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please! {FAQ}")
        if not 0 <= queue_id < row.read_queue_nums:
            raise CommandError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{row.read_queue_nums}] "
                f"consumer:[/{connection.address}]",
            )
