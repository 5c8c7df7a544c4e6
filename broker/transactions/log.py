"""The half messages in the log of one broker: what is known of them while their queues are open, and what is written.

Source: TransactionalMessageServiceImpl.java, TransactionalOpBatchService.java.
"""

from __future__ import annotations

from understudy.broker.identity import host_bytes
from understudy.broker.inner import InnerMessage, append
from understudy.broker.node import Node
from understudy.broker.statistics import BrokerStatistics
from understudy.broker.transactions.counts import TransactionCounts
from understudy.broker.transactions.half import Half
from understudy.broker.transactions.reading import HalfQueue, HalfReader
from understudy.broker.transactions.recent import RecentHalves
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal
from understudy.store.message_store import MessageStore
from understudy.store.status import Appended, PutRejected

log = get_logger("broker.transactions")


class HalfLog:
    """The half queues and op queues of one broker.

    Args:
        node: who it is, its settings and its world.
        store: the messages.
        stats: counts.
        reader: reads the queues.

    Attributes:
        reader: as given.
        host: the broker, as records have it.
        queues: those that are at work, by their number; none until they are learnt.
        counts: what is open, and what was decided.
        wake: set when there is something that an op message must be written of.
        recent: what was stored last.
    """

    def __init__(self, node: Node, store: MessageStore, stats: BrokerStatistics, reader: HalfReader) -> None:
        self._config = node.options.broker
        self._clock = node.world.clock
        self._store = store
        self._stats = stats
        self.reader = reader
        self.host = host_bytes(node.identity.ip, node.identity.port)
        self.queues: dict[int, HalfQueue] = {}
        self.counts = TransactionCounts(node.world.clock.wall_ms)
        self.wake = Signal()
        self.recent = RecentHalves()

    def note_decided(self, queue: HalfQueue, offset: int, half: Half) -> None:
        """Note that nothing is left to be done about a half message.

        Args:
            queue: it is in.
            offset: where its newest copy stands.
            half: the message.
        """
        self.counts.add(half.topic, -1)
        self.note_op(queue, offset)

    def note_op(self, queue: HalfQueue, offset: int) -> None:
        """Have the next op message name the half message at *offset* of *queue*: it is decided, and not open."""
        queue.ledger.decide(offset)
        if not queue.batch.offsets:
            self.wake.set()
        if queue.batch.add(offset, self._clock.monotonic(), self._config.transaction_op_msg_max_size):
            self.write_ops(queue)

    def write_ops(self, queue: HalfQueue) -> None:
        """Write the decisions about *queue* that no op message has; what cannot be written now stays for later."""
        if not queue.batch.offsets:
            return
        message = queue.batch.message(queue.number, self._clock.wall_ms(), self.host)
        try:
            put = self.append(message)
        except PutRejected as error:
            log.error("op message not written yet", queue=queue.number, decisions=len(queue.batch.offsets), why=error)
            return
        queue.ledger.op_message(put.queue_offset, queue.batch.offsets)
        queue.batch.clear()

    def append(self, message: InnerMessage) -> Appended:
        """Store and count *message*, which is the broker's own. Raises ``PutRejected``."""
        put = append(self._store, message)
        self._stats.topic(message.topic).add(message.queue_id, 1, put.size_bytes)
        return put
