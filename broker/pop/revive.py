"""The revive service: brings back what was popped and not acknowledged.

The queues of the revive topic are deferred queues (see :mod:`~understudy.broker.deferred`): one read finds ripe check
points, the copies of what is open in them are put once and in order, and progress, the consumer offset of a group of
the system's own, moves behind them. What a copy is made of is read where the message is; one that cannot be read now
goes around again as a check point of its own.

Source: PopReviveService.java.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import attrs

from understudy.broker.catalog import Catalog
from understudy.broker.deferred import NEVER, Found, Item
from understudy.broker.inner import InnerMessage
from understudy.broker.left_out import LeftOut
from understudy.broker.node import Node
from understudy.broker.pop.acting import ActingPops
from understudy.broker.pop.acting_rows import RowKey, ack_of
from understudy.broker.pop.returned import Returned
from understudy.broker.pop.revive_log import Ack, CheckPoint, Entry, ReviveLogError, again, read_entry
from understudy.broker.pop.state import PopState
from understudy.broker.pop.window import PATIENCE_MS, ReviveWindow, Ripe
from understudy.broker.timer.lateness import ahead_ms, late_ones_wait, may_hold
from understudy.broker.timer.request import TIMER_QUEUE
from understudy.broker.timer.timer import Timer
from understudy.broker.whole_records import whole_records
from understudy.format import names
from understudy.format.receipts import ORDER_QUEUE
from understudy.format.record import Record
from understudy.runtime.log import get_logger
from understudy.store.message_store import MessageStore
from understudy.store.status import GetStatus

log = get_logger("broker.revive")

SCAN = 512
"""Entries of the revive topic that are read at once."""
SCAN_BYTES = 1 << 20
POINTS = 8
"""Check points that are worked off at once: what a crash can repeat is bounded by it."""
MOST_HANDED_ON = 10_000
ACTING = -1
"""The number under which the service knows what a slave that acts handed out."""
_DELIVER = "TIMER_DELIVER_MS"


@attrs.frozen
class Revival(InnerMessage):
    """What is due at one check point.

    Attributes:
        point: the check point.
        offset: the message that comes back; ``None`` when the check point itself goes around again.
        queue: the revive queue it was in.
        again: it may have been worked off before, in a former life.
        acting: no log has the check point, but the table of a slave that acts.
    """

    point: CheckPoint = attrs.field(kw_only=True)
    offset: int | None = attrs.field(kw_only=True)
    queue: int = attrs.field(kw_only=True)
    again: bool = attrs.field(kw_only=True, default=False)
    acting: bool = attrs.field(kw_only=True, default=False)


@attrs.frozen
class ReviveParts:
    """What of a broker is needed to bring messages back.

    Attributes:
        node: who it is, its settings and its world.
        store: the revive topic, and the messages.
        catalog: topics and groups.
        state: what was popped, and how far the revive topic is worked off.
        acting: what a slave that acts handed out, or the timer gave it.
        timer: what comes into the revive topic waits in it.
    """

    node: Node
    store: MessageStore
    catalog: Catalog
    state: PopState
    acting: ActingPops
    timer: Timer


class ReviveQueues:
    """The queues of the revive topic as the source of a deferred service.

    Attributes:
        announce: called with a queue and the wall time in milliseconds when it is to be looked at.
        opened: called with a queue that there was not before.
        left_out: what an operator decided about check points, by revive queue and offset in it.
        returned: what came back already.
    """

    def __init__(self, parts: ReviveParts) -> None:
        self._parts = parts
        self._config = parts.node.options.broker
        self._identity = parts.node.identity
        self._clock = parts.state.clock
        self._offsets, self._log, self._stats = parts.state.offsets, parts.state.log, parts.state.stats
        self._windows: dict[int, ReviveWindow] = {}
        self._ends: dict[int, int] = {}
        self._handed_on: dict[int, deque[Ack]] = {}
        self._acting_position = self._acting_next = 0
        self._tried = set[RowKey]()
        self.left_out = LeftOut()
        self.returned = Returned(parts.store)
        self.announce: Callable[[int, float], None] = lambda queue, due_ms: None
        self.opened: Callable[[int], None] = lambda queue: None

    def arrived(
        self, topic: str, queue_id: int, next_offset: int, tags_code: int, store_ms: int, properties: bytes | None
    ) -> None:
        """Take note of a message in the revive topic; registered at the store.

        Args:
            topic: of the message.
            queue_id: of the message.
            next_offset: queue offset behind it.
            tags_code: its tags code.
            store_ms: when it was stored (wall time).
            properties: its raw properties; ``None`` where the store was not asked for them.
        """
        if topic == self._log.topic:
            if queue_id not in self._ends and queue_id < ORDER_QUEUE:
                self._log.know(queue_id + 1)
                self._ends[queue_id] = 0
                self.opened(queue_id)
            self.announce(queue_id, store_ms + self._config.revive_interval)

    def kept(self, entry: Entry, queue: int) -> None:
        """Take note of what the table of a slave that acts has taken."""
        if isinstance(entry, Ack):
            self.handed_on(queue, entry)
        else:
            self.announce(ACTING, entry.revive_ms + PATIENCE_MS + 1)

    def queues(self) -> list[int]:
        """Return the revive queues and :data:`ACTING`; what is known of them is read anew."""
        self._windows.clear()
        self._tried.clear()
        self.left_out.forget()
        self.returned.forget()
        self.find()
        queues, parts = list(range(self._log.queues)), self._parts
        self._ends = {queue: parts.store.max_queue_offset(self._log.topic, queue) for queue in queues}
        self._handed_on.clear()
        for key, known in parts.acting.acks.items():  # their check points may stand in the log, which is read anew
            self.handed_on(known.queue, ack_of(key, known))
        return [*queues, ACTING]

    def find(self) -> None:
        """Learn of every queue that the topic has: with another ``reviveQueueNum``, here or at a slave, it had more."""
        row, has = self._parts.catalog.topics.get(self._log.topic), self._parts.store.has_queue
        there = [queue + 1 for queue in range(ORDER_QUEUE) if has(self._log.topic, queue)]
        self._log.know(max(there, default=0))
        self._log.know(0 if row is None else row.read_queue_nums)

    def handed_on(self, queue: int, ack: Ack) -> None:
        """Count an acknowledgement in *queue* that no log has, as if it had come there."""
        self._handed_on.setdefault(queue, deque(maxlen=MOST_HANDED_ON)).append(ack)

    def position(self, queue: int) -> int:
        """Return the offset in revive queue *queue* before which everything is done."""
        if queue == ACTING:
            return self._acting_position
        return self._offsets.query(names.REVIVE_GROUP, self._log.topic, queue) + 1

    def move(self, queue: int, position: int) -> None:
        """Note that everything before *position* is done: the offset is the last one, not the next."""
        if queue == ACTING:
            self._acting_position = position
            return
        parts = self._parts
        self._log.end = parts.store.max_physical_offset  # the copies are before it
        self._offsets.commit_popped(names.REVIVE_GROUP, self._log.topic, queue, position - 1, self._log.belongs)
        self.left_out.moved(queue, position)

    def undo(self, queue: int) -> None:
        """Have *queue* read once more from its progress on."""
        self._windows.pop(queue, None)
        self._tried.clear()

    def stored(self, message: InnerMessage) -> None:
        """Count a message that came back."""
        if isinstance(message, Revival) and message.offset is not None:
            if message.acting:
                self._parts.acting.settled(message.point, message.offset)
            self._stats.topic(message.topic).add(0, 1, 0)

    def behind(self, queue: int) -> tuple[int, int]:
        """Return how many entries of *queue* are not worked off, and when the oldest open check point was due.

        Returns:
            The number, and wall time in milliseconds; 0 when none is open.
        """
        parts, window = self._parts, self._windows.get(queue)
        end = parts.store.max_queue_offset(self._log.topic, queue)
        return max(end - self.position(queue), 0), 0 if window is None else window.oldest_due_ms

    def read(self, queue: int, position: int) -> Found:
        """Return what is due in *queue* from *position* on."""
        if queue == ACTING:
            return self._read_acting(position)
        window = self._windows.get(queue)
        if window is None or position < window.begin:
            window = self._windows[queue] = ReviveWindow(position, self._clock.steps)
        window.pass_to(position)
        window.not_beyond(self._clock.wall_ms())
        store = self._parts.store
        window.timer_end = store.written_queue_offset(names.TIMER_TOPIC, TIMER_QUEUE)
        window.queue_end = store.written_queue_offset(self._log.topic, queue)
        for ack in self._handed_on.pop(queue, ()):
            window.add_ack(ack)
        at_end = self._scan(queue, window)
        self._look_at_timer(window, at_end)
        if not at_end and (window.held_until_ms or not window.ripe(1, self._may_come)):
            return Found((), window.resume, None)  # more follows
        ripe = [] if window.held_until_ms else window.ripe(POINTS, self._may_come)
        items = tuple(item for each in ripe for item in self._items(queue, each))
        if ripe:
            return Found(items, window.after(ripe), None)
        due_ms = window.due_ms()
        pause = self._clock.wall_ms() + self._config.revive_interval
        return Found((), window.resume, due_ms if due_ms == NEVER else max(due_ms, pause))

    def _timer_behind(self) -> bool:
        timer, store = self._parts.timer, self._parts.store
        written = store.written_queue_offset(names.TIMER_TOPIC, TIMER_QUEUE)  # also what not all replicas have yet
        return written > timer.progress.enqueued or may_hold(timer, self._clock.wall_ms())

    def _may_come(self, ripe: Ripe) -> bool:
        """Return whether acknowledgements may still wait in the timer, although they are due.

        One that is put there late comes out at once, before what waits for an earlier second in a timer that is behind:
        so do the check points that a slave has handed out when its master takes them home.
        """
        timer, due_ms = self._parts.timer, ripe.point.revive_ms
        waits = timer.progress.enqueued < ripe.timer_end or timer.holds(due_ms)
        # Of late ones only those that were there when the check point came out: others may go on to come for ever.
        return waits or late_ones_wait(timer, due_ms, ripe.timer_end)

    def _look_at_timer(self, window: ReviveWindow, at_end: bool) -> None:
        """Hold *window* while the timer may hold acknowledgements of check points that came out long ago.

        Elsewhere what comes out tells how far the time of a queue is, for the timer keeps the order of what is due.
        """
        timer = self._parts.timer
        if until_ms := ahead_ms(timer, self._clock.wall_ms()):
            window.held_until_ms = until_ms
        elif at_end and window.held_until_ms and not timer.holds(window.held_until_ms):
            window.held_until_ms = 0

    def _read_acting(self, position: int) -> Found:
        """Return what is due of that which no log has; no message has a number that another one had.

        All are tried in turn: where nobody takes some of them, they hold up no others.
        """
        parts, now_ms = self._parts, self._clock.wall_ms()
        due_ms = parts.acting.due_ms()
        if due_ms == NEVER:
            return Found((), position, NEVER)
        waits = self._timer_behind() or late_ones_wait(parts.timer, now_ms, parts.timer.topic.end)
        if now_ms - due_ms <= PATIENCE_MS or waits:  # for acknowledgements that the timer may still hold
            return Found((), position, max(due_ms + PATIENCE_MS + 1, now_ms + self._config.revive_interval))
        messages, rows = list[Revival](), parts.acting.ripe(now_ms - PATIENCE_MS, POINTS, self._tried)
        if not rows:
            self._tried.clear()
            return Found((), position, now_ms + self._config.revive_interval)
        for row in rows:
            self._tried.add(row.row_key)
            found = self._revivals(row.queue, row.point, True)
            messages += [attrs.evolve(each, acting=True) for each in found]
            if not found:
                parts.acting.drop(row.point)
        first = max(position, self._acting_next)
        self._acting_next = first + len(messages)
        items = tuple(Item(first + number, each) for number, each in enumerate(messages))
        return Found(items, self._acting_next, None)

    def _scan(self, queue: int, window: ReviveWindow) -> bool:
        """Read on in *queue*; return whether its end was reached."""
        parts = self._parts
        found = parts.store.get(self._log.topic, queue, window.next, SCAN, SCAN_BYTES)
        if found.status is not GetStatus.FOUND:
            if found.next_begin_offset > window.next:
                window.skip_to(found.next_begin_offset)
                return False
            hidden = parts.store.written_queue_offset(self._log.topic, queue) > window.next  # not all replicas have it
            window.reached_end(self._clock.wall_ms(), hidden or self._timer_behind())
            return True
        for record in whole_records(parts.store, self._log.topic, queue, window.next, found):
            self._add(queue, window, record)
        window.skip_to(found.next_begin_offset)
        return False

    def _add(self, queue: int, window: ReviveWindow, record: Record) -> None:
        pairs = record.properties
        deliver = pairs.get(_DELIVER, "")
        deliver_ms = (
            int(deliver) if deliver.isascii() and deliver.isdecimal() and len(deliver) < 17 else record.store_ms
        )
        entry = None
        try:
            entry = read_entry(pairs.get("TAGS"), record.body, self._identity.name)
        except ReviveLogError as error:
            log.warning("no entry of the revive topic", queue=queue, offset=record.queue_offset, why=error)
        if entry is not None:
            self._log.counts.came_out(entry, queue)
        # A time that somebody wrote by hand must not make check points ripe before theirs.
        window.add(record.queue_offset, entry, min(deliver_ms, self._clock.wall_ms()))

    def _is_gone(self, point: CheckPoint) -> bool:
        topics, groups = self._parts.catalog.topics, self._parts.catalog.groups
        return topics.get(names.popped_topic(point.topic, point.group)) is None or groups.find(point.group) is None

    def open_points(self, queue: int) -> list[Ripe]:
        """Return the check points that have come into *queue* and are not done, and nobody has decided about."""
        window, position = self._windows.get(queue), self.position(queue)  # the window learns of it with the next read
        points = () if window is None else window.open_points
        return [each for each in points if each.position >= position and (queue, each.position) not in self.left_out]

    def _items(self, queue: int, ripe: Ripe) -> list[Item]:
        decided = self.left_out.meets(queue, ripe.position)
        if decided is not None:  # a check point for each message that is open; what came back already does not again
            point, now_ms = ripe.point, self._clock.wall_ms()
            wait = [_revival(again(point, each, now_ms), None, queue, point.topic) for each in point.open_offsets]
            return [Item(ripe.position, each, each.point.start_offset) for each in wait] if decided.again else []
        if ripe.early:
            return [Item(ripe.position, _revival(ripe.point, None, queue, ripe.point.topic))]
        found = self._revivals(queue, ripe.point, ripe.position < self._ends[queue])
        return [Item(ripe.position, each, each.offset) for each in found]

    def _revivals(self, queue: int, point: CheckPoint, again: bool) -> list[Revival]:
        """Return what comes back of *point*; *again*: it may have been worked off before, in a former life."""
        if point.broker_name == self._identity.name and self._is_gone(point):
            return []  # of another broker's we do not know, and its consumers come here as long as it is away
        target = self.returns_to(point)
        return [_revival(point, each, queue, target, again) for each in point.open_offsets]

    def returns_to(self, point: CheckPoint) -> str:
        """Return the topic where what nobody acknowledged of *point* comes again."""
        if point.topic.startswith(names.RETRY_PREFIX):
            return point.topic
        return names.pop_retry_topic(point.group, point.topic, second_form=self._config.enable_retry_topic_v2)


def _revival(point: CheckPoint, offset: int | None, queue: int, topic: str, again: bool = False) -> Revival:
    return Revival(topic, 0, b"", b"", 0, b"", point=point, offset=offset, queue=queue, again=again)
