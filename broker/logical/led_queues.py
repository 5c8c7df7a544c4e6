"""Which logical queues of a static topic a group takes messages for, and where it stores them.

Source: TopicQueueMappingManager.java (rewriteRequestForStaticTopic), SendMessageProcessor.java.
"""

from __future__ import annotations

from random import Random

from understudy.format.static_topics import TopicMapping
from understudy.remoting.codes import ResponseCode
from understudy.remoting.fields import CommandError


class LedQueues:
    """The logical queues that one group leads.

    Args:
        mapping: the topic as the group knows it.
    """

    def __init__(self, mapping: TopicMapping) -> None:
        self._mapping = mapping
        self._led = mapping.led
        self._by_queue = {item.queue_id: (global_id, item) for global_id, item in self._led.items()}

    def queue_of(self, global_id: int, random: Random) -> int:
        """Return the id of the physical queue that takes messages for *global_id*, for a negative one any of the led.

        Raises:
            CommandError: another group leads it; clients look for that one then.
        """
        if global_id < 0 and self._led:
            global_id = random.choice(list(self._led))
        item = self._led.get(global_id)
        if item is None:
            raise self.not_led(global_id)
        return item.queue_id

    def leads(self, queue_id: int) -> bool:
        """Return whether physical queue *queue_id* takes messages."""
        return queue_id in self._by_queue

    def told(self, queue_id: int, offset: int) -> tuple[int, int]:
        """Return global id and logical offset of a message at *offset* of a physical queue; -1 while undecided."""
        global_id, item = self._by_queue[queue_id]
        return global_id, item.to_logic(offset)

    def not_led(self, global_id: int) -> CommandError:
        """Return the refusal of a message for *global_id*."""
        remark = f"{self._mapping.topic}-{global_id} does not exit in request process of current broker"
        return CommandError(ResponseCode.NOT_LEADER_FOR_QUEUE, f"{remark} {self._mapping.broker_name}", {})
