"""What clients do while a simulated ring loses a master: they send, in order or delayed, and note what came when."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

import attrs
import trio

from understudy.mqclient.errors import ClientError
from understudy.mqclient.listener import ConsumeContext
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.producer import Producer
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.sending import SendStatus
from understudy.testkit.drills.acting_kinds import DELAYED, ORDERED, TIMED, Kind
from understudy.testkit.drills.acting_losses import may_be_lost
from understudy.testkit.drills.acting_repeats import Repeat
from understudy.testkit.drills.lateness import Due
from understudy.testkit.drills.met_faults import LONGEST_DELAY_SECONDS, Home, Met
from understudy.testkit.history import History, Verdict

TOPIC, READERS = "orders", "readers"
SEND_SECONDS = 0.2
_PLAIN, _LEVELS, _TIMERS = "sender-", "delayed-", "timed-"
_SENDERS = 3
_DELAYED_SENDERS = 2
_TIMED_SENDERS = 2
_DRAIN_SECONDS = 90.0
_OFFSET_DIGITS = 16
"""Hexadecimal digits of a physical offset, at the end of an offset message id."""


@attrs.frozen
class Delays:
    """How long messages wait that are delayed; all in seconds.

    Attributes:
        levels: of each delay level that is drawn.
        timers: the least and the most of a timer message.
        longest: how long a message waits at the most, for the judge and for the patience at the end.
    """

    levels: Mapping[int, float]
    timers: tuple[float, float]
    longest: float


SHORT_DELAYS = Delays({1: 1.0, 2: 5.0, 3: 10.0}, (0.2, 12.0), LONGEST_DELAY_SECONDS)
LONG_DELAYS = Delays({1: 1.0, 2: 5.0, 3: 10.0, 4: 30.0}, (0.2, 50.0), 50.0)
"""With these something falls due in every part of a failover, also long after the master was lost."""


async def hold_open(
    application: AbstractAsyncContextManager[None], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run an application beside the others until cancelled; it has started when it is open."""
    async with application:
        task_status.started()
        await trio.sleep_forever()


class SimulatedTraffic:
    """Three senders of plain messages, two of delayed ones, and a listener; all write one history.

    Two more send timer messages, where they are asked for.

    Args:
        source: delays are drawn from it.
        pause_seconds: how long each sender waits between its messages.
        timers: whether there are timer messages, too; they count as delayed ones.
        delays: how long what is delayed waits.

    Attributes:
        history: what was sent and delivered.
        due: when each delayed message was due by its sender's clock, in virtual seconds.
        answered: when each acknowledged message was acknowledged, in virtual seconds.
        came: when each message was delivered, each time; virtual seconds.
        places: from which group it came, each time, and the end of its record in that log (bytes).
        early_seconds, late_seconds: how much a delayed message was early or late, at the most.
        on_acknowledged: called with the group that stored a message, and where in its log (bytes).
    """

    def __init__(
        self,
        source: random.Random,
        pause_seconds: float,
        *,
        timers: bool = False,
        delays: Delays = SHORT_DELAYS,
    ) -> None:
        self._source = source
        self._delays = delays
        self._pause_seconds = pause_seconds
        self._timed_senders = _TIMED_SENDERS if timers else 0
        self.history = History()
        self.early_seconds = 0.0
        self.late_seconds = 0.0
        self.due: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        self.answered: dict[str, float] = {}
        self.came: dict[str, list[float]] = {}
        self.places: dict[str, list[tuple[str, int]]] = {}
        self.on_acknowledged: Callable[[str, int], None] = lambda group, physical_offset: None
        self._sending = True
        self._senders_left = 0

    def start(self, nursery: trio.Nursery, producer: Producer) -> None:
        """Start the senders."""
        for number in range(_SENDERS):
            nursery.start_soon(self._send, producer, f"{_PLAIN}{number}", None)
        for number in range(_DELAYED_SENDERS):
            nursery.start_soon(self._send, producer, f"{_LEVELS}{number}", self._level)
        for number in range(self._timed_senders):
            nursery.start_soon(self._send, producer, f"{_TIMERS}{number}", self._timer)

    def stop(self) -> None:
        """Let every sender end after the message it is sending."""
        self._sending = False

    def stopped(self) -> bool:
        """Whether every sender has ended."""
        return self._senders_left == 0

    def counts(self, verdict: Verdict) -> Counter[str]:
        """Return how much was sent, delivered, delivered again, lost and disordered."""
        delivered = Counter(each.key for each in self.history.deliveries)
        return Counter(
            {
                "sent": verdict.sent,
                "delivered": verdict.delivered,
                "delivered delayed": sum(key in self.due for key in delivered),
                "lost": sum(each.rule == "lost" for each in verdict.violations),
                "out of order": sum(each.rule == "order" for each in verdict.violations),
            }
        )

    def kinds(self, may_be_lost: set[str], early_seconds: float) -> list[Kind]:
        """Return the figures of each kind.

        Args:
            may_be_lost: what need not come.
            early_seconds: so much before its time a message may come, for clocks jumped.
        """
        acknowledged = [each.key for each in self.history.sends if each.acknowledged]

        def figures(name: str, prefix: str) -> Kind:
            sent = [key for key in acknowledged if key.startswith(prefix)]
            came = [key for key in sent if key in self.came]
            late = tuple(self.came[key][0] - self.due.get(key, self.answered[key]) for key in came)
            again = sum(len(times) - 1 for key, times in self.came.items() if key.startswith(prefix))
            lost = sum(key not in self.came and key not in may_be_lost for key in sent)
            wrong = sum(seconds < -early_seconds for seconds in late) if prefix != _PLAIN else 0
            return Kind(name, len(sent), len(came), again, lost, wrong, late)

        kinds = [figures(ORDERED, _PLAIN), figures(DELAYED, _LEVELS)]
        return [*kinds, figures(TIMED, _TIMERS)] if self._timed_senders else kinds

    def lost_by_promise(self, met_by: Callable[[str | None], tuple[Met, ...]]) -> set[str]:
        """Return the acknowledged messages that never came and may be missing; *met_by* as for :meth:`repeats`."""
        return {
            sent.key
            for sent in self.history.sends
            if sent.acknowledged
            and sent.key not in self.came
            and sent.queue is not None
            and may_be_lost(self.answered[sent.key], self.due.get(sent.key), met_by(sent.queue[1]))
        }

    def perhaps_gone(self, met_by: Callable[[str | None], tuple[Met, ...]]) -> set[str]:
        """Return the messages that came and may have been lost afterwards: others may stand at their offsets by now.

        The copy of a delayed one was stored when it was due or, if a slave had to begin to act first, before it came.
        """
        gone = set()
        for delivery in self.history.deliveries:
            key = delivery.key
            first = self.came[key][0]
            stored = min(first, self.due.get(key, self.answered.get(key, first)))
            latest = first if key in self.due else stored
            if any(met.home is Home.MASTER and met.took(stored, latest) for met in met_by(delivery.queue[1])):
                gone.add(key)
        return gone

    def repeats(
        self,
        met_by: Callable[[str | None], tuple[Met, ...]],
        hosts: Callable[[str | None], frozenset[str]],
        had: Callable[[str, int, float, float], bool] = lambda group, end, begin, until: False,
        ran_out: Callable[[MessageQueue], tuple[float, ...]] = lambda queue: (),
        acted: Callable[[str], tuple[tuple[float, str], ...]] = lambda group: (),
    ) -> list[Repeat]:
        """Return every message that came more than once.

        Args:
            met_by: the faults of the run, seen from the group that stored a message (``None``: not known).
            hosts: returns those that have a member of a group (``None``: not known which).
            had: whether each slave of a group that began to act between two times (virtual seconds) had the group's
                log up to an end (bytes) by then; False when none did.
            ran_out: when the lock of a queue ran out that nobody could renew (virtual seconds).
            acted: when slaves of a group began to act (virtual seconds), and their hosts.
        """
        stored = {sent.key: None if sent.queue is None else sent.queue[1] for sent in self.history.sends}
        read = {each.key: MessageQueue(*each.queue) for each in self.history.deliveries}

        def recognizable(key: str, came: Sequence[float]) -> bool:
            (first, end), second = self.places[key][0], self.places[key][1][0]
            return first == stored[key] != second and had(first, end, came[0], came[1])

        found = []
        for key, came in self.came.items():
            if len(came) < 2:
                continue
            group, met = stored[key], met_by(stored[key])
            repeat = Repeat(
                key,
                key in self.due,
                _put_out(key, self.due.get(key, came[0])),
                tuple(came),
                met,
                hosts(group),
                recognizable(key, came),
                tuple(self.places[key]),
                self._delays.longest,
                ran_out(read[key]) if key in read else (),
                self._due_by_clock(key, met),
                () if group is None else acted(group),
            )
            found.append(repeat)
        return found

    def _due_by_clock(self, key: str, met: Iterable[Met]) -> tuple[float, ...]:
        """Return when a message was due by the clock of its master, where that was stepped when it stored it."""
        stored = self.answered.get(key, math.inf) if key in self.due else math.inf
        jumps = [each.jump_seconds for each in met if each.home is Home.MASTER and each.begin <= stored <= each.end]
        return tuple(_put_out(key, self.due[key] + jump) for jump in jumps if jump)

    def dues(self, group: str) -> list[float]:
        """Return when each delayed message was due (virtual seconds) that *group* of brokers has acknowledged."""
        sent = [each for each in self.history.sends if each.acknowledged and each.queue is not None]
        return [self.due[each.key] for each in sent if each.key in self.due and each.queue and each.queue[1] == group]

    def came_late(self) -> list[Due]:
        """Return when each delayed message came that some group of brokers had acknowledged.

        It was due as long after that as it was to wait: a broker that stood still stores it when it goes on.
        """
        stored = {
            each.key: each.queue[1] for each in self.history.sends if each.acknowledged and each.queue is not None
        }
        keys = [key for key in self.due if key in stored and key in self.came]
        waited = {key: self.answered[key] - self._asked[key] for key in keys}
        return [
            Due(key, stored[key], self.answered[key], _put_out(key, self.due[key] + waited[key]), self.came[key][0])
            for key in keys
        ]

    def _level(self) -> tuple[dict[str, str], float]:
        drawn = self._source.choice(tuple(self._delays.levels))
        return {"DELAY": str(drawn)}, self._delays.levels[drawn]

    def _timer(self) -> tuple[dict[str, str], float]:
        milliseconds = round(self._source.uniform(*self._delays.timers) * 1000)
        return {"TIMER_DELAY_MS": str(milliseconds)}, milliseconds / 1000

    async def _send(
        self, producer: Producer, sender: str, wait: Callable[[], tuple[dict[str, str], float]] | None
    ) -> None:
        """Send until told to stop; *wait* draws the properties of a message that waits, and its seconds."""
        self._senders_left += 1
        number = 0
        while self._sending:
            key = f"{sender}-{number}"
            properties: dict[str, str] = {}
            if wait is not None:
                properties, seconds = wait()
                self.due[key] = trio.current_time() + seconds
            number += 1
            self._asked[key] = trio.current_time()
            try:
                sent = await producer.send(Message(TOPIC, key.encode(), properties))
            except ClientError:
                self.history.sent(key, key if wait is not None else sender, None, acknowledged=False)
            else:
                self.answered[key] = trio.current_time()
                queue = (sent.queue.topic, sent.queue.broker_name, sent.queue.queue_id)
                if sent.status is SendStatus.OK:
                    self.on_acknowledged(sent.queue.broker_name, int(sent.offset_message_id[-_OFFSET_DIGITS:], 16))
                # Delayed messages arrive when they are due: each is a sender of its own.
                self.history.sent(key, key if wait is not None else sender, queue, acknowledged=True)
            await trio.sleep(self._pause_seconds)
        self._senders_left -= 1

    async def listen(self, batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        """Note what came; the listener of the consumer group."""
        queue = (context.queue.topic, context.queue.broker_name, context.queue.queue_id)
        for each in batch:
            key = each.body.decode()
            self.history.delivered(key, READERS, queue, each.queue_offset)
            self.came.setdefault(key, []).append(trio.current_time())
            self.places.setdefault(key, []).append((queue[1], each.commit_log_offset + each.stored_bytes))
            if key in self.due:
                late = trio.current_time() - self.due[key]
                self.early_seconds = max(self.early_seconds, -late)
                self.late_seconds = max(self.late_seconds, late)

    async def drain(self, met_by: Callable[[str | None], tuple[Met, ...]]) -> None:
        """Wait until all acknowledged messages have come that must come, for a bounded time."""
        wanted = {sent.key for sent in self.history.sends if sent.acknowledged} - self.lost_by_promise(met_by)
        with trio.move_on_after(_DRAIN_SECONDS + self._delays.longest - LONGEST_DELAY_SECONDS):
            while wanted - {each.key for each in self.history.deliveries}:  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.5)


def _put_out(key: str, due: float) -> float:
    """Return when a broker delivers a message that is *due*: the timer does it when a second is over."""
    return math.ceil(due) if key.startswith(_TIMERS) else due
