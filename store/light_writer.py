"""Append messages that name light queues: they get their queue offsets there, and stand in all of these queues.

Whatever is stored by this broker comes by here while light queues are on: sends, what has waited for its time, what was
committed. So there is one place that numbers the messages of a light queue, and it numbers only what really enters it.
A store without light queues does not know of this module.

Source: LmqDispatch.java, MultiDispatchUtils.java.
"""

from __future__ import annotations

from typing import Any

from understudy.format import light_queues
from understudy.format.properties import find_property
from understudy.format.record import (
    FLAG_TRANSACTION_COMMIT,
    FLAG_TRANSACTION_MASK,
    FLAG_TRANSACTION_NONE,
    topic_field,
)
from understudy.runtime.log import get_logger
from understudy.store.consume_queue import ConsumeQueue
from understudy.store.core import StoreCore
from understudy.store.dispatch import Dispatcher
from understudy.store.properties_digest import TAGS
from understudy.store.seals import SEAL_BYTES
from understudy.store.status import Appended, PutRejected, PutStatus
from understudy.store.writer import Writer

logger = get_logger("store.light_writer")

_READABLE = (FLAG_TRANSACTION_NONE, FLAG_TRANSACTION_COMMIT)


class LightWriter(Writer):
    """The writer of a store that serves light queues."""

    def __init__(self, core: StoreCore, dispatcher: Dispatcher) -> None:
        super().__init__(core, dispatcher)
        self._plain = super().append
        self._full = False

    def append(
        self,
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        properties: bytes,
        born_ms: int,
        born_host: bytes,
        **more: Any,
    ) -> Appended:
        """Write one message and its entries in its own queue and in the light queues it names.

        Args:
            topic, queue_id, body, properties, born_ms, born_host: as of the plain writer.
            more: its other arguments.

        Raises:
            PutRejected: nothing was written, be it that one of the light queues cannot take the message.
        """
        if light_queues.NAMES not in properties or topic in self._core.batch_queues.topics:
            return self._plain(topic, queue_id, body, properties, born_ms, born_host, **more)
        properties = light_queues.without_offsets(properties)  # of a message that was stored before
        names = find_property(properties, light_queues.NAMES)
        readable = more.get("sys_flag", 0) & FLAG_TRANSACTION_MASK in _READABLE
        if names is None or not readable or not light_queues.takes_offsets(topic):
            return self._plain(topic, queue_id, body, properties, born_ms, born_host, **more)
        try:
            wanted = light_queues.wanted(names)
        except light_queues.LightQueueError as error:
            raise PutRejected(PutStatus.MESSAGE_ILLEGAL, str(error), special=True) from None
        if more.get("tags_code") is None:
            tags = find_property(properties, TAGS)
            code = 0 if tags is None else self._dispatcher.tag_code(tags)
        else:
            code = more["tags_code"]
        known = self._core.consume_queues.by_key
        new = [name for name in dict.fromkeys(wanted) if (name, light_queues.QUEUE_ID) not in known]
        try:
            queues = self._make_ready(wanted, new)
            properties = light_queues.with_offsets(properties, [queue.next_offset for queue in queues])
            self._check_size(topic, body, properties, born_host)
            stored = self._plain(topic, queue_id, body, properties, born_ms, born_host, **more)
        except PutRejected:
            self._forget(new)
            raise
        self._enter(dict.fromkeys(queues), stored, code, properties)
        return stored

    def _make_ready(self, wanted: list[str], new: list[str]) -> list[ConsumeQueue]:
        """Return the queues, each with room for one entry: a message without it would be lost to readers.

        Args:
            wanted: their names.
            new: those of them that are not there yet.
        """
        core = self._core
        if core.refusals:
            raise PutRejected(PutStatus.SERVICE_NOT_AVAILABLE, "; ".join(sorted(core.refusals)))
        if new and core.consume_queues.light_count + len(new) > core.config.max_lmq_consume_queue_num:
            if not self._full:
                self._full = True
                logger.warning(
                    "no more light queues are made, messages that name new ones are refused",
                    folder=core.config.folder,
                    maxLmqConsumeQueueNum=core.config.max_lmq_consume_queue_num,
                )
            raise PutRejected(
                PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED,
                f"this broker has {core.consume_queues.light_count} light queues and makes no more than "
                f"{core.config.max_lmq_consume_queue_num} (maxLmqConsumeQueueNum)",
            )
        if new:
            self._full = False
        queues = [core.consume_queues.create(name, light_queues.QUEUE_ID) for name in wanted]
        for queue in queues:
            if not queue.view_from <= queue.next_offset < queue.view_to:
                self.map_tail(queue, queue.next_offset)
        return queues

    def _check_size(self, topic: str, body: bytes | memoryview, properties: bytes, born_host: bytes) -> None:
        """Refuse a record larger than the largest body, which the reference applies to the whole of these records."""
        head = self._fixed[len(born_host)].size
        size = head + len(body) + len(topic_field(topic)[1]) + 2 + len(properties) + SEAL_BYTES * self._seals
        limit = self._core.config.max_message_size
        if size > limit >= len(body):
            raise PutRejected(
                PutStatus.MESSAGE_ILLEGAL,
                f"the message has {size} bytes with its properties, one that names light queues may have {limit} "
                "(maxMessageSize)",
                special=True,
            )

    def _enter(self, queues: dict[ConsumeQueue, None], stored: Appended, code: int, properties: bytes) -> None:
        """Enter a stored message into *queues*, each of them once, and show it there when it may be seen."""
        core = self._core
        end = stored.physical_offset + stored.size_bytes
        for queue in queues:
            core.consume_queues.append_units(queue, [stored.physical_offset, stored.size_bytes, code])
            core.hold_or_show(end, queue, queue.next_offset, code, core.last_store_ms, properties)

    def _forget(self, names: list[str]) -> None:
        """Take back queues that were made for a message which was not stored."""
        for name in names:
            queue = self._core.consume_queues.by_key.get((name, light_queues.QUEUE_ID))
            if queue is not None:
                self._core.consume_queues.delete(queue)
