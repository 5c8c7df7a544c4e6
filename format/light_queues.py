"""Light message queues: queues that a message stands in beside the one of its topic, with one copy in the log; pure.

Senders name them in one property of the message, divided by commas. Who stores it adds another one, which gives the
queue offset in each of them, in the same order. Both stand in the record, so that every replica, and every later start,
enters it where the first one did. A light queue has a name that begins with ``%LMQ%``, one queue, and no row in the
table of topics.

Source: LmqDispatch.java, MultiDispatchUtils.java, ConsumeQueue.java (multiDispatchLmqQueue).
"""

from __future__ import annotations

from collections.abc import Mapping

from understudy.format.names import DEAD_LETTER_PREFIX, LIGHT_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, SYSTEM_TOPIC_PREFIX

NAMES = b"INNER_MULTI_DISPATCH\x01"
"""The property of the sender, as :func:`understudy.format.properties.find_property` wants it."""
OFFSETS = b"INNER_MULTI_QUEUE_OFFSET\x01"
"""The property of who stores the message."""
LIGHT_OFFSET_FILE = "lmqConsumerOffset.json"
"""Where a broker that has light queues on keeps the offsets of all groups."""
LIGHT_OFFSET_TABLE = "lmqOffsetTable"
"""In it the offsets of groups whose names are those of light queues: one number for the one queue of each."""
QUEUE_ID = 0
"""Of the one queue that a light queue has."""
NAMES_MAX = 512
"""Light queues of one message."""
NAME_BYTES_MAX = 255
"""A longer one cannot name a folder."""

_NAMES, _OFFSETS = NAMES[:-1].decode(), OFFSETS[:-1].decode()
_SEPARATOR = b","
_PREFIX = LIGHT_PREFIX.encode()


class LightQueueError(ValueError):
    """A message that names light queues which cannot be; the text says what is wrong and what to do."""


def is_light(topic: str) -> bool:
    """Tell whether *topic* (or a group) belongs to a light queue by its name."""
    return topic.startswith(LIGHT_PREFIX)


def divides(topic: str) -> bool:
    """Tell whether messages of *topic* may stand in more queues than their own.

    What waits for its time or its retry may not; it names light queues until it is stored where it belongs.
    """
    return not (topic.startswith((RETRY_PREFIX, SYSTEM_TOPIC_PREFIX)) or topic == SCHEDULE_TOPIC)


def takes_offsets(topic: str) -> bool:
    """Tell whether a message that is stored in *topic* now is given offsets in the light queues it names.

    Differs because the reference enters a message that was given up (a dead letter) into its light queues again.
    """
    return divides(topic) and not topic.startswith(DEAD_LETTER_PREFIX)


def entries(names: bytes, offsets: bytes) -> list[tuple[bytes, int]]:
    """Return what a stored record says: the names and queue offsets of the further queues it stands in.

    Args:
        names: value of :data:`NAMES`.
        offsets: value of :data:`OFFSETS`.

    Returns:
        Each name once; nothing when there are not as many offsets as names, as the reference does.
    """
    found_names, found_offsets = _split(names), _split(offsets)
    if len(found_names) != len(found_offsets):
        return []
    found: dict[bytes, int] = {}
    for name, offset in zip(found_names, found_offsets, strict=True):
        if name and b"/" not in name and offset.isdigit():
            found.setdefault(name, int(offset))
    return list(found.items())


def wanted(names: bytes) -> list[str]:
    """Return the light queues that a sender names, in its order and as often as it does.

    Args:
        names: value of :data:`NAMES`.

    Raises:
        LightQueueError: one of them cannot be a light queue, or there are too many.
    """
    found = _split(names)
    if not found:
        raise LightQueueError("INNER_MULTI_DISPATCH names no queue; leave it out or name some")
    if len(found) > NAMES_MAX:
        raise LightQueueError(
            f"INNER_MULTI_DISPATCH names {len(found)} queues, a message stands in {NAMES_MAX} at most"
        )
    return [_checked(name) for name in found]


def offset_in(properties: Mapping[str, str], queue: str) -> int:
    """Return where a stored message with these properties stands in a light queue; -1 when it does not."""
    names, offsets = properties.get(_NAMES, ""), properties.get(_OFFSETS, "")
    return dict(entries(names.encode(), offsets.encode())).get(queue.encode(), -1)


def names_in(properties: Mapping[str, str]) -> list[str]:
    """Return the light queues that a stored message with these properties stands in."""
    offsets = properties.get(_OFFSETS, "").encode()
    return [name.decode("utf-8", "replace") for name, _ in entries(properties.get(_NAMES, "").encode(), offsets)]


def without_offsets(properties: bytes) -> bytes:
    """Return a properties string without any pair named :data:`OFFSETS`."""
    if OFFSETS not in properties:
        return properties
    return b"\x02".join([pair for pair in properties.split(b"\x02") if not pair.startswith(OFFSETS)])


def with_offsets(properties: bytes, offsets: list[int]) -> bytes:
    """Return a properties string that gives these queue offsets, in the order of the names."""
    end = b"" if properties.endswith(b"\x02") else b"\x02"
    return properties + end + OFFSETS + _SEPARATOR.join([b"%d" % offset for offset in offsets]) + b"\x02"


def _checked(name: bytes) -> str:
    text = name.decode("utf-8", "replace")
    if not name.startswith(_PREFIX):
        raise LightQueueError(
            f"{text!r} is no light queue; the names in INNER_MULTI_DISPATCH begin with {LIGHT_PREFIX}"
        )
    if b"/" in name or b"\0" in name:
        raise LightQueueError(f"{text!r} cannot name a light queue; leave out slashes and zero bytes")
    if len(name) > NAME_BYTES_MAX:
        raise LightQueueError(f"the name of a light queue has {len(name)} bytes, the longest has {NAME_BYTES_MAX}")
    return text


def _split(value: bytes) -> list[bytes]:
    """Divide by commas as Java does: what is empty at the end does not count."""
    parts = value.split(_SEPARATOR) if value.strip() else []
    while parts and not parts[-1]:
        parts.pop()
    return parts
