"""What waits in a broker, for how long, why, and what an operator can do about it. Pure.

Four kinds of work wait in a broker: half messages for a decision, popped messages for their acknowledgement or their
second coming, timer messages and delayed ones for their time. A row says of one half message, one queue of the revive
topic, the timer, or one delay level what holds it up. What waits for its time only is told, too, so that nobody
searches for it elsewhere; it says ``nothing is wrong``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from understudy.broker.transactions.checking import CheckRules
from understudy.broker.transactions.half import Half

HALF, POP, TIMER, DELAY = "half", "pop", "timer", "delay"
KINDS = (HALF, POP, TIMER, DELAY)
LATE_MS = 5_000
"""Work that is overdue by less is on its way."""
NOTHING_WRONG = "nothing is wrong: "
_QUEUES = {POP: "revive queue", TIMER: "timer queue", DELAY: "delay level"}


def place_of(kind: str, queue: int, offset: int) -> str:
    """Return how a row names one message of *kind*: its queue, or delay level, and its offset there."""
    return f"{_QUEUES[kind]} {queue}, offset {offset}"


@attrs.frozen
class Waiting:
    """One row.

    Attributes:
        kind: one of :data:`KINDS`.
        place: where it stands, for people.
        count: how many messages.
        topic, group: whose, ``""`` where it is not one's.
        waits_ms: since when it waits, or how long it is overdue; below 0, the time until it is due.
        why: why it waits, one sentence.
        advice: what to do, one sentence; ``""`` when nothing needs to be done.
    """

    kind: str
    place: str
    count: int
    topic: str
    group: str
    waits_ms: int
    why: str
    advice: str = ""

    @property
    def stuck(self) -> bool:
        """Whether more than time is missing."""
        return not self.why.startswith(NOTHING_WRONG)

    def to_json(self) -> Mapping[str, Any]:
        """Return it as an answer has it."""
        return {
            "kind": self.kind,
            "place": self.place,
            "count": self.count,
            "topic": self.topic,
            "group": self.group,
            "waitsMs": self.waits_ms,
            "stuck": self.stuck,
            "why": self.why,
            "advice": self.advice,
        }


@attrs.frozen
class Look:
    """What all rows depend on.

    Attributes:
        now_ms: wall time.
        active: whether this broker looks after what is stored.
        reason: why it does, or does not.
    """

    now_ms: int
    active: bool
    reason: str

    def _idle(self) -> tuple[str, str]:
        return f"this broker does not look after it: {self.reason}", "ask the broker of the group that does"

    def half(self, half: Half, rules: CheckRules, producers: int, interval_ms: int) -> Waiting:
        """Return the row of an undecided half message.

        Args:
            half: its newest copy.
            rules: when it is checked, and how often.
            producers: how many connections its producer group has.
            interval_ms: time between two looks.
        """
        group = half.group or ""
        age_ms = self.now_ms - half.record.born_ms
        asked = f"asked {half.checks} of {rules.most_checks} times"
        immune_ms = half.immunity_ms(rules.timeout_ms)
        if not self.active:
            why, advice = self._idle()
        elif not group:
            why, advice = "it names no producer group, nobody can be asked", f"it is given up after {asked}"
        elif age_ms <= immune_ms:
            why = f"{NOTHING_WRONG}its producer may decide until it is {immune_ms / 1000:g} s old"
            advice = ""
        elif half.checks >= rules.most_checks:
            why = f"{asked}, it is given up at the next look"
            advice = (
                "decide about it with --commit or --rollback; request 323 has it checked again from "
                "TRANS_CHECK_MAX_TIME_TOPIC (no command has that)"
            )
        elif not producers:
            why = f"no producer of {group} is connected, nobody can be asked ({asked})"
            advice = f"start a producer of {group}: any one of the group is asked within {interval_ms / 1000:g} s"
        else:
            why = f"its producer does not know yet, or does not answer ({asked}, {producers} connected)"
            advice = f"look into the logs of {group} for {half.pairs.get('UNIQ_KEY', 'its key')}"
        place = f"half queue {half.record.queue_id}, offset {half.offset}"
        return Waiting(HALF, place, 1, half.topic, group, age_ms, why, advice)

    def pop(self, queue: int, entries: int, due_ms: int, timer_behind: bool) -> Waiting:
        """Return the row of a queue of the revive topic.

        Args:
            queue: its number.
            entries: check points and acknowledgements that are not worked off.
            due_ms: when the first open check point was due, 0 when none is open.
            timer_behind: the timer may hold acknowledgements of it.
        """
        late_ms = self.now_ms - due_ms if due_ms else 0
        if not self.active:
            why, advice = self._idle()
        elif late_ms <= LATE_MS:
            why, advice = f"{NOTHING_WRONG}its consumers have time, or it is worked off right now", ""
        elif timer_behind:
            why = "the timer is behind, acknowledgements may still be in it"
            advice = "see the row of the timer"
        else:
            why = "what was not acknowledged cannot be put into its retry topic"
            advice = "look into the log of the broker for 'broker.revive': the disk, or no master that takes it"
        return Waiting(POP, f"revive queue {queue}", entries, "", "", late_ms, why, advice)

    def acting_pops(self, points: int, acks: int, due_ms: float) -> Waiting:
        """Return the row of what a slave handed out for its master.

        Args:
            points: check points that wait.
            acks: acknowledged check points of the master's.
            due_ms: wall time when the first check point is due; infinity when there is none.
        """
        late_ms = int(self.now_ms - due_ms) if points else 0
        if late_ms > LATE_MS and self.active:
            why = "what was not acknowledged finds no master that takes it"
            advice = "start a master beside this broker, or set enableRemoteEscape=true"
        elif late_ms > LATE_MS:
            why = f"this broker handed it out for its master and does not act any more: {self.reason}"
            advice = (
                "a master of ours takes it when it comes back; with one of the reference, let this broker act again"
            )
        else:
            why, advice = f"{NOTHING_WRONG}it goes home to the master when that one is back ({acks} acknowledged)", ""
        return Waiting(POP, "handed out by the acting slave", points + acks, "", "", late_ms, why, advice)

    def timer(self, waiting: int, behind: int, late_ms: int, next_due_ms: int | None) -> Waiting:
        """Return the row of the timer.

        Args:
            waiting: messages in the wheel.
            behind: messages of its topic that are not in the wheel yet.
            late_ms: how long the first one is overdue.
            next_due_ms: wall time when it is due; ``None`` when the wheel is empty.
        """
        waits_ms = late_ms or (self.now_ms - next_due_ms if next_due_ms is not None else 0)
        if not self.active:
            why, advice = self._idle()
        elif late_ms > LATE_MS:
            why = "what is due is not taken where it goes"
            advice = "look into the log of the broker for 'broker.deferred': the disk, or no master that takes it"
        elif behind > 0 and not waiting:
            why, advice = f"{behind} messages of the timer's topic are not in the wheel yet", "wait: it is reading them"
        else:
            why, advice = f"{NOTHING_WRONG}its time has not come", ""
        return Waiting(TIMER, "timer", waiting + behind, "", "", waits_ms, why, advice)

    def level(self, level: int, waiting: int, due_ms: int) -> Waiting:
        """Return the row of a delay level.

        Args:
            level: its number.
            waiting: messages that are not delivered.
            due_ms: wall time when the first of them is due.
        """
        late_ms = self.now_ms - due_ms
        if not self.active:
            why, advice = self._idle()
        elif late_ms > LATE_MS:
            why = "what is due is not taken where it goes"
            advice = "look into the log of the broker for 'broker.deferred': the disk, or no master that takes it"
        else:
            why, advice = f"{NOTHING_WRONG}its time has not come", ""
        return Waiting(DELAY, f"delay level {level}", waiting, "", "", late_ms, why, advice)

    def single(self, kind: str, place: str, topic: str, group: str, due_ms: int) -> Waiting:
        """Return the row of one message that was due and is neither delivered nor back, or one check point.

        Args:
            kind: any but half messages.
            place: from :func:`place_of`.
            topic: where it goes, or was popped.
            group: that popped it, else ``""``.
            due_ms: wall time when it was due.
        """
        late_ms = self.now_ms - due_ms
        if not self.active:
            why, advice = self._idle()
        elif late_ms <= LATE_MS:
            why, advice = f"{NOTHING_WRONG}it is worked off right now, or its time has not come", ""
        else:
            why = "it is not taken where it goes, or what stands in front of it is not"
            advice = "--requeue lets it wait behind the others once more, --drop has nobody get it"
        return Waiting(kind, place, 1, topic, group, late_ms, why, advice)
