"""How a message comes back, and which messages came back already, as the retry topics show it.

Progress of the revive service is saved a moment after the copies are stored. After a crash a check point can be worked
off a second time; its copies that are there already are recognised and not put again.
"""

from __future__ import annotations

import attrs

from understudy.broker.inner import InnerMessage, copy_of
from understudy.broker.pop.revive_log import CheckPoint
from understudy.format.properties import format_properties
from understudy.format.receipts import FIRST_POP
from understudy.format.record import FLAG_BORN_HOST_V6, FLAG_STORE_HOST_V6, Record, RecordError, decode_records
from understudy.store.message_store import MessageStore

_READ, _READ_BYTES = 128, 1 << 20
_UNIQUE = "UNIQ_KEY"
ORIGIN_GROUP = "ORIGIN_GROUP"
"""Property of what comes back: the group that popped it."""

Identity = tuple[str, int, int]
"""Unique key, birth time, and how often the message came back."""


class Returned:
    """The newest copies in the retry topics of one broker, read when somebody asks.

    Args:
        store: the messages.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._known: dict[str, tuple[int, set[Identity]]] = {}

    def forget(self) -> None:
        """Read anew what is asked for next."""
        self._known.clear()

    def has(self, topic: str, record: Record, since_ms: int) -> bool:
        """Tell whether retry topic *topic* has a copy of *record* that was stored at *since_ms* or later."""
        unique = record.properties.get(_UNIQUE)
        if not unique:
            return False
        known = self._known.get(topic)
        if known is None or known[0] > since_ms:
            known = self._known[topic] = since_ms, self._read(topic, since_ms)
        return (unique, record.born_ms, record.reconsume_times + 1) in known[1]

    def _read(self, topic: str, since_ms: int) -> set[Identity]:
        found: set[Identity] = set()
        at = self._store.offset_by_time(topic, 0, since_ms)
        while True:
            got = self._store.get(topic, 0, at, _READ, _READ_BYTES)
            for part in got.parts:
                try:
                    records = decode_records(part, check_crc=False)
                except RecordError:
                    continue  # told by whoever reads it
                found |= {(each.properties.get(_UNIQUE, ""), each.born_ms, each.reconsume_times) for each in records}
            if got.next_begin_offset <= at:
                return found
            at = got.next_begin_offset


def retry_copy(record: Record, point: CheckPoint, topic: str, host: bytes) -> InnerMessage:
    """Return *record* as a message of retry topic *topic*.

    Args:
        record: of the message that comes back.
        point: of the pop that handed it out.
        topic: retry topic of the group.
        host: address of this broker, as records have it.
    """
    pairs = record.properties
    if record.reconsume_times == 0 or FIRST_POP not in pairs:
        pairs[FIRST_POP] = str(point.pop_ms)
    pairs[ORIGIN_GROUP] = point.group
    copy = copy_of(record, topic, 0, format_properties(pairs).encode(), record.reconsume_times + 1)
    sys_flag = record.sys_flag & ~(FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6)  # of the hosts that the copy does not have
    return attrs.evolve(copy, born_host=host, sys_flag=sys_flag)
