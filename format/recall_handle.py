"""The handle by which a sender takes a timer message back; pure.

URL-safe base64 of ``v1 topic broker time key``, with single spaces (RecallMessageHandle.java).
"""

from __future__ import annotations

import base64
import binascii

import attrs

_VERSION = "v1"
_LONGEST = 4_096
INVALID = "recall handle is invalid"
OTHER_TOPIC = "recall failed, topic not match"


@attrs.frozen
class Handle:
    """What a handle says.

    Attributes:
        topic: where the message shall be delivered.
        broker_name: the group of the broker that keeps it.
        time_ms: one millisecond after the second in whose slot it waits; -1 when it is no time.
        unique_key: of the message.
    """

    topic: str
    broker_name: str
    time_ms: int
    unique_key: str


def encode_handle(handle: Handle) -> str:
    """Return *handle* as text."""
    text = f"{_VERSION} {handle.topic} {handle.broker_name} {handle.time_ms} {handle.unique_key}"
    return base64.urlsafe_b64encode(text.encode("utf-8", "replace")).decode()


def decode_handle(text: str, topic: str | None = None) -> Handle:
    """Read what :func:`encode_handle` returned.

    Args:
        text: the handle.
        topic: what it must be for; ``None`` for any.

    Raises:
        ValueError: it is none, or one for another topic; the text is the reference's remark.
    """
    if not text or len(text) > _LONGEST:
        raise ValueError(INVALID)
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError, ValueError):
        raise ValueError(INVALID) from None
    parts = raw.split(" ")
    if parts[0] != _VERSION or len(parts) < 5:
        raise ValueError(INVALID)
    time = parts[3]
    if topic is not None and parts[1] != topic:
        raise ValueError(OTHER_TOPIC)
    time_ms = int(time) if time.isascii() and time.isdigit() and len(time) < 19 else -1
    return Handle(parts[1], parts[2], time_ms, parts[4])
