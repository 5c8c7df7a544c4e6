"""Which replica has stored a message a second time, as the log of a group tells it. Pure.

A consumer that gets a message twice either read one place twice, or the message stands in the log twice: a master that
does not know how far the former one had come with delayed messages puts those again. Who did that is told by where the
copy stands, for each part of a log is one master's: the copy itself bears the address at which the message was stored
first, when a real master put it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from understudy.format.record import BLANK_MAGIC, HEAD, Record, RecordError, decode_record
from understudy.ha.switch.epochs import Epochs


@attrs.frozen
class Life:
    """From when on a replica was of a kind.

    Attributes:
        port: it listens there.
        since_ms: wall time.
        kind: of its program.
    """

    port: int
    since_ms: int
    kind: str


@attrs.frozen
class Writers:
    """Who has written a log.

    Attributes:
        epochs: of the log.
        masters: at which port the master of each epoch listened.
        lives: of all replicas, oldest first.
    """

    epochs: Epochs
    masters: Mapping[int, int]
    lives: Sequence[Life]

    def kind_of(self, record: Record) -> str:
        """Return the kind of the replica that stored *record*."""
        entry = self.epochs.at(record.physical_offset)
        port = None if entry is None else self.masters.get(entry.epoch)
        kinds = [life.kind for life in self.lives if life.port == port and life.since_ms <= record.store_ms]
        return kinds[-1] if kinds else "nobody known"


def records(log: bytes) -> Iterator[Record]:
    """Return the records of a whole log, whatever its files' blank ends; a last one that is cut short is left out."""
    at = 0
    while at + HEAD.size <= len(log):
        size, magic = HEAD.unpack_from(log, at)[:2]
        if magic == BLANK_MAGIC:
            at += size
            continue
        try:
            record = decode_record(log, at)
        except RecordError:
            return
        yield record
        at += record.size_bytes


def second_copies(log: bytes, topic: str) -> list[Record]:
    """Return the messages of *topic* whose body stands in it before; every body was sent once."""
    bodies: set[bytes] = set()
    found = []
    for record in records(log):
        if record.topic != topic:
            continue
        if record.body in bodies:
            found.append(record)
        bodies.add(record.body)
    return found
