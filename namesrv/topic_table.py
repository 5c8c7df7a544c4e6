"""Queues by topic and broker group, and what static topics are mapped to.

Laws: a topic exists only while some group has queues for it; ``revision`` moves with every change and never otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import attrs
import msgspec

from understudy.namesrv.records import (
    PERM_READ,
    PERM_WRITE,
    UNIT_FLAG,
    UNIT_SUBSCRIPTION_FLAG,
    MappingInfo,
    QueueData,
)
from understudy.runtime.budget import UNLIMITED, Budget, text_bytes

ROW_BYTES = 512
"""Memory of one group's queues for one topic without its texts."""
QUEUES_MAX = 65_535
"""Logical queues of a static topic; clients keep an object for each that a mapping tells of."""
_AMPLE_BYTES = 4 * ROW_BYTES


@attrs.define(eq=False)
class TopicTable:
    """Topics of all broker groups.

    Attributes:
        queues: topic to group name to queues, in order of arrival.
        mappings: static topic to group name to its part of the mapping; stays when a group goes, because clients
            need it to tell which queues are away.
        revision: number of changes so far.
        kept: memory that all broker groups share; a group that has more than is free for all others gets no more.
        lacking: groups of which topics were left out because there was no room; they should register again.
    """

    queues: dict[str, dict[str, QueueData]] = attrs.field(factory=dict)
    mappings: dict[str, dict[str, MappingInfo]] = attrs.field(factory=dict)
    revision: int = 0
    kept: Budget = attrs.field(factory=partial(Budget, UNLIMITED))
    lacking: set[str] = attrs.field(factory=set)

    def has_room(self, group_name: str, topic: str) -> bool:
        """Whether one group may have queues for *topic*."""
        allowed = self.has(topic, group_name) or self.kept.allows(group_name, _row_bytes(topic, group_name))
        self.kept.refused += not allowed
        return allowed

    def fitting(
        self, group_name: str, topics: Mapping[str, QueueData], mappings: Sequence[MappingInfo]
    ) -> tuple[Mapping[str, QueueData], Sequence[MappingInfo]]:
        """Return those of a registration's topics and mappings for which there is room: known ones, and some more.

        What is left out does not keep its group from being found. It is noted in :attr:`lacking`.

        Args:
            group_name: whose they are.
            topics: queues by topic.
            mappings: of static topics.
        """
        if not mappings and self.kept.allows(group_name, len(topics) * _AMPLE_BYTES):
            if len(topics) != 1:  # a change of one topic is no word on all others
                self.lacking.discard(group_name)
            return topics, mappings  # as nearly always; a registration may have 100,000
        more, left_out = 0, set()
        for topic in topics:
            if not self.has(topic, group_name):
                size = _row_bytes(topic, group_name)
                if self.kept.allows(group_name, more + size):
                    more += size
                else:
                    left_out.add(topic)
        fitting = []
        for mapping in mappings:
            before = self.mappings.get(mapping.topic, {}).get(group_name)
            size = _mapping_bytes(mapping) - (_mapping_bytes(before) if before is not None else 0)
            queues = max(mapping.total_queues, len(mapping.current_ids))
            if queues <= QUEUES_MAX and (size <= 0 or self.kept.allows(group_name, more + size)):
                more += size
                fitting.append(mapping)
        if left_out or len(fitting) < len(mappings):
            self.kept.refused += 1
            self.lacking.add(group_name)
        elif len(topics) != 1:
            self.lacking.discard(group_name)
        if not left_out:
            return topics, fitting
        return {topic: queues for topic, queues in topics.items() if topic not in left_out}, fitting

    def has(self, topic: str, group_name: str) -> bool:
        """Return whether *topic* has queues on *group_name*."""
        by_group = self.queues.get(topic)
        return by_group is not None and group_name in by_group

    def put(self, topic: str, queues: QueueData) -> None:
        """Set the queues of one group for *topic*."""
        by_group = self.queues.setdefault(topic, {})
        before = by_group.get(queues.broker_name)
        if before != queues:
            if before is None:
                self.kept.change(queues.broker_name, _row_bytes(topic, queues.broker_name))
            by_group[queues.broker_name] = queues
            self.revision += 1

    def put_mapping(self, mapping: MappingInfo) -> None:
        """Set one group's part of a static topic's mapping."""
        by_group = self.mappings.setdefault(mapping.topic, {})
        before = by_group.get(mapping.broker_name)
        if before != mapping:
            self.kept.change(mapping.broker_name, _mapping_bytes(mapping) - (_mapping_bytes(before) if before else 0))
            by_group[mapping.broker_name] = mapping
            self.revision += 1

    def register(self, topic: str, queues: Iterable[QueueData], known_groups: Collection[str]) -> None:
        """Take a single topic's queues; the first unknown group ends it, and a new topic is then not stored at all."""
        taken = []
        for item in queues:
            if item.broker_name not in known_groups:
                if topic not in self.queues:
                    return
                break
            taken.append(item)
        for item in taken:
            self.put(topic, item)

    def delete(self, topic: str, group_names: Collection[str] | None = None) -> None:
        """Forget *topic*, altogether or on some groups, and how it was mapped there; unknown ones are fine.

        Differs because the reference keeps the mapping: clients would look for the queues of a topic that is made again
        where those of the deleted one were.
        """
        mapped = self.mappings.get(topic)
        if mapped is not None:
            for name in list(mapped) if group_names is None else [each for each in group_names if each in mapped]:
                self.kept.change(name, -_mapping_bytes(mapped.pop(name)))
                self.revision += 1
            if not mapped:
                del self.mappings[topic]
        if group_names is not None:
            for name in group_names:
                self._drop(topic, name)
        elif topic in self.queues:
            for name in list(self.queues[topic]):
                self._drop(topic, name)

    def keep_only(self, group_name: str, topics: Collection[str]) -> None:
        """Forget every topic of *group_name* that is not in *topics*."""
        for topic in [topic for topic, by_group in self.queues.items() if group_name in by_group]:
            if topic not in topics:
                self._drop(topic, group_name)

    def wipe_write(self, group_name: str) -> int:
        """Take the write permission from every topic of *group_name*; return how many topics it has."""
        return self._change_perm(group_name, lambda perm: perm & ~PERM_WRITE)

    def add_write(self, group_name: str) -> int:
        """Make every topic of *group_name* readable and writable; return how many topics it has.

        As in the reference other permission bits, such as inherit, are lost until the broker registers a change.
        """
        return self._change_perm(group_name, lambda perm: PERM_READ | PERM_WRITE)

    def _change_perm(self, group_name: str, change: Callable[[int], int]) -> int:
        count = 0
        for topic, by_group in self.queues.items():
            queues = by_group.get(group_name)
            if queues is not None:
                count += 1
                self.put(topic, msgspec.structs.replace(queues, perm=change(queues.perm)))
        return count

    def leave(self, removed: Collection[str], read_only: Collection[str]) -> None:
        """Drop the queues of *removed* groups and take the write permission from *read_only* ones, in one pass."""
        if not removed and not read_only:
            return
        self.lacking.difference_update(removed)
        for topic in list(self.queues):
            by_group = self.queues[topic]
            for name in list(by_group):
                if name in removed:
                    self._drop(topic, name)
                elif name in read_only:
                    self.put(topic, without_write(by_group[name]))

    def _drop(self, topic: str, group_name: str) -> None:
        by_group = self.queues.get(topic)
        if by_group is None or group_name not in by_group:
            return
        del by_group[group_name]
        self.kept.change(group_name, -_row_bytes(topic, group_name))
        if not by_group:
            del self.queues[topic]
        self.revision += 1

    # -- lists --------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return every topic."""
        return list(self.queues)

    def of_groups(self, group_names: Mapping[str, object]) -> list[str]:
        """Return the topics that have queues on any of *group_names*."""
        wanted = group_names.keys()
        return [topic for topic, by_group in self.queues.items() if not wanted.isdisjoint(by_group)]

    def of_units(self) -> list[str]:
        """Return unit topics. As in the reference a topic's first group decides."""
        return self._by_flags(lambda flags: flags & UNIT_FLAG != 0)

    def with_unit_subscription(self) -> list[str]:
        """Return topics that units subscribe to."""
        return self._by_flags(lambda flags: flags & UNIT_SUBSCRIPTION_FLAG != 0)

    def with_unit_subscription_only(self) -> list[str]:
        """Return topics that units subscribe to but that are no unit topics."""
        both = UNIT_FLAG | UNIT_SUBSCRIPTION_FLAG
        return self._by_flags(lambda flags: flags & both == UNIT_SUBSCRIPTION_FLAG)

    def _by_flags(self, wanted: Callable[[int], bool]) -> list[str]:
        return [topic for topic, by_group in self.queues.items() if wanted(next(iter(by_group.values())).topic_flags)]


def _row_bytes(topic: str, group_name: str) -> int:
    return ROW_BYTES + text_bytes(topic, group_name)


def _mapping_bytes(mapping: MappingInfo) -> int:
    return ROW_BYTES + text_bytes(mapping.topic, mapping.broker_name, mapping.scope) + 128 * len(mapping.current_ids)


def without_write(queues: QueueData) -> QueueData:
    """Return *queues* without the write permission."""
    return msgspec.structs.replace(queues, perm=queues.perm & ~PERM_WRITE)
