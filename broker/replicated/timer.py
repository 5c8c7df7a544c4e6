"""Progress of the timer as a table that travels (60), and how many messages of each topic wait (61).

The answer about progress is the reference's check. A replica of ours also tells how far it is in the second that it
delivers now, so that none of that second's messages is delivered again.

Source: SlaveSynchronize.java (syncTimerCheckPoint, syncTimerMetrics), TimerMetrics.java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from understudy.broker.log_history import LOG_HISTORY
from understudy.broker.merge import Limit, StampedOffset, Table, merge, stamped
from understudy.broker.replicated.rules import read_object
from understudy.broker.replicated.table import (
    Answer,
    Copying,
    FilePlan,
    KeptTable,
    Merged,
    ProgressTable,
    Source,
    Taken,
)
from understudy.broker.timer.done import Again, Done, Read, as_one, joined
from understudy.broker.timer.request import TIMER_QUEUE
from understudy.broker.timer.timer import Timer
from understudy.format.data_version import DataVersion
from understudy.format.names import TIMER_TOPIC
from understudy.remoting.codes import RequestCode
from understudy.store.timer_check import TimerCheck, decode_check

READ_PHYSICAL = "timerReadPhysicalOffset"
"""Header field of ours: in the second that is delivered next, messages before this byte of the log are done."""
LEFT = "timerLeft"
"""Header field of ours: what is left to do (two queue offsets, second, byte), how many messages are known."""
PARTS = "timerLeftParts"
"""Header field of ours: that in parts, if they are several (four numbers each); :data:`LEFT` holds all of them then."""
_KEY = "timer"


class ReplicatedTimer(ProgressTable):
    """How far the timer has delivered.

    Args:
        timer: the timer.
        file: how it is saved.
    """

    name = "timer"
    kind = "timer"
    code = RequestCode.GET_TIMER_CHECK_POINT
    optional = True
    in_queues = False

    def __init__(self, timer: Timer, file: FilePlan) -> None:
        self.timer = timer
        self.file = file

    def snapshot(self) -> dict[str, Any]:
        """See :class:`~understudy.broker.replicated.table.KeptTable`."""
        return self.timer.progress.to_json()

    def load(self, content: Mapping[str, Any]) -> None:
        """See :class:`~understudy.broker.replicated.table.KeptTable`."""
        self.timer.progress.merge_json(content)

    def watch(self, changed: Callable[[], None]) -> None:
        """See :class:`~understudy.broker.replicated.table.KeptTable`."""
        self.timer.progress.on_change.append(changed)

    def copying(self, source: Source) -> Copying:
        """See :class:`~understudy.broker.replicated.table.KeptTable`."""
        return _Following(self.timer)

    def asking(self) -> dict[str, str]:
        """See :class:`ProgressTable`."""
        return {LOG_HISTORY: ""}

    def stamped_offsets(self) -> Table:
        """Return the second that is delivered next, in milliseconds."""
        return stamped({_KEY: {TIMER_QUEUE: self.timer.progress.read.second_ms}})

    def queue_of(self, key: str, queue_id: int) -> tuple[str, int]:
        """See :class:`ProgressTable`."""
        return TIMER_TOPIC, TIMER_QUEUE

    def merge(self, answer: Answer, limit: Limit) -> Merged:
        """See :class:`ProgressTable`."""
        check, done = _read(answer)
        rows = merge(self.stamped_offsets(), stamped({_KEY: {TIMER_QUEUE: check.read_ms}}))
        most = limit(_KEY, TIMER_QUEUE)
        return Merged(rows, _version(check), done if most is None else done.within(most))

    def cut(self, offsets: Mapping[tuple[str, int], StampedOffset]) -> None:
        """Do nothing: what is not in the log any more is taken back from the wheel."""

    def put(self, merged: Merged) -> None:
        """See :class:`ProgressTable`."""
        assert isinstance(merged.answer, Done)
        self.timer.take_over(merged.answer)
        progress = self.timer.progress
        progress.version = max(progress.version, merged.version)


class _Following(Copying):
    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._former = Read()

    def question(self) -> dict[str, str]:
        return {}

    def take(self, answer: Answer) -> Taken:
        check, done = _read(answer)
        self._timer.follow(done, _version(check), back=done.read < self._former)
        self._former = done.read
        return Taken.ALL


def told(timer: Timer, check: TimerCheck) -> dict[str, str]:
    """Return the header fields of ours in the answer that tells a replica *check*."""
    read, left = timer.done.read, timer.done.left
    ext = {READ_PHYSICAL: str(read.physical if read.second_ms == check.read_ms else 0)}
    if left and timer.known >= left[-1].end:
        ext[LEFT] = f"{_text(as_one(left))} {timer.known}"
        if len(left) > 1:
            ext[PARTS] = " ".join(map(_text, left))
    return ext


def _read(answer: Answer) -> tuple[TimerCheck, Done]:
    check = decode_check(answer.body)
    if not 0 <= check.read_ms < 1 << 53:
        raise ValueError(f"a timer checkpoint with the time {check.read_ms}")
    (physical,) = _numbers(answer.ext, READ_PHYSICAL, "0", 1)
    read = Read(check.read_ms, physical)
    if LEFT not in answer.ext:  # a replica that follows need not have put into slots what it knows to be done
        return check, Done(read, max(check.master_queue_offset, 0))
    *one, known = _numbers(answer.ext, LEFT, "", 5)
    numbers = _numbers(answer.ext, PARTS, "", 4, several=True) if PARTS in answer.ext else one
    parts = [numbers[at : at + 4] for at in range(0, len(numbers), 4)]
    left = joined(Again(first, end, Read(second_ms, byte)) for first, end, second_ms, byte in parts)
    return check, Done(read, known, left)


def _text(part: Again) -> str:
    return f"{part.first} {part.end} {part.was.second_ms} {part.was.physical}"


def _version(check: TimerCheck) -> DataVersion:
    return DataVersion(check.state_version, check.counter, check.timestamp)


def _numbers(ext: Mapping[str, str], name: str, default: str, count: int, *, several: bool = False) -> list[int]:
    """Return the *count* numbers of a header field; or *several* times as many."""
    words = ext.get(name, default).split(" ")
    is_count = len(words) % count == 0 if several else len(words) == count
    if not is_count or not all(word.isascii() and word.isdigit() and len(word) < 20 for word in words):
        what = "a whole number" if count == 1 else f"{count} whole numbers"
        raise ValueError(f"{name} must be {what}, not {ext.get(name)!r}")
    return list(map(int, words))


class TimerMetrics(KeptTable):
    """How many messages of each topic wait in the timer.

    Args:
        timer: counts them while it delivers.
        file: how it is saved.
    """

    name = "timer metrics"
    code = RequestCode.GET_TIMER_METRICS
    optional = True

    def __init__(self, timer: Timer, file: FilePlan) -> None:
        self.timer = timer
        self.file = file

    def snapshot(self) -> dict[str, Any]:
        """See :class:`KeptTable`."""
        return metrics_of(self.timer)

    def load(self, content: Mapping[str, Any]) -> None:
        """See :class:`KeptTable`."""
        self.timer.waiting_of.clear()
        self.timer.waiting_of.update(_counts(content))

    def watch(self, changed: Callable[[], None]) -> None:
        """See :class:`KeptTable`."""
        self.timer.progress.on_change.append(changed)

    def copying(self, source: Source) -> Copying:
        """See :class:`~understudy.broker.replicated.table.ReplicatedTable`."""
        return _Counting(self)


class _Counting(Copying):
    def __init__(self, table: TimerMetrics) -> None:
        self._table = table

    def question(self) -> dict[str, str]:
        return {}

    def take(self, answer: Answer) -> Taken:
        if not self._table.timer.delivers:
            self._table.load(read_object(answer.body))
        return Taken.ALL


def metrics_of(timer: Timer) -> dict[str, Any]:
    """Return the counts as files and answers have them."""
    version = timer.progress.version
    counts = {
        topic: {"count": count, "timeStamp": version.timestamp} for topic, count in sorted(timer.waiting_of.items())
    }
    return {"dataVersion": version.to_json(), "timingCount": counts}


def _counts(content: Mapping[str, Any]) -> dict[str, int]:
    table = content.get("timingCount") or {}
    if not isinstance(table, Mapping):
        raise ValueError("timingCount is no JSON object")
    try:
        return {str(topic): int(row["count"]) for topic, row in table.items()}
    except (KeyError, TypeError, ValueError):
        raise ValueError("timingCount: each topic needs a whole number as count") from None
