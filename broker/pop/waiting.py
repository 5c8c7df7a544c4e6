"""Pops and notifications that found nothing and wait: parked rows, as pulls are (see :mod:`~understudy.broker.hold`).

They differ in who is woken: a message wakes one waiter of each group that waits for any queue of its topic and one that
waits for its queue, because one pop takes it away from the others. A pop that leaves something behind wakes the next.

While nobody waits, messages that arrive are not looked at.

How long a waiter may wait is told by the client's wall clock and this one's when it comes, and counted by the monotonic
clock from then on: one that is woken in vain goes on to wait for the rest, whatever became of the wall clock.

Source: PopLongPollingService.java.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from understudy.broker.arrivals import Arrivals
from understudy.broker.hold import PullHold
from understudy.broker.parked_pulls import ParkedPull, Wanted
from understudy.format import names
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.fields import optional_int, required_int
from understudy.runtime.clock import Clock
from understudy.runtime.load import Budget

EARLY_MS = 50
"""A waiter is answered this long before its time is over, so that the answer is there in time."""
ANY_QUEUE = -1


class WaitingPop(ParkedPull):
    """One waiter.

    Args:
        connection, command: whom and what to answer.
        wanted: tags codes of the messages it wants, or a condition on them; ``None`` is every message.
        topic, group, queue_id: what it waits for; :data:`ANY_QUEUE` for every queue.
        kind: waiters of different kinds do not take messages from each other.
        ends_at: when nobody waits for its answer any more, in monotonic seconds.
        header_bytes: what the command keeps.
    """

    __slots__ = ("ends_at", "group", "kind", "queue_id", "topic")

    def __init__(
        self,
        connection: Connection,
        command: Command,
        wanted: Wanted,
        topic: str,
        group: str,
        queue_id: int,
        kind: str,
        ends_at: float,
        header_bytes: int = 0,
    ) -> None:
        super().__init__(connection, command, wanted, header_bytes)
        self.ends_at = ends_at
        self.topic = topic
        self.group = group
        self.queue_id = queue_id
        self.kind = kind


def wait_ends_at(command: Command, clock: Clock) -> float:
    """Return until when who sent *command*, which has just come, waits for its answer, in monotonic seconds.

    Raises:
        CommandError: it does not say so in numbers.
    """
    poll_ms, now_ms = required_int(command, "pollTime"), clock.wall_ms()
    born_ms = min(optional_int(command, "bornTime") or now_ms, now_ms)  # a clock ahead makes no wait longer
    return clock.monotonic() + (born_ms + poll_ms - now_ms) / 1000


class PopHold(PullHold):
    """Every waiting pop of one broker.

    Args:
        clock: for deadlines.
        arrivals: tells of messages that became readable, of each topic while somebody waits for it.
        limit: most waiters.
        queue_limit: most waiters of one group for one queue.
        budget: where what they keep is counted.
    """

    def __init__(
        self,
        clock: Clock,
        arrivals: Arrivals,
        limit: Callable[[], int],
        queue_limit: Callable[[], int],
        budget: Budget,
    ) -> None:
        super().__init__(clock, limit, budget)
        self._most = limit
        self._most_at_queue = queue_limit
        self._arrivals = arrivals
        self._topics: dict[str, dict[tuple[str, str, str], int]] = {}  # by arriving topic: kind, topic, group

    @staticmethod
    def _parked_key(kind: str, topic: str, group: str, queue_id: int) -> tuple[str, int]:
        return f"{kind} {topic}@{group}", queue_id

    def full(self, waiting: WaitingPop) -> bool:
        """Tell whether there is no room for *waiting*."""
        if len(self) >= self._most() or not self.has_room(waiting):
            return True
        return self.count(waiting.topic, waiting.group, waiting.queue_id, waiting.kind) >= self._most_at_queue()

    def count(self, topic: str, group: str, queue_id: int, kind: str) -> int:
        """Return how many wait for a queue.

        Args:
            topic: that is waited for.
            group: that waits.
            queue_id: of the queue; -1 for any.
            kind: of waiting.
        """
        waiting = self._parked.get(self._parked_key(kind, topic, group, queue_id))
        return 0 if waiting is None else waiting.count

    def wait(self, waiting: WaitingPop, wait_ms: int) -> None:
        """Keep *waiting*, for which there is room, until something arrives or *wait_ms* have passed."""
        key = waiting.kind, waiting.topic, waiting.group
        for topic in _sources(waiting):
            counts = self._topics.get(topic)
            if counts is None:
                counts = self._topics[topic] = {}
                self._arrivals.listen(topic, self.arrived)
            counts[key] = counts.get(key, 0) + 1
        self.park(waiting, self._parked_key(*key, waiting.queue_id), wait_ms)

    def arrived(
        self, topic: str, queue_id: int, next_offset: int, tags_code: int, store_ms: int, properties: bytes | None
    ) -> None:
        """Take note of a message that became readable; told of topics that somebody waits for.

        Args:
            topic: of the message.
            queue_id: of the message.
            next_offset: queue offset behind it.
            tags_code: its tags code.
            store_ms: when it was stored (wall time).
            properties: its raw properties; ``None`` where the store was not asked for them.
        """
        for kind, wanted, group in list(self._topics[topic]):
            self._wake_one(self._parked_key(kind, wanted, group, ANY_QUEUE), tags_code, properties)
            if wanted == topic:
                self._wake_one(self._parked_key(kind, wanted, group, queue_id), tags_code, properties)

    def wake(self, topic: str, group: str, queue_id: int, kind: str) -> bool:
        """Wake one waiter, whatever it wants; return whether there was one.

        Args:
            topic: that is waited for.
            group: that waits.
            queue_id: of the queue; -1 for any.
            kind: of waiting.
        """
        return self._wake_one(self._parked_key(kind, topic, group, queue_id), None, None)

    def wake_topics(self, topics: Set[str]) -> None:
        """Answer those who wait for *topics* now (they were deleted)."""
        waiting = [key for topic in self._topics.keys() & topics for key in self._topics[topic]]
        prefixes = {self._parked_key(*key, 0)[0] for key in waiting}
        for parked_key in [parked_key for parked_key in self._parked if parked_key[0] in prefixes] if prefixes else ():
            self._make_ready(self._parked.pop(parked_key).take_all())

    def _wake_one(self, parked_key: tuple[str, int], tags_code: int | None, properties: bytes | None) -> bool:
        waiting = self._parked.get(parked_key)
        if waiting is None:
            return False
        taken = waiting.take_one(tags_code, properties)
        if not waiting:
            del self._parked[parked_key]
        if taken is None:
            return False
        self._make_ready((taken,))
        return True

    def _leave(self, parked: ParkedPull) -> bool:
        left = super()._leave(parked)
        if left:
            assert isinstance(parked, WaitingPop)
            for topic in _sources(parked):
                counts = self._topics[topic]
                key = parked.kind, parked.topic, parked.group
                counts[key] -= 1
                if not counts[key]:
                    del counts[key]
                if not counts:
                    del self._topics[topic]
                    self._arrivals.leave(topic, self.arrived)
        return left


def _sources(waiting: WaitingPop) -> tuple[str, ...]:
    """Return the topics whose messages *waiting* may get. Differs: messages in both forms of retry topics wake."""
    group, topic = waiting.group, waiting.topic
    if waiting.queue_id != ANY_QUEUE:
        return (topic,)
    return topic, names.pop_retry_topic(group, topic), names.pop_retry_topic(group, topic, second_form=True)
