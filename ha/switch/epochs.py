"""Which master wrote which part of a log: the history of epochs, and where two histories part. Pure.

An *epoch* is the term of one master; the controller counts them. An entry says from which physical offset on the log
was written under an epoch. Entries ascend in epoch and offset.

A master that was elected and wrote nothing leaves an entry without bytes: the next one begins at the same offset. The
reference refuses the second of the two, so that its log's last epoch lags behind the epoch in force; here both are
kept. A Java peer that has only the first finds it in our list, and no byte is ever taken for another epoch's.

Source: EpochFileCache.java.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import attrs

NO_EPOCH = -1
"""The last epoch of a log that nobody has written under one."""
UNBOUNDED = (1 << 63) - 1
"""The end of the last epoch, as the wire says it."""
ENTRIES_MAX = 1000
"""More than so many do not fit the handshake of a Java peer; the oldest are left out there."""


class EpochRow(NamedTuple):
    """One epoch as GET_BROKER_EPOCH_CACHE (1007) answers it; offsets are bytes."""

    epoch: int
    start_offset: int
    end_offset: int


class EpochError(Exception):
    """Entries that are no history; the message says what is wrong with them."""


@attrs.frozen
class EpochEntry:
    """The beginning of one epoch.

    Attributes:
        epoch: counts masters, from 0.
        start: physical offset (bytes) of the first byte written under it.
    """

    epoch: int
    start: int


def _checked(
    instance: Epochs, attribute: attrs.Attribute[tuple[EpochEntry, ...]], entries: tuple[EpochEntry, ...]
) -> None:
    if entries and (entries[0].epoch < 0 or entries[0].start < 0):
        raise EpochError(f"epoch {entries[0].epoch} at {entries[0].start}: neither can be below zero")
    for before, after in pairwise(entries):
        if after.epoch <= before.epoch or after.start < before.start:
            raise EpochError(
                f"epoch {after.epoch} at {after.start} follows epoch {before.epoch} at {before.start}: both must grow"
            )


@attrs.frozen
class Epochs:
    """The history of a log, a value: every change returns another one.

    Attributes:
        entries: ascending; an entry ends where the next one begins.

    Raises :class:`EpochError` when the entries do not ascend.
    """

    entries: tuple[EpochEntry, ...] = attrs.field(default=(), validator=_checked)

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> Epochs:
        """Return the history of (epoch, start) pairs. Raises :class:`EpochError`."""
        return cls(tuple(EpochEntry(epoch, start) for epoch, start in pairs))

    def __iter__(self) -> Iterator[EpochEntry]:
        return iter(self.entries)

    def __bool__(self) -> bool:
        return bool(self.entries)

    @property
    def last_epoch(self) -> int:
        """The newest epoch; -1 without any."""
        return self.entries[-1].epoch if self.entries else NO_EPOCH

    def end_of(self, entry: EpochEntry) -> int:
        """Return the physical offset after the bytes of *entry*; :data:`UNBOUNDED` for the last one."""
        at = bisect_right(self.entries, entry.epoch, key=lambda each: each.epoch)
        return self.entries[at].start if at < len(self.entries) else UNBOUNDED

    def rows(self) -> list[EpochRow]:
        """Return all epochs, each with its end."""
        return [EpochRow(entry.epoch, entry.start, self.end_of(entry)) for entry in self.entries]

    def at(self, offset: int) -> EpochEntry | None:
        """Return the entry that the byte at physical *offset* belongs to; ``None`` when it is older than all."""
        number = bisect_right(self.entries, offset, key=lambda each: each.start)
        return self.entries[number - 1] if number else None

    def begun(self, epoch: int, start: int) -> Epochs:
        """Return the history in which *epoch* begins at *start*, after everything known.

        Raises:
            EpochError: it is not newer than the last epoch, or begins before it.
        """
        return Epochs((*self.entries, EpochEntry(epoch, start)))

    def cut_at(self, offset: int) -> Epochs:
        """Return the history of a log that ends at *offset*: epochs that begin behind its last byte are gone."""
        return Epochs(self.entries[: bisect_left(self.entries, offset, key=lambda each: each.start)])

    def within(self, end: int) -> Epochs:
        """Return the history without what cannot be of a log that ends at *end*: epochs that begin after it."""
        return Epochs(self.entries[: bisect_right(self.entries, end, key=lambda each: each.start)])

    def from_offset(self, first: int) -> Epochs:
        """Return the history of a log whose first byte is *first*: epochs that ended before it are gone.

        One that ended there stays: who has more of it than this log ever had is told to cut there.
        """
        return Epochs(tuple(entry for entry in self.entries if self.end_of(entry) >= first))


def joined(ours: Epochs, theirs: Epochs) -> Epochs:
    """Return what two histories of the same bytes say together; *ours* where they contradict each other."""
    entries = {entry.epoch: entry for entry in (*theirs, *ours)}
    try:
        return Epochs(tuple(entries[epoch] for epoch in sorted(entries)))
    except EpochError:
        return ours


def common_end(ours: Epochs, our_end: int, theirs: Epochs, their_end: int) -> int | None:
    """Return the physical offset up to which two logs are the same; ``None`` when no epoch is in both.

    Two logs have the same bytes under an epoch as far as both have any, if it begins at one offset in both: its one
    master wrote them. So the newest such epoch decides, and everything before it is the same, too.

    Args:
        ours, theirs: the two histories.
        our_end, their_end: the byte after the last one of each log.
    """
    starts = {entry.epoch: entry for entry in theirs.within(their_end)}
    for entry in reversed(ours.within(our_end).entries):
        other = starts.get(entry.epoch)
        if other is not None and other.start == entry.start:
            return min(ours.end_of(entry), our_end, theirs.end_of(other), their_end)
    return None
