"""The properties text of a send, looked at as rarely as possible.

Messages of one producer mostly differ in their unique key and keys only. What is left of the text without those two is
looked up in a small table, so that a usual message costs two searches and one look-up, not a parse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from understudy.broker.topic_counters import type_of
from understudy.format.java_hash import java_hash
from understudy.format.properties import parse_properties
from understudy.format.remembered import remember, remembered

UNIQUE, KEYS = "UNIQ_KEY\x01", "KEYS\x01"
REWRITTEN = frozenset(
    {
        *("UNIQ_KEY", "KEYS"),  # a second one: the last counts
        *("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY", "TRAN_MSG"),
        *("INNER_NUM", "POP_CK", "MSG_REGION", "TRACE_ON", "CLUSTER", "__CRC32#"),
    }
)
"""Properties that change the way of a message or are replaced; a text with one of them is parsed and written anew."""

tags_hash = remembered(java_hash)


class Common(NamedTuple):
    """What many messages have in common.

    Attributes:
        tags: the TAGS property in UTF-8.
        tags_code: its hash, 0 without tags.
        waits: whether the sender wants to wait until the message is safe.
        type: of the message, as it is counted.
    """

    tags: bytes | None
    tags_code: int
    waits: bool
    type: int


class CommonProperties:
    """The table of texts without unique key and keys.

    Args:
        limit: most texts remembered; the table starts anew above it.
    """

    def __init__(self, limit: int = 1024) -> None:
        self._limit = limit
        self._known: dict[str, Common | None] = {}

    def look_up(self, text: str) -> Common | None:
        """Return what messages with *text* have in common; ``None`` when such a text must be written anew."""
        try:
            return self._known[text]
        except KeyError:
            pairs = parse_properties(text)
            found = None if not REWRITTEN.isdisjoint(pairs) else describe(pairs)
            return remember(self._known, text, found, self._limit)


def describe(pairs: dict[str, str]) -> Common:
    """Return what the store and the sender's answer depend on."""
    tags = pairs.get("TAGS")
    if not tags:
        return Common(None, 0, wants_wait(pairs), type_of(pairs))
    # What is no valid text is refused with the properties as a whole.
    return Common(tags.encode("utf-8", "replace"), tags_hash(tags), wants_wait(pairs), type_of(pairs))


def wants_wait(pairs: Mapping[str, str]) -> bool:
    """Return whether the sender of a message with these properties wants to wait until it is safe."""
    return pairs.get("WAIT", "true").lower() == "true"
