"""What a real master does after it was replaced, told from what nobody may do. Pure.

A real master that another one replaced finds that its slaves have left, at once or when it goes on after it stood
still. It takes them out of its own set, asks
the controllers only afterwards, and in a set of its own it acknowledges what waits and shows all of its log to readers.
It learns a moment later that another one is master, and cuts what it acknowledged and showed. So these are its doing:

* an acknowledged message is lost, when a real master acknowledged it after another one was named;
* two messages come from one offset, when one of them was read from the end of such a log, and was cut;
* a message is never delivered to a group that had read beyond it there: its progress ran ahead.

Everything else is a violation, whoever was master. A master of ours asks first: it acknowledges nothing then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from understudy.format.record import RecordError, decode_record
from understudy.testkit.history import Violation

Queue = tuple[str, str, int]


@attrs.frozen
class Reign:
    """The controllers named a master.

    Attributes:
        port: where it listens.
        epoch: of it.
        at: monotonic seconds when that was seen.
        since: when the controllers were asked last that still named another one: it was named after that; *at* when
            nobody asked before.
    """

    port: int
    epoch: int
    at: float
    since: float = attrs.field(default=attrs.Factory(lambda self: self.at, takes_self=True))


@attrs.frozen
class Acknowledgement:
    """Who said of a message that it is stored.

    Attributes:
        port: where that broker listens.
        position: of the message in its log (bytes).
        at: monotonic seconds when the answer came.
        queue_offset: of the message in its queue.
    """

    port: int
    position: int
    at: float
    queue_offset: int = -1


@attrs.frozen
class Reading:
    """A message that was delivered, and where it had been stored.

    Attributes:
        key: of the message.
        group: that got it.
        queue: topic, broker name and queue id it came from.
        offset: of it in the queue.
        stored: who stored it, where, and when it was delivered.
    """

    key: str
    group: str
    queue: Queue
    offset: int
    stored: Acknowledgement


@attrs.frozen
class Judge:
    """What a run left behind.

    Attributes:
        kinds: ``ours`` or ``java`` of the broker of each port.
        reigns: the masters, oldest first.
        log: of the group at the end, from its first byte on.
        acknowledged: who acknowledged each message.
        queues: where each message was acknowledged.
        readings: all deliveries.
    """

    kinds: Mapping[int, str]
    reigns: Sequence[Reign]
    log: bytes
    acknowledged: Mapping[str, Acknowledgement]
    queues: Mapping[str, Queue]
    readings: Sequence[Reading]

    def explain(self, violation: Violation) -> str | None:
        """Return how a real master that was replaced did it; ``None`` when it did not."""
        if violation.rule == "lost":
            return self._why_lost(violation.keys[0], violation.group)
        if violation.rule == "offset" and violation.place is not None:
            return self._why_twice(*violation.place)
        return None

    def replaced_for(self, stored: Acknowledgement) -> float | None:
        """Return for about how many seconds a real master had been replaced; ``None``: ours, or in office."""
        if self.kinds.get(stored.port) != "java":
            return None
        until = [reign for reign in self.reigns if reign.since <= stored.at]
        if not until or until[-1].port == stored.port:
            return None
        own = [number for number, reign in enumerate(until) if reign.port == stored.port]
        return stored.at - until[own[-1] + 1].since if own else None

    def is_kept(self, key: str, position: int) -> bool:
        """Return whether the log has message *key* at byte *position*."""
        size = int.from_bytes(self.log[position : position + 4], "big")
        try:
            return decode_record(self.log[position : position + size]).body == key.encode()
        except RecordError:
            return False

    def _was_shown(self, reading: Reading) -> float | None:
        """Return for how long the master had been replaced that showed this message, which is cut; else ``None``."""
        if self.is_kept(reading.key, reading.stored.position):
            return None
        return self.replaced_for(reading.stored)

    def _why_lost(self, key: str, group: str) -> str | None:
        stored = self.acknowledged.get(key)
        if stored is None:
            return None
        if not self.is_kept(key, stored.position):
            seconds = self.replaced_for(stored)
            return None if seconds is None else f"acknowledged {self._by(stored, seconds)}"
        for reading in self.readings:
            if reading.group == group and reading.queue == self.queues.get(key):
                seconds = self._was_shown(reading)
                if seconds is not None and reading.offset >= stored.queue_offset >= 0:
                    read = f"{group} had read up to offset {reading.offset} of that queue"
                    return f"{read}, {self._by(reading.stored, seconds)}"
        return None

    def _why_twice(self, queue: Queue, offset: int) -> str | None:
        here = {reading.key: reading for reading in self.readings if (reading.queue, reading.offset) == (queue, offset)}
        cut = [each for each in here.values() if not self.is_kept(each.key, each.stored.position)]
        shown = [self._was_shown(each) for each in cut]
        if not cut or None in shown or len(here) - len(cut) > 1:
            return None
        return f"read {self._by(cut[0].stored, shown[0] or 0.0)}"

    def _by(self, stored: Acknowledgement, seconds: float) -> str:
        return f"by or from the real master at port {stored.port}, {seconds:.3f} s after another one was named"
