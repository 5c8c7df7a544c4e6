"""Attributes of topics and groups: what a change may say and what comes out of it.

Pure. Source: AttributeParser.java, AttributeUtil.java, TopicAttributes.java, SubscriptionGroupAttributes.java.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from understudy.broker.topics import BATCH_QUEUES, CLEANUP_POLICY, COMPACTION, QUEUE_TYPE

_NUMBER = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)


class AttributeRefusedError(ValueError):
    """A change that is not allowed; the text is the reference's remark."""


@attrs.frozen
class Attribute:
    """What one attribute accepts.

    Args:
        choices: the words it may be; empty for a number.
        low, high: bounds of a number.
        changeable: whether it may change after its owner was created.
    """

    choices: tuple[str, ...] = ()
    low: int = 0
    high: int = 0
    changeable: bool = True

    def check(self, value: str) -> None:
        """Raise :class:`AttributeRefusedError` when *value* does not fit."""
        if self.choices:
            if value not in self.choices:
                raise AttributeRefusedError(f"value is not in set: [{', '.join(self.choices)}]")
            return
        if not _NUMBER.fullmatch(value):
            raise AttributeRefusedError(f'For input string: "{value[:64]}"')
        number = int(value)
        if not self.low <= number <= self.high:
            raise AttributeRefusedError(f"value is not in range({self.low}, {self.high})")


TOPIC_ATTRIBUTES = {
    CLEANUP_POLICY: Attribute(("DELETE", COMPACTION), changeable=False),
    "message.type": Attribute(("UNSPECIFIED", "MIXED", "TRANSACTION", "PRIORITY", "FIFO", "DELAY", "NORMAL")),
    QUEUE_TYPE: Attribute(("SimpleCQ", BATCH_QUEUES), changeable=False),
    "reserve.time": Attribute(low=-1, high=2**63 - 1),
}
GROUP_ATTRIBUTES = {"priority.factor": Attribute(low=0, high=100)}


def parse(text: str | None) -> dict[str, str]:
    """Read ``+key=value,-key`` into signed keys and values. Raises :class:`AttributeRefusedError`."""
    changes: dict[str, str] = {}
    for part in (text or "").split(",") if text else ():
        key, equals, value = part.partition("=")
        if equals and "+" not in key:
            raise AttributeRefusedError(f"add/alter attribute format is wrong: {key}")
        if not equals and "-" not in key:
            raise AttributeRefusedError(f"delete attribute format is wrong: {key}")
        if key in changes:
            raise AttributeRefusedError(f"key duplication: {key}")
        changes[key] = value
    return changes


def alter(
    known: Mapping[str, Attribute], current: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """Return the attributes after *changes*.

    Args:
        known: every attribute of this kind of owner.
        current: what it has now; ``None`` while it is being created.
        changes: signed keys and values.

    Raises:
        AttributeRefusedError: an unknown or unchangeable attribute, a bad value, or a wrong sign.
    """
    result = dict(current or {})
    keys = set()
    for signed, value in changes.items():
        sign, key = signed[:1], signed[1:]
        if not key or "+" in key or "-" in key:
            raise AttributeRefusedError("kv string format wrong.")
        if key in keys:
            raise AttributeRefusedError(f"alter duplication key. key: {key}")
        keys.add(key)
        if current is None and sign != "+":
            raise AttributeRefusedError(f"only add attribute is supported while creating topic. key: {key}")
        if sign not in ("+", "-"):
            raise AttributeRefusedError(f"wrong format key: {key}")
        if sign == "-" and key not in result:
            raise AttributeRefusedError(f"attempt to delete a nonexistent key: {key}")
        attribute = known.get(key)
        if attribute is None:
            raise AttributeRefusedError(f"unsupported key: {key}")
        if current is not None and not attribute.changeable:
            raise AttributeRefusedError(f"attempt to update an unchangeable attribute. key: {key}")
        if sign == "+":
            attribute.check(value)
            result[key] = value
        else:
            del result[key]
    return result
