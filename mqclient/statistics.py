"""Figures of a consumer by topic, as running reports show them (ConsumeStatus.java)."""

from __future__ import annotations

from collections import defaultdict, deque

import attrs

from understudy.runtime.clock import Clock

_WINDOW_SECONDS = 60.0
_SLOT_SECONDS = 5.0


@attrs.define
class _Slot:
    began: float
    succeeded: int = 0
    failed: int = 0
    took_ms: float = 0.0


@attrs.frozen
class TopicFigures:
    """What happened to one topic in the last minute (``failed_total`` in the last hour of this process)."""

    succeeded_per_second: float
    failed_per_second: float
    mean_ms: float
    failed_total: int


class ConsumeStatistics:
    """Counts consumed messages in slots of five seconds, a minute of them for each topic."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._slots: dict[str, deque[_Slot]] = defaultdict(lambda: deque(maxlen=round(_WINDOW_SECONDS / _SLOT_SECONDS)))
        self._failed: dict[str, int] = defaultdict(int)

    def consumed(self, topic: str, messages: int, succeeded: bool, began: float, now: float) -> None:
        """Count *messages* that are done.

        Args:
            topic: of the messages.
            messages: how many there were.
            succeeded: whether the listener consumed them.
            began: when the listener got the first of them (monotonic seconds).
            now: when it was done with them.
        """
        slots = self._slots[topic]
        if not slots or now - slots[-1].began >= _SLOT_SECONDS:
            slots.append(_Slot(now))
        slot = slots[-1]
        slot.took_ms += (now - began) * 1000
        if succeeded:
            slot.succeeded += messages
        else:
            slot.failed += messages
            self._failed[topic] += messages

    def figures(self, topic: str) -> TopicFigures:
        """Return the figures of *topic*."""
        now = self._clock.monotonic()
        slots = [slot for slot in self._slots.get(topic, ()) if now - slot.began <= _WINDOW_SECONDS]
        succeeded = sum(slot.succeeded for slot in slots)
        failed = sum(slot.failed for slot in slots)
        took_ms = sum(slot.took_ms for slot in slots)
        count = succeeded + failed
        return TopicFigures(
            succeeded / _WINDOW_SECONDS,
            failed / _WINDOW_SECONDS,
            took_ms / count if count else 0.0,
            self._failed.get(topic, 0),
        )
