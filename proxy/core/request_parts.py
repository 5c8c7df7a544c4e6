"""How many parts a request to send has, counted before it is read: parts of two bytes take fifty times as much then.

Pure. Source: the encoding of protocol buffers; message.proto of RocketMQ (numbers of fields).
"""

from __future__ import annotations

from collections.abc import Iterator

from understudy.proxy.core.statuses import ProxyError
from understudy.proxy.messages import rocketmq_v2 as v2

SMALL_BYTES = 64 * 1024
"""Requests up to this size need no look."""
MOST_PARTS = 32_768
"""Messages of a request, and fields of them, that are counted one by one."""
MOST_BESIDE_BYTES = 1 << 20
"""Of all that is not a body."""

_VARINT, _FIXED64, _LENGTH, _GROUP, _GROUP_END, _FIXED32 = 0, 1, 2, 3, 4, 5
_MESSAGES, _BODY = 1, 4


def check_parts(data: bytes) -> None:
    """Look at an encoded ``SendMessageRequest``.

    Args:
        data: the request; what is no such request is let through for its reader to refuse.

    Raises:
        ProxyError: it has too many parts (40016).
    """
    parts = beside = 0
    for number, begin, end in fields(data, 0, len(data)):
        parts += 1
        if number != _MESSAGES:
            beside += end - begin
        else:
            for inner, first, last in fields(data, begin, end):
                parts += 1
                beside += 0 if inner == _BODY else last - first
                if parts > MOST_PARTS:
                    break
        if parts > MOST_PARTS or beside > MOST_BESIDE_BYTES:
            why = f"a request has more than {MOST_PARTS} parts, or {MOST_BESIDE_BYTES} bytes beside bodies: send less"
            raise ProxyError(v2.MESSAGE_CORRUPTED, why)


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, begin and end of each field between *at* and *end*, up to the first that is none.

    The two ends of a group are fields without content: what is in between counts as if it stood outside.
    """
    while at < end:
        tag, at = _varint(data, at, end)
        kind, begin = tag & 7, at
        if kind == _LENGTH:
            size, begin = _varint(data, at, end)
            at = begin + size
        elif kind == _VARINT:
            _, at = _varint(data, at, end)
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        elif kind not in (_GROUP, _GROUP_END):
            return
        if at > end:
            return
        yield tag >> 3, begin, at


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number and where it ends; behind the end when it is none."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, end + 1
