"""The timer of one broker: reads the timer topic into the wheel, and knows what is due.

Every call returns at once; a call does a bounded part of what is to be done and is called again. What a slave may put
into slots is what its master has put there; a broker that delivers puts everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import attrs

from understudy.broker.message_store_config import MessageStoreConfig
from understudy.broker.timer.done import Again, Done, Lost, Read, joined
from understudy.broker.timer.late import Late
from understudy.broker.timer.progress import TimerProgress
from understudy.broker.timer.request import TimerDoor
from understudy.broker.timer.rules import Waits, slot_length_ms, topic_hash, window_slots
from understudy.broker.timer.tally import MOST_TOPICS, Tally
from understudy.broker.timer.topic import TimerTopic
from understudy.format.data_version import DataVersion
from understudy.format.record import Record
from understudy.runtime.log import get_logger
from understudy.runtime.metrics import Histogram
from understudy.runtime.world import World
from understudy.store.message_store import MessageStore
from understudy.store.timer_check import TimerCheck
from understudy.store.timer_files import Flush, Opened, TimerFiles
from understudy.store.timer_log import Unit
from understudy.store.timer_wheel import SLOTS

log = get_logger("broker.timer")

ASKED_SECONDS = (60, 600, 3600, 43_200, 86_400, 259_200)
KEPT_MS = 3_600_000
MOST_CHANGED_SLOTS = 65_536
"""From so many slots on that are not in the file yet, a flush is due at once."""


class Timer:
    """See above.

    Args:
        world: clock, disk and randomness.
        store: holds the timer topic.
        keys: settings, read when they are needed.

    Attributes:
        topic: what is put into slots.
        files: the slots.
        progress: how far it has come.
        door: lets timer messages in.
        delivers: this broker is the one that delivers.
        look: called when there may be messages for slots although none has arrived.
        waiting_of: how many messages of each topic wait.
        delivered, entered: counts of messages by topic that were delivered, and put into slots, since the start.
        asked_seconds: how long those put into slots shall wait from their birth, by topic.
        master_enqueued: how many messages of the topic the master has put into slots, as far as a slave knows.
        lacks: returns whether this is a slave: others may have delivered messages that its log does not have yet.
    """

    def __init__(self, world: World, store: MessageStore, keys: MessageStoreConfig) -> None:
        self._clock = world.clock
        self._store = store
        self._keys = keys
        self.precision_ms = slot_length_ms(keys.timer_precision_ms)
        self.topic = TimerTopic(store, self.precision_ms, window_slots(keys.timer_roll_window_slot))
        self.files = TimerFiles(
            world.disk, keys.store_path_root_dir, keys.mapped_file_size_timer_log, self.precision_ms
        )
        self._late, self._lost = Late(), Lost()
        self._again: tuple[Again, ...] = ()
        self._entered: tuple[Again, ...] = ()
        self._changed = self._followed = False
        self.progress = TimerProgress(world.clock.wall_ms)
        self.door = TimerDoor(keys, self.precision_ms, world.random, self._next_second, self.waiting_at)
        self.delivers = False
        self.look: Callable[[], None] = lambda: None
        self.waiting_of: Counter[str] = Counter()
        self.delivered, self.entered = Tally(world.clock), Tally(world.clock)
        self.asked_seconds = Histogram(ASKED_SECONDS)
        self.master_enqueued = 0
        self.lacks: Callable[[], bool] = lambda: False

    # --- start -------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the files. Blocking; nothing else may be called before."""
        progress = self.progress
        self._again = progress.todo
        opened = self.files.open(progress.read.second_ms)
        self._take(opened)
        cut = self.files.drop_tail(self.topic.is_true)
        if cut or not opened.exact or progress.enqueued > self.topic.end:
            self._go_back(cut=cut)
        log.info(
            "timer opened",
            next_second_ms=progress.read.second_ms,
            enqueued=progress.enqueued,
            of=self.topic.end,
            waiting=self.files.waiting,
        )

    def _take(self, opened: Opened) -> None:
        progress, check = self.progress, opened.check
        progress.enqueued, progress.settled = check.queue_offset, check.master_queue_offset
        if progress.todo and progress.enqueued < progress.todo[-1].end:  # these are no late ones, see there
            progress.settled = max(progress.settled, progress.todo[-1].end)
        self.master_enqueued = progress.settled
        second_ms = check.read_ms // self.precision_ms * self.precision_ms
        if not second_ms:  # there was no timer here; what is in the topic is all to be done
            first_ms = self.topic.first_stored_ms()
            second_ms = self.floor(first_ms if first_ms > 0 else self._clock.wall_ms())
        if second_ms > progress.read.second_ms:
            progress.read = Read(second_ms)

    def begin(self, delivers: bool) -> None:
        """Begin to deliver, or to follow the replica that does."""
        if delivers and not self.delivers:
            progress = self.progress
            self._rewind()
            end, lacks = self.topic.end, self.lacks()
            if todo := progress.begin(self.master_enqueued, end, followed=self._followed, lacks=lacks):
                self._again = joined(self._again, todo)
        elif self.delivers and not delivers:
            self.master_enqueued = self.known
        self.delivers, self._followed = delivers, False

    def follow(self, done: Done, version: DataVersion, *, back: bool = False) -> None:
        """Take over how far the replica has come that this one follows.

        Args:
            done: what it knows; what is left to do will be done there.
            version: of its progress.
            back: it said more before: its clock was set back, and seconds that held nothing may hold something now.
        """
        read = Read(self.floor(done.read.second_ms), done.read.physical)
        if self.delivers or (read < self.progress.read and not back):
            return  # a master that was away does not know yet what was delivered meanwhile
        progress, self._followed = self.progress, True
        before, self.master_enqueued = self.master_enqueued, done.known
        if self.master_enqueued > before:
            self.look()
        self._again = progress.todo = done.left
        self._late.forget()
        progress.version = version
        self.move(read)

    def _next_second(self) -> int:
        return self.progress.read.second_ms

    # --- figures -----------------------------------------------------------------------------------------------

    def floor(self, time_ms: int) -> int:
        """Return the second that *time_ms* lies in."""
        return time_ms // self.precision_ms * self.precision_ms

    @property
    def waiting(self) -> int:
        """How many messages wait in slots."""
        return max(self.files.waiting, 0)

    @property
    def behind(self) -> int:
        """How many messages of the timer topic are not in slots yet."""
        return max(self.topic.end - self.progress.enqueued, 0)

    def waiting_at(self, time_ms: int) -> int:
        """Return how many messages wait for one second."""
        slot = self.files.slot(time_ms)
        return 0 if slot is None else slot.num

    def holds(self, until_ms: int) -> bool:
        """Return whether something is not done that waits for a second up to *until_ms*."""
        again = any(each.first < self.topic.end for each in self._again)  # what this log lacks never comes out here
        return again or self.next_due_ms(until_ms + self.precision_ms) is not None

    def next_due_ms(self, end_ms: int | None = None) -> int | None:
        """Return the first second that holds something not done; its messages are due when it is over."""
        from_ms = self.progress.read.second_ms
        return self.files.next_due_ms(from_ms, from_ms + SLOTS * self.precision_ms if end_ms is None else end_ms)

    def check(self, *, resting: bool = True) -> TimerCheck:
        """Return the progress as replicas of the reference know it.

        Args:
            resting: let the seconds that hold nothing count as passed.
        """
        progress, read_ms = self.progress, self.progress.read.second_ms
        if resting and self.delivers and self.behind == 0:
            now_ms = self.floor(self._clock.wall_ms())
            read_ms = max(read_ms, self.next_due_ms(now_ms) or now_ms)
        version, done = progress.version, self.done
        return TimerCheck(
            read_ms,
            self.files.log.end,
            progress.enqueued,
            min((done.known, *(each.first for each in done.left))),
            version.state_version,
            version.timestamp,
            version.counter,
        )

    @property
    def known(self) -> int:
        """How many messages of the topic are done as far as they lie before the next second, but for what is left."""
        return self.progress.known if self.delivers else self.master_enqueued

    @property
    def done(self) -> Done:
        """What is known to be done; what is not entered again yet, or waits in a later second than its own, is left."""
        return Done(self.progress.read, self.known, joined(self._again, self._late.parts()))

    # --- into slots --------------------------------------------------------------------------------------------

    def enqueue(self) -> bool:
        """Put the next messages of the topic into slots; return whether there are more to put now."""
        if self._keys.timer_stop_enqueue:
            return False
        progress = self.progress
        limit = self.topic.end if self.delivers else min(self.topic.end, self.master_enqueued)
        if progress.enqueued >= limit:
            if progress.enqueued > self.topic.end:
                self._rewind()
                return progress.enqueued < self.topic.end
            return self.delivers and self._enqueue_again()
        found, following = self.topic.read(progress.enqueued, limit - progress.enqueued)
        if following == progress.enqueued or self._store.holes.behind:  # what is left out may be back in a moment
            return False
        self._changed = True
        for record in found:
            if not self._enter(record):
                return False
            progress.enqueued = record.queue_offset + 1
        progress.enqueued = max(progress.enqueued, following)
        return progress.enqueued < limit or (self.delivers and bool(self._again))

    def _enter(self, record: Record) -> bool:
        """Put *record* into its slot; return False when the wheel has no room for its second yet."""
        progress = self.progress
        place = self.topic.waits(record)
        if place is None:
            log.error("timer message without its time skipped", offset=record.queue_offset, key=record.message_id)
            return True
        slot_ms = place.slot_ms
        if slot_ms >= progress.read.second_ms + SLOTS * self.precision_ms:
            return False
        if slot_ms < progress.read.second_ms:
            own, offset = Read(slot_ms, record.physical_offset), record.queue_offset
            if offset < progress.settled or not self.delivers or self._lost.was_done(offset, own):
                return True
            slot_ms = progress.read.second_ms
            self._late.add(slot_ms, offset, own)
        self._add(record, place, slot_ms)
        if self.delivers:
            self._count(place, 1)
        self.entered.add(place.topic)
        self.asked_seconds.observe(max(place.second_ms - record.born_ms, 0) // 1000, (("topic", place.topic),))
        return True

    def _add(self, record: Record, place: Waits, slot_ms: int) -> None:
        self.files.add(
            slot_ms,
            place.write_ms,
            record.physical_offset,
            record.size_bytes,
            topic_hash(place.topic),
            rolls=place.rolls,
            deletes=place.deletes,
        )

    def _count(self, place: Waits, number: int) -> None:
        if place.topic in self.waiting_of or (place.topic and len(self.waiting_of) < MOST_TOPICS):
            self.waiting_of[place.topic] += -number if place.deletes else number

    # --- merging -----------------------------------------------------------------------------------------------

    def take_over(self, theirs: Done) -> None:
        """Make another replica's progress ours, too, while this broker does not deliver.

        Args:
            theirs: what it knows of our topic; :meth:`enqueue` enters again what neither has done.
        """
        progress = self.progress
        unsure = progress.unsure(self.master_enqueued) if self._followed else ()
        passed = self._late.parts(max(progress.read, theirs.read).second_ms)  # others are in their slots still
        left = joined(self._again, unsure, passed)
        both = Done(progress.read, max(progress.enqueued, self.master_enqueued), left).merged(theirs)
        if (both.read, both.known, both.left) == (progress.read, self.master_enqueued, self._again):
            return
        self._again, self._followed = both.left, False
        self.master_enqueued = both.known
        self._changed = True
        self.move(both.read)
        entered = self._late.parts() if progress.todo else ()  # in slots, perhaps not durably
        progress.leave(joined(both.left, entered))

    def _enqueue_again(self) -> bool:
        """Enter the next messages that were left to do once more, in the slot after the one that is delivered next."""
        todo = self._again[0] if self._again else None
        if todo is None or todo.first >= self.topic.end:
            return False
        read = self.progress.read
        found, following = self.topic.read(todo.first, todo.end - todo.first)
        if self._store.holes.behind:
            return False
        first = max(following, todo.first + 1)
        for record in found:
            place = self.topic.waits(record)
            if place is None:
                continue
            own, slot_ms = Read(place.slot_ms, record.physical_offset), read.second_ms + self.precision_ms
            if todo.was <= own < read:
                self._late.add(slot_ms, record.queue_offset, own)
                self._add(record, place, slot_ms)
        rest = () if first >= todo.end else (attrs.evolve(todo, first=first),)
        self._again = rest + self._again[1:]
        return bool(self._again)

    # --- out of slots ------------------------------------------------------------------------------------------

    def record(self, unit: Unit) -> Record | None:
        """Return the message of *unit*; ``None`` when it cannot be read any more."""
        return self.topic.record(unit)

    def move(self, read: Read) -> None:
        """Note that everything before *read* is done."""
        before = self.progress.read
        if read.second_ms > before.second_ms:
            passed = self.files.next_due_ms(before.second_ms, read.second_ms) is not None
            self.files.done(before.second_ms, read.second_ms)
            self._late.passed(read.second_ms)
            if not passed and not read.physical:
                self.progress.read = read  # nothing was delivered: nobody need know for how long
                return
        self._changed = True
        self.progress.move(read)

    def rest(self, now_ms: int) -> None:
        """Pass seconds over that hold nothing, but for those of the last hour: the clock may be set back to them."""
        until_ms = self.floor(now_ms - KEPT_MS)
        if until_ms > self.progress.read.second_ms and self.next_due_ms(until_ms) is None:
            self.move(Read(until_ms))

    def left(self, topic: str) -> None:
        """Count a message that is in no slot any more."""
        self.waiting_of[topic] -= 1
        if self.waiting_of[topic] <= 0:
            del self.waiting_of[topic]

    # --- taking back -------------------------------------------------------------------------------------------

    def _rewind(self) -> None:
        """Take back from slots what is not in the commit log any more."""
        cut = self.files.drop_tail(self.topic.is_true)
        if cut or self.progress.enqueued > self.topic.end:
            log.warning("the commit log was cut: timer messages are read again", was=self.progress.enqueued)
            self._go_back(cut=cut)

    def _go_back(self, *, cut: bool) -> None:
        """Read the topic again from behind the newest unit; what follows there is new when the log was *cut*."""
        progress, last = self.progress, self.files.log.last()
        self._lost = self._lost.or_after_cut(self.done, self.topic.written_end, self._store.max_physical_offset)
        progress.enqueued = min(0 if last is None else self.topic.behind(last[1]), self.topic.end)
        known = progress.enqueued if cut else self.topic.end
        progress.settled, self.master_enqueued = min(progress.settled, known), min(self.master_enqueued, known)
        self._changed = True
        if cut:
            self.files.cut(self.check(resting=False))

    # --- durability --------------------------------------------------------------------------------------------

    @property
    def must_flush(self) -> bool:
        """Whether so much has changed that a flush must not wait."""
        return self.files.wheel.changed >= MOST_CHANGED_SLOTS

    def begin_flush(self) -> Flush | None:
        """Return what is to be made durable now; ``None`` when nothing has changed since the last flush."""
        if not self._changed:
            return None
        self._changed, self._entered = False, () if self._again else self.progress.todo
        if self.delivers:
            self.progress.grow_older()
        return self.files.begin_flush(self.check(resting=False))

    def flush(self, flush: Flush) -> None:
        """Make it durable. Blocking, may run in a thread. Raises ``OSError``."""
        self.files.flush(flush)

    def end_flush(self, flush: Flush, done: bool) -> None:
        """Take note of whether it is durable."""
        self.files.end_flush(flush, done)
        self._changed |= not done
        if done and self._entered and self.progress.todo is self._entered:  # nothing else was left meanwhile
            self.progress.leave(())

    async def delete_gone(self) -> None:
        """Delete the files whose messages the commit log has no more, in threads."""
        await self.files.log.delete_before(self._store.min_physical_offset)

    def close(self) -> None:
        """Give the files back."""
        self.files.close()
