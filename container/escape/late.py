"""What a master elsewhere stored late: it is asked until the message is as safe there as an acknowledged send.

A master that answers 10, 11 or 12 has the message in its log, but not on its disk, or not at its slaves, within its
timeouts. Put once more it would come twice; counted as done it could be lost with the power of that machine. So:

* That master is asked for the end of its log and for what waits for its disk (28), and how far its slaves have
  confirmed (907), for as long as it answers: late is better than twice. Only slaves that count as in sync there are
  waited for, as in the own log; where there are none, the disk is enough.
* Then it is asked for what stands where it put the message (33). A master that lost it with its power, and is back, has
  nothing or something else there: then the message is put again, and comes once.
* When that master says nothing sensible for :data:`SILENCE_SECONDS`, nobody can tell. Then the promise of the own group
  decides (:func:`done`): with ``SYNC_FLUSH`` the message is put again and may come twice; without it, it may be lost.

Source of the figures: AdminBrokerProcessor.java, MixAll.java, HARuntimeInfo.java.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import attrs

from understudy.format.json_dialect import JsonError
from understudy.format.record import Record, RecordError, decode_records
from understudy.remoting.bodies import json_value
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.runtime.clock import Clock
from understudy.runtime.threads import Threads

T = TypeVar("T")

LOOK_SECONDS = 0.2
"""Pause between two questions."""
SILENCE_SECONDS = 20.0
"""How long a master may say nothing sensible: enough for a restart, or for it to notice that a slave is gone."""

_BYTES = re.compile(r"(\d+)(?:[.,](\d))? ([KMGTPE]?)i?B")
_NOT_AN_ANSWER = (AttributeError, JsonError, KeyError, TypeError, ValueError)


class Fate(enum.Enum):
    """What is known of a message that was stored late."""

    SAFE = "safe"
    GONE = "gone"
    UNKNOWN = "unknown"


def done(fate: Fate, *, promised: bool) -> bool:
    """Return whether a message is not to be put again.

    Args:
        fate: of the copy.
        promised: the own group promised that it survives a loss of power (``SYNC_FLUSH``).
    """
    return fate is Fate.SAFE or (fate is Fate.UNKNOWN and not promised)


@attrs.frozen
class Stored:
    """What a master said that it stored.

    Attributes:
        physical_offset: where it begins in the log there; ``None`` when that cannot be read.
        body, born_ms: of the message.
    """

    physical_offset: int | None
    body: bytes | memoryview
    born_ms: int

    def stands_in(self, record: Record) -> bool:
        """Return whether *record* is this message."""
        same_place = record.physical_offset == self.physical_offset
        return same_place and record.born_ms == self.born_ms and record.body == self.body


def most_bytes(text: str) -> int:
    """Return the most bytes that *text* for people can mean, ``1.2 KiB``. Raises ``ValueError`` when it is none."""
    matched = _BYTES.fullmatch(text)
    if matched is None:
        raise ValueError(f"{text!r} is no number of bytes")
    whole, tenths, unit = matched.groups()
    if not unit:
        return int(whole)
    tenths_at_most = int(whole) * 10 + int(tenths or 0) + 0.5
    return math.ceil(tenths_at_most * (1 << 10 * " KMGTPE".index(unit)) / 10)


def ends(table: Mapping[str, str]) -> tuple[int, int]:
    """Return from runtime information the end of a log, and before which position it is certainly durable, in bytes.

    The end is taken before the rest, there and here: what came in between makes the second too small, never too large.
    """
    end = int(table["commitLogMaxOffset"])
    return end, end - most_bytes(table["remainHowManyDataToFlush"])


def copied(status: Mapping[str, Any], end: int) -> int:
    """Return the position before which every slave in sync has everything, *end* when there is none.

    Args:
        status: how a master's slaves are (907).
        end: of the master's log.
    """
    rows = status["haConnectionInfo"]
    return min((int(each["slaveAckOffset"]) for each in rows if each["inSync"]), default=end)


class LateCopies:
    """Messages that one master stored late.

    Args:
        clock: for pauses and patience.
        threads: for large answers.
        ask: sends a request to that master; ``None`` when no answer comes.
    """

    def __init__(self, clock: Clock, threads: Threads, ask: Callable[[Command], Awaitable[Command | None]]) -> None:
        self._clock = clock
        self._threads = threads
        self._ask = ask

    async def fates(self, stored: Sequence[Stored], *, copies: bool) -> list[Fate]:
        """Return what became of each of *stored*, when it is known or cannot be.

        Args:
            stored: what the master said that it stored.
            copies: whether it said of one of them that slaves were late; else its disk was.
        """
        if not await self._is_safe(copies=copies):
            return [Fate.UNKNOWN] * len(stored)
        return [await self._patiently(partial(self._look, each)) or Fate.UNKNOWN for each in stored]

    async def _is_safe(self, *, copies: bool) -> bool:
        """Wait until all is safe that the log holds now; return whether that is known."""
        mark: int | None = None
        while True:
            found = await self._patiently(partial(self._progress, copies=copies))
            if found is None:
                return False
            end, safe = found
            mark = end if mark is None else min(mark, end)  # a log that was cut ends before
            if safe >= mark:
                return True
            await self._clock.sleep(LOOK_SECONDS)

    async def _patiently(self, question: Callable[[], Awaitable[T | None]]) -> T | None:
        """Return what *question* finds, ``None`` when it finds nothing for too long."""
        until = self._clock.monotonic() + SILENCE_SECONDS
        while (found := await question()) is None and self._clock.monotonic() < until:
            await self._clock.sleep(LOOK_SECONDS)
        return found

    async def _progress(self, *, copies: bool) -> tuple[int, int] | None:
        """Return the end of the log, and before which position everything is safe."""
        info = await self._json(RequestCode.GET_BROKER_RUNTIME_INFO)
        status: Any = await self._json(RequestCode.GET_BROKER_HA_STATUS) if copies else None
        try:
            end, durable = ends(info["table"])
            return end, min(durable, copied(status, end)) if copies else durable
        except _NOT_AN_ANSWER:
            return None

    async def _json(self, code: int) -> Any:
        answer = await self._ask(request(code))
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return None
        try:
            return await json_value(self._threads, answer.body)
        except _NOT_AN_ANSWER:
            return None

    async def _look(self, stored: Stored) -> Fate | None:
        """Return whether *stored* is where it was put, ``None`` when that was not answered."""
        if stored.physical_offset is None:
            return Fate.UNKNOWN
        answer = await self._ask(request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(stored.physical_offset)}))
        if answer is None or answer.code not in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR):
            return None
        if answer.code == ResponseCode.SYSTEM_ERROR:
            return Fate.GONE
        try:
            return Fate.SAFE if any(map(stored.stands_in, decode_records(answer.body))) else Fate.GONE
        except RecordError:
            return Fate.GONE
