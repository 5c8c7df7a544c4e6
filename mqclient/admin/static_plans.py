"""Plans for static topics: which broker groups get which queues, and where moved ones go on; pure.

A plan is the whole mapping of a topic as every group will know it. It is written to a file before it is carried out, so
that the same plan can be carried out again when a broker fails half way.

Source: TopicQueueMappingUtils.java, TopicRemappingDetailWrapper.java.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from understudy.format.json_values import list_of, name_of
from understudy.format.numbers import whole_number
from understudy.format.static_topics import (
    GLOBAL_SCOPE,
    Items,
    MappingError,
    MappingItem,
    TopicMapping,
    check_apart,
    check_items,
)
from understudy.mqclient.admin.topics import QueueRange, TopicSettings
from understudy.mqclient.queue import MessageQueue

CREATE, REMAP = "CREATE_OR_UPDATE", "REMAPPING"
BLOCK = 10_000
"""Moved queues go on at a multiple of this."""
_EPOCH_STEP_MS = 1_000


@attrs.frozen
class BrokerTopic:
    """A static topic as one broker group has it."""

    settings: TopicSettings
    mapping: TopicMapping

    def to_json(self) -> dict[str, Any]:
        """Return the form of files and answers."""
        return {**self.settings.body(), "mappingDetail": self.mapping.to_json()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> BrokerTopic:
        """Read the form of files and answers. Raises ``ValueError``."""
        name = name_of(value.get("topicName"), "topicName")
        if not value.get("mappingDetail"):
            raise MappingError(f"{name} is there already, and is no static topic")
        settings = TopicSettings(
            name,
            whole_number(value.get("readQueueNums", 0), "readQueueNums"),
            whole_number(value.get("writeQueueNums", 0), "writeQueueNums"),
            whole_number(value.get("perm", 6), "perm"),
            bool(value.get("order", False)),
            whole_number(value.get("topicSysFlag", 0), "topicSysFlag"),
        )
        return cls(settings, TopicMapping.from_json(value["mappingDetail"], name))


Brokers = dict[str, BrokerTopic]


@attrs.frozen
class Plan:
    """What all groups will know of a topic.

    Attributes:
        topic: its name.
        kind: :data:`CREATE` or :data:`REMAP`.
        epoch: of the mapping.
        brokers: by group.
        map_in, map_out: groups that get queues of others, and those that lose them.
    """

    topic: str
    kind: str
    epoch: int
    brokers: Brokers
    map_in: frozenset[str] = frozenset()
    map_out: frozenset[str] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """Return the form of the reference's files."""
        return {
            "brokerConfigMap": {name: self.brokers[name].to_json() for name in sorted(self.brokers)},
            "brokerToMapIn": sorted(self.map_in),
            "brokerToMapOut": sorted(self.map_out),
            "epoch": self.epoch,
            "topic": self.topic,
            "type": self.kind,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Plan:
        """Read the form of the reference's files. Raises ``ValueError``."""
        brokers = value.get("brokerConfigMap")
        if not isinstance(brokers, Mapping) or not all(isinstance(each, Mapping) for each in brokers.values()):
            raise MappingError("brokerConfigMap: groups with their topics are expected")
        plan = cls(
            name_of(value.get("topic"), "topic"),
            name_of(value.get("type") or CREATE, "type"),
            whole_number(value.get("epoch"), "epoch"),
            {name: BrokerTopic.from_json(each) for name, each in brokers.items()},
            frozenset(map(str, list_of(value.get("brokerToMapIn"), "brokerToMapIn"))),
            frozenset(map(str, list_of(value.get("brokerToMapOut"), "brokerToMapOut"))),
        )
        chains_of(plan.topic, plan.brokers)
        unknown = (plan.map_in | plan.map_out) - plan.brokers.keys()
        if unknown:
            raise MappingError(f"brokerConfigMap has no {', '.join(sorted(unknown))}")
        return plan


def chains_of(topic: str, brokers: Brokers) -> dict[int, Items]:
    """Return the chain of each logical queue, as its leader knows it.

    Raises:
        MappingError: the groups do not agree, or the mapping cannot be.
    """
    mappings = [each.mapping for each in brokers.values()]
    for what in ("topic", "scope", "epoch", "total_queues"):
        values = {getattr(mapping, what) for mapping in mappings}
        if len(values) > 1:
            told = ", ".join(f"{mapping.broker_name} {getattr(mapping, what)}" for mapping in mappings)
            raise MappingError(f"the brokers do not agree on the {what.replace('_', ' ')} of {topic}: {told}")
    chains: dict[int, Items] = {}
    for name, each in brokers.items():
        if each.mapping.broker_name != name:
            raise MappingError(f"broker {name} has the mapping of {each.mapping.broker_name}")
        for global_id in each.mapping.led:
            if global_id in chains:
                raise MappingError(
                    f"logical queue {global_id} is led by {chains[global_id][-1].broker_name} and {name}"
                )
            check_items(each.mapping.queues[global_id])
            chains[global_id] = each.mapping.queues[global_id]
    total = max((mapping.total_queues for mapping in mappings), default=0)
    if len(chains) != total or any(not 0 <= global_id < total for global_id in chains):
        raise MappingError(f"{topic} has {total} queues, but these are led by a broker: {sorted(chains)}")
    check_apart(chains.items())
    for items in chains.values():
        for item in items:
            owner = brokers.get(item.broker_name)
            if owner is None or item.queue_id >= min(owner.settings.write_queues, owner.settings.read_queues):
                raise MappingError(f"{item.broker_name} has no queue {item.queue_id} of {topic}")
            if item.start_offset != 0:
                raise MappingError(f"queue {item.queue_id} of {item.broker_name} does not start at offset 0")
    return chains


def create(topic: str, queues: int, targets: Iterable[str], known: Brokers, now_ms: int) -> Plan:
    """Return the plan that gives *topic* more logical queues, or makes it.

    Args:
        topic: its name.
        queues: how many logical queues it shall have.
        targets: groups that take new ones, besides those that have the topic already.
        known: the topic as it is.
        now_ms: wall time.

    Raises:
        MappingError: there are as many already, or what is known is no sound mapping.
    """
    chains = chains_of(topic, known)
    if queues <= len(chains):
        raise MappingError(f"{topic} has {len(chains)} queues; the number can only grow, not become {queues}")
    load = Counter(dict.fromkeys([*targets, *known], 0))
    load.update(items[-1].broker_name for items in chains.values())
    draft = _Draft(topic, queues, _next_epoch(known, now_ms), known)
    for global_id in range(len(chains), queues):
        name = min(load, key=lambda each: (load[each], each))
        load[name] += 1
        draft.set(global_id, (MappingItem(0, draft.new_queue(name), name, 0),), name)
    brokers = draft.brokers()
    chains_of(topic, brokers)
    return Plan(topic, CREATE, draft.epoch, brokers)


def remap(topic: str, targets: Iterable[str], known: Brokers, now_ms: int) -> Plan:
    """Return the plan that has the logical queues of *topic* led by *targets*, evenly, moving as few as possible.

    Where the moved ones go on is not decided yet, see :func:`decided`.

    Args:
        topic: its name.
        targets: the groups.
        known: the topic as it is.
        now_ms: wall time.

    Raises:
        MappingError: what is known is no sound mapping, or a queue's last move was not finished.
    """
    chains = chains_of(topic, known)
    unfinished = [global_id for global_id, items in chains.items() if not items[-1].decided]
    if unfinished:
        raise MappingError(f"the last move of queues {unfinished} is not finished; repeat it with the file of its plan")
    before = Counter(items[-1].broker_name for items in chains.values())
    share, more = divmod(len(chains), len(set(targets)))
    # Those with most queues keep one more than the others.
    ranked = sorted(set(targets), key=lambda name: (-before[name], name))
    room = {name: share + (rank < more) for rank, name in enumerate(ranked)}
    moving = []
    for global_id, items in sorted(chains.items()):
        leader = items[-1].broker_name
        if room.get(leader, 0) > 0:
            room[leader] -= 1
        else:
            moving.append(global_id)
    draft = _Draft(topic, len(chains), _next_epoch(known, now_ms), known)
    takers = [name for name in ranked for _ in range(room[name])]
    map_in, map_out = set(takers), set()
    for global_id, name in zip(moving, takers, strict=True):
        items = chains[global_id]
        former = items[-1]
        moved = (*items, MappingItem(former.generation + 1, draft.new_queue(name), name))
        draft.set(global_id, moved, name, former.broker_name)
        map_out.add(former.broker_name)
    brokers = draft.brokers()
    chains_of(topic, brokers)
    return Plan(topic, REMAP, draft.epoch, brokers, frozenset(map_in), frozenset(map_out))


class _Draft:
    """Topics of groups while a plan is made."""

    def __init__(self, topic: str, total_queues: int, epoch: int, known: Brokers) -> None:
        self._topic = topic
        self._total = total_queues
        self.epoch = epoch
        scope = next((each.mapping.scope for each in known.values()), GLOBAL_SCOPE)
        self._empty = TopicMapping(topic, "", total_queues, epoch, scope=scope)
        self._brokers = dict(known)

    def new_queue(self, name: str) -> int:
        """Give group *name* one more physical queue; return its id."""
        topic = self.topic_of(name)
        queue_id = max(topic.settings.read_queues, topic.settings.write_queues)
        settings = attrs.evolve(topic.settings, read_queues=queue_id + 1, write_queues=queue_id + 1)
        self._brokers[name] = attrs.evolve(topic, settings=settings)
        return queue_id

    def set(self, global_id: int, items: Items, *names: str) -> None:
        """Set the chain of a logical queue at groups *names*."""
        for name in names:
            topic = self.topic_of(name)
            mapping = attrs.evolve(topic.mapping, queues={**topic.mapping.queues, global_id: items})
            self._brokers[name] = attrs.evolve(topic, mapping=mapping)

    def brokers(self) -> Brokers:
        """Return the topics, all with the new epoch."""
        return {
            name: attrs.evolve(each, mapping=attrs.evolve(each.mapping, epoch=self.epoch, total_queues=self._total))
            for name, each in self._brokers.items()
        }

    def topic_of(self, name: str) -> BrokerTopic:
        """Return the topic as group *name* has it; without queues where it is new there."""
        known = self._brokers.get(name)
        if known is not None:
            return known
        return BrokerTopic(TopicSettings(self._topic, 0, 0), attrs.evolve(self._empty, broker_name=name))


def with_bystanders(plan: Plan, names: Iterable[str]) -> Plan:
    """Return *plan* with groups *names*, too: those that it lacks have no queues, but know of the topic."""
    total = max(each.mapping.total_queues for each in plan.brokers.values())
    draft = _Draft(plan.topic, total, plan.epoch, plan.brokers)
    return attrs.evolve(plan, brokers={**{name: draft.topic_of(name) for name in names}, **plan.brokers})


def undecided_queues(plan: Plan) -> dict[int, MappingItem]:
    """Return the last led item of each logical queue whose new one is not decided, by global id."""
    return {
        global_id: items[-2]
        for each in plan.brokers.values()
        for global_id, items in each.mapping.queues.items()
        if len(items) > 1 and not items[-1].decided
    }


def decided(plan: Plan, ends: Mapping[int, int]) -> Plan:
    """Return *plan* with moved queues going on behind their former pieces, which end now.

    Args:
        plan: a plan.
        ends: by global id of a moved queue, the queue offset behind the last message of its former piece.
    """

    def settled(global_id: int, items: Items) -> Items:
        if global_id not in ends or items[-1].decided:
            return items
        former = attrs.evolve(items[-2], end_offset=ends[global_id])
        begin = round_up(former.to_logic(ends[global_id]))
        return (*items[:-2], former, attrs.evolve(items[-1], logic_offset=begin))

    return _with_chains(plan, settled)


def with_known(plan: Plan, known: Brokers) -> Plan:
    """Return *plan* with what was decided when it was carried out before, for which *known* is asked."""
    chains = {
        (global_id, items[-1].generation): items
        for each in known.values()
        if each.mapping.epoch == plan.epoch
        for global_id, items in each.mapping.queues.items()
        if items[-1].decided
    }

    def settled(global_id: int, items: Items) -> Items:
        return items if items[-1].decided else chains.get((global_id, items[-1].generation), items)

    return _with_chains(plan, settled)


def round_up(logic_offset: int) -> int:
    """Return where a queue goes on that ended at *logic_offset*: whole blocks, and half of one later at least."""
    blocks, rest = divmod(logic_offset, BLOCK)
    return (blocks + (1 if rest < BLOCK // 2 else 2)) * BLOCK


def _with_chains(plan: Plan, settle: Callable[[int, Items], Items]) -> Plan:
    brokers = {
        name: attrs.evolve(
            each,
            mapping=attrs.evolve(
                each.mapping,
                queues={global_id: settle(global_id, items) for global_id, items in each.mapping.queues.items()},
            ),
        )
        for name, each in plan.brokers.items()
    }
    return attrs.evolve(plan, brokers=brokers)


def _next_epoch(known: Brokers, now_ms: int) -> int:
    return max([now_ms, *(each.mapping.epoch + _EPOCH_STEP_MS for each in known.values())])


def logical_ranges(brokers: Brokers, queues: Mapping[MessageQueue, QueueRange]) -> dict[MessageQueue, QueueRange]:
    """Return what the logical queues of a static topic hold, as far as it is known.

    Args:
        brokers: the topic as every group has it.
        queues: what its physical queues hold.
    """
    newest: dict[int, tuple[int, TopicMapping]] = {}
    for each in brokers.values():
        for global_id in each.mapping.led:
            claim = each.mapping.epoch, each.mapping
            newest[global_id] = max(newest.get(global_id, claim), claim, key=lambda known: known[0])
    found = {}
    for global_id, (_, mapping) in sorted(newest.items()):
        decided_items = [item for item in mapping.queues[global_id] if item.decided]
        if not decided_items:
            continue
        oldest, last = decided_items[0], decided_items[-1]
        low = queues.get(MessageQueue(mapping.topic, oldest.broker_name, oldest.queue_id))
        high = queues.get(MessageQueue(mapping.topic, last.broker_name, last.queue_id))
        if low is not None and high is not None:
            held = QueueRange(oldest.to_logic(low.min_offset), last.to_logic(high.max_offset), high.last_update_ms)
            found[MessageQueue(mapping.topic, mapping.logical_broker, global_id)] = held
    return found
