"""Static topics: logical queues whose messages lie, piece after piece, in queues of several broker groups.

A *mapping* is what one group knows of a topic: for each logical queue (global id) a chain of *items*, oldest first. An
item is one physical queue and says at which logical offset it begins. The last item leads: only there messages are
stored. It may be undecided: its group takes messages already, but where they begin is not known yet, so nobody reads
them.

Source: TopicQueueMappingDetail.java, LogicQueueMappingItem.java, TopicQueueMappingUtils.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import attrs

from understudy.format.json_values import list_of, name_of, truth_of
from understudy.format.numbers import INT_MAX, INT_MIN, whole_number

GLOBAL_SCOPE = "__global__"
UNDECIDED = -1
OFFSET_MAX = 1 << 61
"""Of an item; the sum of some is a 64-bit number still."""
LOGICAL_BROKER_PREFIX = "__syslo__"
"""Begins the name under which clients know the queues of a static topic, in the place of a broker's."""


class MappingError(ValueError):
    """A mapping that cannot be; the message says why."""


@attrs.frozen
class MappingItem:
    """One physical queue in the chain of a logical one.

    Attributes:
        generation: its number in the chain; later items have larger ones.
        queue_id: of the physical queue.
        broker_name: the group that has it.
        logic_offset: where it begins in the logical queue, :data:`UNDECIDED` while nobody may read it.
        start_offset: queue offset of its first message.
        end_offset: queue offset behind its last one, -1 while that is not known.
        time_of_start, time_of_end: as peers write them; nobody reads them.
    """

    generation: int
    queue_id: int
    broker_name: str
    logic_offset: int = UNDECIDED
    start_offset: int = 0
    end_offset: int = -1
    time_of_start: int = -1
    time_of_end: int = -1

    @property
    def decided(self) -> bool:
        """Whether it is known where the item begins."""
        return self.logic_offset >= 0

    @property
    def ended(self) -> bool:
        """Whether it is known where the item ends."""
        return self.end_offset >= self.start_offset

    @property
    def shift(self) -> int:
        """What a queue offset must be raised by to become a logical one."""
        return self.logic_offset - self.start_offset

    @property
    def last_logic_offset(self) -> int:
        """The logical offset behind the item, as far as the mapping says it."""
        return self.to_logic(self.end_offset) if self.ended else self.logic_offset

    def to_logic(self, offset: int) -> int:
        """Return the logical offset of queue offset *offset*; -1 while that is undecided."""
        if not self.decided:
            return -1
        return self.logic_offset + max(offset - self.start_offset, 0)

    def to_physical(self, logic_offset: int) -> int:
        """Return the queue offset of *logic_offset*; the item must be decided."""
        return logic_offset - self.logic_offset + self.start_offset

    def to_json(self) -> dict[str, Any]:
        """Return the wire form."""
        return {
            "bname": self.broker_name,
            "endOffset": self.end_offset,
            "gen": self.generation,
            "logicOffset": self.logic_offset,
            "queueId": self.queue_id,
            "startOffset": self.start_offset,
            "timeOfEnd": self.time_of_end,
            "timeOfStart": self.time_of_start,
        }

    @classmethod
    def from_json(cls, value: object) -> MappingItem:
        """Read the wire form. Raises ``ValueError``."""
        if not isinstance(value, Mapping):
            raise MappingError("an item of a logical queue is no JSON object")

        def number(key: str, default: int, low: int | None = None, high: int | None = None) -> int:
            found, bounds = value.get(key), {"low": low, "high": high}
            given = {name: bound for name, bound in bounds.items() if bound is not None}
            return default if found is None else whole_number(found, key, **given)

        return cls(
            number("gen", 0, INT_MIN, INT_MAX),
            number("queueId", 0, INT_MIN, INT_MAX),
            name_of(value.get("bname"), "bname of an item"),
            number("logicOffset", 0),
            number("startOffset", 0),
            number("endOffset", -1),
            number("timeOfStart", -1),
            number("timeOfEnd", -1),
        )


Items = tuple[MappingItem, ...]


@attrs.frozen
class TopicMapping:
    """What one broker group knows of a static topic.

    Attributes:
        topic: its name.
        broker_name: the group.
        total_queues: how many logical queues the topic has.
        epoch: of the whole mapping; larger ones are newer.
        queues: global id to the chain of that logical queue; those that the group leads, led, or will lead.
        scope: what global ids are unique in.
        dirty: as peers write it; nobody reads it.
    """

    topic: str
    broker_name: str
    total_queues: int
    epoch: int
    queues: Mapping[int, Items] = attrs.field(factory=dict)
    scope: str = GLOBAL_SCOPE
    dirty: bool = False

    @property
    def led(self) -> dict[int, MappingItem]:
        """The items of this group that take messages, by global id."""
        return {
            global_id: items[-1]
            for global_id, items in self.queues.items()
            if items and items[-1].broker_name == self.broker_name
        }

    @property
    def logical_broker(self) -> str:
        """The name that stands for a broker's in the queues that clients see."""
        return logical_broker(self.scope)

    def to_json(self) -> dict[str, Any]:
        """Return the wire form, with every chain."""
        return {
            "bname": self.broker_name,
            "currIdMap": {},
            "dirty": self.dirty,
            "epoch": self.epoch,
            "hostedQueues": {
                str(global_id): [item.to_json() for item in self.queues[global_id]] for global_id in sorted(self.queues)
            },
            "scope": self.scope,
            "topic": self.topic,
            "totalQueues": self.total_queues,
        }

    def info(self) -> dict[str, Any]:
        """Return what name servers are told: which logical queues the group leads, not where they have been."""
        return {
            "bname": self.broker_name,
            "currIdMap": {str(global_id): item.queue_id for global_id, item in sorted(self.led.items())},
            "dirty": self.dirty,
            "epoch": self.epoch,
            "scope": self.scope,
            "topic": self.topic,
            "totalQueues": self.total_queues,
        }

    @classmethod
    def from_json(cls, value: object, topic: str = "") -> TopicMapping:
        """Read the wire form; *topic* is its name where the value has none. Raises ``ValueError``."""
        if not isinstance(value, Mapping):
            raise MappingError("a mapping is no JSON object")
        hosted = value.get("hostedQueues") or {}
        if not isinstance(hosted, Mapping):
            raise MappingError("hostedQueues is no JSON object")
        queues = {
            whole_number(key, "a global queue id", 0, INT_MAX): tuple(
                MappingItem.from_json(item) for item in list_of(items, f"queue {key}")
            )
            for key, items in hosted.items()
        }
        return cls(
            name_of(value.get("topic") or topic, "topic"),
            name_of(value.get("bname"), "bname"),
            whole_number(value.get("totalQueues") or 0, "totalQueues", 0, INT_MAX),
            whole_number(value.get("epoch") or 0, "epoch"),
            queues,
            name_of(value.get("scope") or GLOBAL_SCOPE, "scope"),
            truth_of(value.get("dirty"), "dirty", False),
        )


def logical_broker(scope: str) -> str:
    """Return the name that stands for a broker's in the logical queues of *scope*."""
    return LOGICAL_BROKER_PREFIX + scope.removeprefix("__")


def item_of(items: Sequence[MappingItem], logic_offset: int) -> MappingItem | None:
    """Return the item that holds *logic_offset*: the newest that begins there or before, else the oldest.

    Undecided items hold nothing. ``None``: no item is decided.
    """
    decided = [item for item in items if item.decided]
    holding = [item for item in decided if item.logic_offset <= logic_offset]
    return holding[-1] if holding else decided[0] if decided else None


def item_after(items: Sequence[MappingItem], item: MappingItem) -> MappingItem | None:
    """Return the item behind *item*; ``None`` when that is undecided yet, or *item* is the last."""
    following = next((after for before, after in pairwise(items) if before.generation == item.generation), None)
    return following if following is not None and following.decided else None


def check_items(items: Sequence[MappingItem]) -> None:
    """Check one chain: items only ever follow each other, and all but the last are decided.

    Raises:
        MappingError: they do not.
    """
    for item in items:
        if item.start_offset < 0 or item.generation < 0 or item.queue_id < 0:
            raise MappingError("generation, queue id and start offset of an item must not be negative")
        if max(item.logic_offset, item.start_offset, item.end_offset) > OFFSET_MAX:
            raise MappingError(f"an offset of an item is greater than {OFFSET_MAX}")
        if item.end_offset != -1 and item.end_offset < item.start_offset:
            raise MappingError("an item ends before it starts")
    for before, after in pairwise(items):
        if not before.decided:
            raise MappingError("an item that is not the last has no logical offset")
        if after.generation <= before.generation:
            raise MappingError("the generations of a queue's items do not grow")
        if after.decided and after.logic_offset <= before.last_logic_offset:
            raise MappingError("the logical offsets of a queue's items do not grow")


def check_apart(chains: Iterable[tuple[int, Sequence[MappingItem]]]) -> None:
    """Check that no physical queue belongs to two logical ones. Raises :class:`MappingError`."""
    owners: dict[tuple[str, int], int] = {}
    for global_id, items in chains:
        for item in items:
            queue = item.broker_name, item.queue_id
            if queue in owners:
                raise MappingError(
                    f"logical queues {owners[queue]} and {global_id} share queue {item.queue_id} of {item.broker_name}"
                )
            owners[queue] = global_id


def successor(old: TopicMapping | None, new: TopicMapping, *, force: bool = False) -> TopicMapping:
    """Return the mapping that a group has when it was given *new* over *old*.

    Chains that *new* lacks are kept: messages may still lie there. What was said of an item stays; only a logical
    offset that was undecided and ends may be said later.

    Args:
        old: what it has; ``None``: nothing.
        new: what it is given.
        force: take *new* although it contradicts *old*.

    Raises:
        MappingError: *new* is no mapping, older, or contradicts *old*; nothing may be taken.
    """
    for items in new.queues.values():
        if not items:
            raise MappingError("a logical queue has no items")
        check_items(items)
    check_apart(new.queues.items())
    if old is None:
        return new
    if not force:
        _check_follows(old, new)
    return attrs.evolve(new, queues={**old.queues, **new.queues})


def _check_follows(old: TopicMapping, new: TopicMapping) -> None:
    if new.epoch < old.epoch:
        raise MappingError(f"Can't accept data with small epoch {new.epoch} < {old.epoch}")
    if new.scope != old.scope:
        raise MappingError(f"Can't accept data with unmatched scope {new.scope} != {old.scope}")
    same_epoch = new.epoch == old.epoch
    for global_id, before in old.queues.items():
        after = new.queues.get(global_id)
        if after is None:
            if same_epoch:
                raise MappingError(f"logical queue {global_id} is missing in a mapping of the same epoch")
            continue
        known = {item.generation: item for item in before}
        for item in after:
            former = known.get(item.generation)
            if former is not None and not _continues(former, item):
                raise MappingError(f"item {item.generation} of logical queue {global_id} is another one than before")
        if same_epoch and before and after[-1].generation != before[-1].generation:
            raise MappingError(f"logical queue {global_id} has another leader in a mapping of the same epoch")


def _continues(former: MappingItem, item: MappingItem) -> bool:
    same = (former.broker_name, former.queue_id, former.start_offset) == (
        item.broker_name,
        item.queue_id,
        item.start_offset,
    )
    return same and (not former.decided or former.logic_offset == item.logic_offset)
