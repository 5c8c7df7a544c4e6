"""Writes check points and acknowledgements: a master into its log, a slave that acts into its table (:mod:`acting`)."""

from __future__ import annotations

from collections.abc import Callable

from understudy.broker.config import BrokerOptions
from understudy.broker.identity import Identity, host_bytes
from understudy.broker.inner import InnerMessage, append, with_timer
from understudy.broker.pop.counts import PopCounts
from understudy.broker.pop.revive_log import AHEAD_MS, CheckPoint, Entry, message_of
from understudy.broker.timer.request import Door, TimerRefusedError
from understudy.format import names
from understudy.format.properties import parse_properties
from understudy.format.receipts import ORDER_QUEUE
from understudy.runtime.clock import Clock
from understudy.store.message_store import MessageStore
from understudy.store.status import PutRejected, PutStatus


class ReviveLog:
    """What is known of pops beyond their answers.

    Args:
        identity: the broker.
        options: read at each use.
        clock: wall time.
        store: its log.
        door: lets messages into the timer.

    Attributes:
        host: the broker, as records have it.
        topic: the revive topic.
        counts: what was written, read and brought back.
        end: byte of the log behind the newest check point, acknowledgement or copy that came back; offsets that say
            so must not be durable before it is. 0 before the first one.
        queues: how many queues of the topic are read, and may be named by receipts: all that it has, see :meth:`know`.
        keep: takes what a slave must not write into its log: an entry, its queue, and when it is due there in wall
            milliseconds; raises ``PutRejected``.
    """

    def __init__(
        self, identity: Identity, options: BrokerOptions, clock: Clock, store: MessageStore, door: Door
    ) -> None:
        self._identity = identity
        self.host = host_bytes(identity.ip, identity.port)
        self._options = options
        self._clock = clock
        self._store = store
        self._door = door
        self._turn = 0
        self.topic = names.REVIVE_TOPIC_PREFIX + identity.cluster
        self.counts = PopCounts()
        self.end = 0
        self.queues = options.broker.revive_queue_num
        self.keep: Callable[[Entry, int, int], None]

    def know(self, queues: int) -> None:
        """Learn that the topic has *queues* queues, if that is more than was known."""
        self.queues = min(max(self.queues, queues), ORDER_QUEUE)

    @property
    def belongs(self) -> int:
        """The byte of the log that a replica must have for an offset that moves now; 0 at a slave."""
        return 0 if self._identity.role.is_slave else self.end

    def next_queue(self) -> int:
        """Return the revive queue of the next pop."""
        self._turn = (self._turn + 1) % self._options.broker.revive_queue_num
        return self._turn

    def message(self, entry: Entry, queue: int, deliver_ms: int) -> InnerMessage:
        """Return *entry* as a message that comes into *queue* at *deliver_ms*."""
        return message_of(entry, self.topic, queue, deliver_ms, self._clock.wall_ms(), self.host)

    def check_point(self, point: CheckPoint, queue: int) -> InnerMessage:
        """Return the message of a check point."""
        return self.message(point, queue, point.revive_ms - AHEAD_MS)

    def timed(self, message: InnerMessage) -> InnerMessage:
        """Return *message* as it can be stored now: in the timer's topic until it is due.

        Raises:
            PutRejected: the timer does not take it.
        """
        try:
            return with_timer(message, parse_properties(message.properties), self._clock.wall_ms(), self._door)
        except TimerRefusedError as error:
            raise PutRejected(PutStatus.WHEEL_TIMER_FLOW_CONTROL, str(error)) from None

    def write(self, entry: Entry, queue: int, deliver_ms: int) -> int:
        """Write *entry*, to come into *queue* at *deliver_ms*.

        Returns:
            The byte of the log behind it; 0 where no log has it.

        Raises:
            PutRejected: it is not written.
        """
        if self._identity.role.is_slave:
            self.keep(entry, queue, deliver_ms)
            return 0
        try:
            put = append(self._store, self.timed(self.message(entry, queue, deliver_ms)))
        except PutRejected as error:
            self.counts.wrote(entry, error.status.value)
            raise
        self.counts.wrote(entry, PutStatus.PUT_OK.value)
        self.know(queue + 1)
        self.end = put.physical_offset + put.size_bytes
        return self.end
