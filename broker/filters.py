"""What a subscription wants: sets of tag hash codes that the consume queue can be asked for.

Source: FilterAPI.java, ExpressionMessageFilter.java, SubscriptionData.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from understudy.format.java_hash import java_hash
from understudy.format.json_values import TEXT_LIMIT, list_of, name_of
from understudy.format.numbers import INT_MAX, INT_MIN, whole_number
from understudy.format.remembered import remembered

TAG, SQL92 = "TAG", "SQL92"


class SubscriptionError(ValueError):
    """A subscription text that means nothing."""


def is_tag_type(expression_type: str | None) -> bool:
    """Tell whether *expression_type* selects by tags; none given means tags."""
    return expression_type is None or expression_type in ("", TAG)


def check_length(expression: str) -> None:
    """Refuse a text that is longer than one in a heartbeat may be. Raises :class:`SubscriptionError`."""
    if len(expression) > TEXT_LIMIT:
        raise SubscriptionError(f"the subscription has {len(expression)} characters, the limit is {TEXT_LIMIT}")


@remembered
def tag_codes(expression: str) -> frozenset[int] | None:
    """Return the hash codes of the tags in *expression*, or ``None`` when it wants every message.

    Raises:
        SubscriptionError: nothing but separators, or too long.
    """
    if expression in ("", "*"):
        return None
    check_length(expression)
    parts = expression.split("||")
    while parts and not parts[-1]:  # Java's split drops trailing empty parts
        parts.pop()
    if not parts:
        raise SubscriptionError("no tag between the separators")
    return frozenset(java_hash(tag) for tag in (part.strip() for part in parts) if tag)


@attrs.frozen
class Subscription:
    """One topic a group wants.

    Attributes:
        topic: the topic.
        expression: the text the client sent (``subString``).
        expression_type: ``TAG`` or ``SQL92``.
        version: the client's version of it, milliseconds of its clock.
        codes: hash codes of wanted tags; ``None`` wants all.
        tags: the tags as the client listed them.
        class_filter: the obsolete class filter mode.
    """

    topic: str
    expression: str = "*"
    expression_type: str = TAG
    version: int = 0
    codes: frozenset[int] | None = None
    tags: tuple[str, ...] = ()
    class_filter: bool = False

    @property
    def wanted(self) -> frozenset[int] | None:
        """Hash codes a queue entry must have, or ``None`` when the queue entry cannot decide."""
        return self.codes if self.expression_type == TAG and not self.class_filter else None

    def to_json(self) -> dict[str, Any]:
        """Return the wire form (``SubscriptionData``)."""
        return {
            "classFilterMode": self.class_filter,
            "codeSet": sorted(self.codes or ()),
            "expressionType": self.expression_type,
            "subString": self.expression,
            "subVersion": self.version,
            "tagsSet": list(self.tags),
            "topic": self.topic,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Subscription:
        """Read one entry of a heartbeat's ``subscriptionDataSet``.

        Raises:
            ValueError: the topic is missing or a field is no value of its kind.
        """
        topic = name_of(value.get("topic") or "", "subscriptionDataSet: topic")
        if not topic:
            raise ValueError("subscriptionDataSet: an entry without topic")
        what = f"subscriptionDataSet: {topic}"
        raw = value.get("subString")
        expression = "*" if raw is None else name_of(raw, f"{what}: subString")
        expression_type = name_of(value.get("expressionType") or TAG, f"{what}: expressionType")
        version = whole_number(value.get("subVersion") or 0, f"{what}: subVersion")
        listed = list_of(value.get("codeSet"), f"{what}: codeSet")
        codes = frozenset(whole_number(code, f"{what}: codeSet", INT_MIN, INT_MAX) for code in listed)
        wanted: frozenset[int] | None = codes
        if expression_type != TAG or expression in ("*", ""):
            wanted = None
        tags = tuple(name_of(tag, f"{what}: tagsSet") for tag in list_of(value.get("tagsSet"), f"{what}: tagsSet"))
        return cls(topic, expression, expression_type, version, wanted, tags, value.get("classFilterMode") is True)
