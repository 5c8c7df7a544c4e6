"""The checksum of a whole record in its last property (``enabledAppendPropCRC``): the *seal*.

It is twenty bytes at the end of the properties: the name ``__CRC32#``, 0x01, ten digits with the least significant
first, and 0x02. It covers every byte of the record before it, so that rot in head, topic or properties is found, too
(CommitLog.java, UtilAll.java).

What looks like a seal may be none: a reference that does not seal stores what a client or a delayed message brings, the
seal of another record for example. So one that is wrong says something only among records whose seals are right.
"""

from __future__ import annotations

from operator import ne
from zlib import crc32

from understudy.format.record import CRC_MASK

NAME = b"__CRC32#\x01"
SEAL_BYTES = 20
_DIGITS = 10
_SEAL_NAMED = len(NAME) - SEAL_BYTES
_END = b"\x02"
#: What a seal begins with; who finds it where a seal would begin looks closer.
SEAL_BEGINS = NAME[0]
#: Takes the room of a seal while the record is made.
NO_SEAL = NAME + bytes(_DIGITS) + _END


def unsealed(properties: bytes) -> bytes:
    """Return *properties* without the seal of another record, so that one can be put behind them.

    A message that is stored anew, after a delay for example, brings that of its former record; a sender may invent one.
    """
    while (at := properties.find(NAME)) >= 0 and (at == 0 or properties[at - 1 : at] == _END):
        end = properties.find(_END, at)
        properties = properties[:at] + (properties[end + 1 :] if end >= 0 else b"")
    return properties if not properties or properties.endswith(_END) else properties + _END


def seal(*parts: bytes | memoryview) -> bytes:
    """Return the seal of a record whose bytes before it are *parts*."""
    value = 0
    for part in parts:
        value = crc32(part, value)
    digits = str(value & CRC_MASK)[::-1].ljust(_DIGITS, "0")
    return NAME + digits.encode() + _END


def is_sealed(record: memoryview) -> bool:
    """Whether a record has a seal, and is what that was made for."""
    return record[-SEAL_BYTES:_SEAL_NAMED] == NAME and seal(record[:-SEAL_BYTES]) == record[-SEAL_BYTES:]


def bears_seal(record: memoryview) -> bool:
    """Whether a record has a seal, be it that of another one."""
    return record[-SEAL_BYTES:_SEAL_NAMED] == NAME


def may_be_sealed(properties: bytes) -> bool:
    """Whether :func:`is_as_sealed` has something to look at; a quick answer for the many records without a seal."""
    return len(properties) >= SEAL_BYTES and (
        properties[-SEAL_BYTES] == SEAL_BEGINS or properties[_SEAL_NAMED - 1] == NAME[-1]
    )


def is_as_sealed(record: memoryview, properties: bytes) -> bool:
    """Whether a record has no seal, or is what its seal was made for; what is wrong may be that of another record.

    Args:
        record: all of its bytes.
        properties: those at its end.
    """
    name = properties[-SEAL_BYTES:_SEAL_NAMED]
    if name != NAME and not ((name[:1] == NAME[:1] or name[-1:] == NAME[-1:]) and _is_nearly(name)):
        return True
    return seal(record[:-SEAL_BYTES]) == properties[-SEAL_BYTES:]


def _is_nearly(name: bytes) -> bool:
    """Whether the name of a seal has rotted itself: all but one of its bytes are right."""
    return len(name) == len(NAME) and sum(map(ne, name, NAME)) == 1
