"""One queue of delayed messages at a slave that acts, and a master elsewhere to which they go; for scenario files.

What is put, what its answer means, what is asked of a message that was stored late and how far progress moves is
decided by the product's own functions. This module is the queue, the connection and the other master's words:

=========================================  ==================================================================
``delayed 3 SYNC_FLUSH``                   messages 0, 1 and 2 are due; ``flushDiskType`` of the own group
``due``                                    it is time to look; the pause after a failed put is over
``answers 0 10 -``                         what the other master answers to each put; - for nothing
``says end 900 unflushed 1 KiB``           how far its log goes, and how much of it waits for its disk
``says end 900 unflushed 0 B slaves 700``  the same, and up to where each slave in sync there has copied
``shows 1``, ``shows not 1``               what it has where it stored message 1: the message, or something else
``silent``                                 it says nothing sensible for 20 s
``crash``                                  the slave's process ends; its progress is on its disk
=========================================  ==================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scenario_members import Transcript

from understudy.broker.deferred import (
    NEVER,
    RETRY_MS,
    DeferredQueue,
    Due,
    Event,
    Found,
    Item,
    Move,
    Put,
    Read,
    Settled,
    step,
)
from understudy.broker.inner import InnerMessage
from understudy.container.escape.choice import LATE, put_status
from understudy.container.escape.late import Fate, copied, done, ends
from understudy.store.status import PutStatus


class DelayedRoom(Transcript):
    """The queue, and what is under way."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__()
        self._count, self._promised = int(words[0]), words[1] == "SYNC_FLUSH"
        self._queue = DeferredQueue()
        self._progress = 0
        self._put: tuple[int, ...] = ()
        self._statuses: dict[int, PutStatus] = {}
        self._fates: dict[int, Fate | None] = {}
        self._mark: int | None = None
        self.commands: dict[str, Callable[[Sequence[str]], None]] = {
            "due": lambda words: self._due(),
            "answers": self._answers,
            "says": self._says,
            "shows": self._shows,
            "silent": lambda words: self._settle_late(dict.fromkeys(self._fates, Fate.UNKNOWN)),
            "crash": lambda words: self._crash(),
        }

    def _due(self) -> None:
        self.now += RETRY_MS / 1000
        self._do(Due(self._progress))

    def _do(self, event: Event) -> None:
        self._queue, actions = step(self._queue, event, self.now * 1000)
        for action in actions:
            match action:
                case Move(position):
                    self._progress = position
                    self.lines.append(f"progress: {position} of {self._count}")
                case Read(position):
                    numbers = range(position, self._count)
                    items = tuple(Item(n, InnerMessage("orders", 0, b"%d" % n, b"", 0, b"")) for n in numbers)
                    self._do(Found(items, self._count, NEVER))
                case Put(messages):
                    self._put = tuple(int(each.body) for each in messages)
                    self.lines.append(f"puts {' '.join(map(str, self._put))}")
        if self._queue.rests and self._queue.due_ms < NEVER:
            self.lines.append("tries again after a pause")

    def _answers(self, words: Sequence[str]) -> None:
        for number, word in zip(self._put, words, strict=True):
            self._statuses[number] = PutStatus.PUT_TO_REMOTE_BROKER_FAIL if word == "-" else put_status(int(word))
        late = [number for number in self._put if self._statuses[number] in LATE]
        for number in late:
            self.lines.append(f"{number} is in a log there, not safe yet: {self._statuses[number].value}")
        self._fates, self._mark = dict.fromkeys(late), None
        if not late:
            self._settle()

    def _says(self, words: Sequence[str]) -> None:
        end, durable = ends({"commitLogMaxOffset": words[1], "remainHowManyDataToFlush": " ".join(words[3:5])})
        slaves = [{"slaveAckOffset": word, "inSync": True} for word in words[6:]]
        safe = min(durable, copied({"haConnectionInfo": slaves}, end)) if slaves else durable
        self._mark = end if self._mark is None else min(self._mark, end)
        wanted = "asks what stands there" if safe >= self._mark else "asks again"
        self.lines.append(f"safe there: {safe} of {self._mark}; {wanted}")

    def _shows(self, words: Sequence[str]) -> None:
        number, fate = int(words[-1]), Fate.GONE if words[0] == "not" else Fate.SAFE
        self._settle_late({number: fate})

    def _settle_late(self, found: dict[int, Fate]) -> None:
        for number, fate in found.items():
            is_done = done(fate, promised=self._promised)
            self._statuses[number] = PutStatus.PUT_OK if is_done else PutStatus.PUT_TO_REMOTE_BROKER_FAIL
            self._fates[number] = fate
            self.lines.append(f"{number} is {fate.value} there: {'done' if is_done else 'to be put again'}")
        if None not in self._fates.values():
            self._settle()

    def _settle(self) -> None:
        self._do(Settled(tuple(self._statuses[number] is PutStatus.PUT_OK for number in self._put)))

    def _crash(self) -> None:
        self._queue, self._fates = DeferredQueue(), {}
