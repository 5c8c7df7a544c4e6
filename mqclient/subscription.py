"""What a consumer wants of a topic, and the hash by which brokers filter tags."""

from __future__ import annotations

from typing import Any

import attrs

from understudy.format.java_hash import java_hash
from understudy.mqclient.errors import InvalidMessageError

ALL_TAGS = "*"
TAG = "TAG"


@attrs.frozen
class Subscription:
    """One topic's subscription (SubscriptionData.java, FilterAPI.java).

    Attributes:
        topic: the topic.
        expression: ``*``, ``TagA || TagB`` or a SQL92 condition.
        version: wall time in milliseconds at which it was made; a broker keeps the newest.
        expression_type: ``TAG`` or ``SQL92``.
        tags: the tags named by the expression; empty means all.
    """

    topic: str
    expression: str
    version: int
    expression_type: str = TAG
    tags: tuple[str, ...] = ()

    def accepts(self, tag: str | None) -> bool:
        """Return whether a message with *tag* is wanted; brokers filter by hash only, so collisions end here."""
        return not self.tags or tag in self.tags

    def body(self) -> dict[str, Any]:
        """Return the form that heartbeats carry."""
        return {
            "classFilterMode": False,
            "codeSet": [java_hash(tag) for tag in self.tags],
            "expressionType": self.expression_type,
            "subString": self.expression,
            "subVersion": self.version,
            "tagsSet": list(self.tags),
            "topic": self.topic,
        }


def subscription(topic: str, expression: str, version: int, expression_type: str = TAG) -> Subscription:
    """Parse *expression*. Raises :class:`InvalidMessageError` when it names no tag at all.

    Args:
        topic: that is subscribed to.
        expression: tags joined by ``||``, ``*`` for all, or a condition of another type.
        version: of the subscription; a later one is larger.
        expression_type: ``TAG``, or ``SQL92`` for a condition.
    """
    if expression_type != TAG:
        return Subscription(topic, expression, version, expression_type)
    text = expression.strip() or ALL_TAGS
    if text == ALL_TAGS:
        return Subscription(topic, ALL_TAGS, version)
    tags = tuple(dict.fromkeys(tag for tag in (part.strip() for part in text.split("||")) if tag))
    if not tags:
        raise InvalidMessageError(f"subscription {expression!r} of {topic} names no tag; write 'TagA || TagB' or '*'")
    return Subscription(topic, expression, version, TAG, tags)
