"""Whom a broker remembers of its group: what the name servers showed it last, kept beside its store.

Pure. A name server that has just booted shows an empty group. A master that comes back beside one would think that it
is alone, and lose what its slave knows; so it also asks whom it remembers.

A member is remembered from the first view that shows it. It is forgotten when views have been without it for
:data:`FORGET_SECONDS`: it is gone for good then, or was moved. Only views that show this broker count for that, others
are of a name server that does not know the group yet.

A slave without which this master went on is kept beside them until it has answered, however long that takes and however
often the master starts meanwhile: what it was told is known to nobody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from understudy.broker.merge import StampedOffset, Table

FORGET_SECONDS = 60.0
FILE_NAME = "members.json"
LEFT_OUT_MOST = 16
"""Slaves that are kept as left out; of more the first ones are forgotten."""
QUEUES_MOST = 100_000
"""Offsets that are kept beside all of them. Where there are more, what is not kept counts as moved since."""


@attrs.frozen
class LeftOut:
    """A slave without which this master went on, and that has not answered since.

    Attributes:
        broker_id: its id.
        address: where it was shown last, ``host:port``.
        before: by kind of table, the master's offsets when it began to serve without it.
    """

    broker_id: int
    address: str
    before: Mapping[str, Table] = attrs.field(factory=dict)


@attrs.frozen
class GroupMemory:
    """What is remembered.

    Attributes:
        members: ids and addresses, this broker included; ``None``: nothing was ever remembered.
        declining: ids of members whose ``enableSlaveActingMaster`` is false.
        missed_since: monotonic seconds since which views have been without a remembered id.
        left_out: slaves without which this master went on, in the order in which it did.
    """

    members: Mapping[int, str] | None = None
    declining: frozenset[int] = frozenset()
    missed_since: Mapping[int, float] = attrs.field(factory=dict)
    left_out: tuple[LeftOut, ...] = ()

    def lone(self, own_id: int, total_replicas: int) -> bool:
        """Return whether the group never had another member, as far as is known.

        Args:
            own_id: this broker.
            total_replicas: ``totalReplicas``; counts as long as nobody is remembered.
        """
        if self.members is None:
            return total_replicas <= 1
        return not self.members.keys() - {own_id}

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file, with :data:`QUEUES_MOST` offsets at most: of others a start knows less."""
        room, left_out = QUEUES_MOST, []
        for each in self.left_out:
            before = _first(each.before, room)
            room -= sum(len(queues) for table in before.values() for queues in table.values())
            left_out.append(_left_out_json(attrs.evolve(each, before=before)))
        return {
            "members": {str(number): address for number, address in (self.members or {}).items()},
            "declining": sorted(self.declining),
            "leftOut": left_out,
        }


def read(content: Mapping[str, Any]) -> GroupMemory:
    """Return what a file says. Raises ``ValueError``."""
    listed = content.get("members")
    if not isinstance(listed, Mapping):
        raise ValueError("members: expected an object of ids and addresses")
    if not all(str(number).isdecimal() and isinstance(address, str) for number, address in listed.items()):
        raise ValueError("members: expected ids that are whole numbers, with an address each")
    declining = content.get("declining") or []
    if not isinstance(declining, list) or not all(isinstance(number, int) for number in declining):
        raise ValueError("declining: expected a list of ids")
    members = {int(number): address for number, address in listed.items()}
    try:
        left_out = tuple(_left_out(each) for each in content.get("leftOut") or [])
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError("leftOut: expected a list of members, with an id, an address and offsets each") from None
    return GroupMemory(members or None, frozenset(declining), left_out=left_out[-LEFT_OUT_MOST:])


def _left_out_json(left: LeftOut) -> dict[str, Any]:
    before = {
        kind: {key: {str(queue_id): list(at) for queue_id, at in queues.items()} for key, queues in table.items()}
        for kind, table in left.before.items()
    }
    return {"brokerId": left.broker_id, "address": left.address, "before": before}


def _left_out(content: Mapping[str, Any]) -> LeftOut:
    before = {
        kind: {
            key: {int(queue_id): StampedOffset(int(stamp), int(offset)) for queue_id, (stamp, offset) in queues.items()}
            for key, queues in table.items()
        }
        for kind, table in content["before"].items()
    }
    return LeftOut(int(content["brokerId"]), str(content["address"]), before)


def observe(memory: GroupMemory, view: Mapping[int, str], own_id: int, now: float) -> GroupMemory:
    """Return what is remembered after a view of the group.

    Args:
        memory: what was remembered before.
        view: ids and addresses that the name servers show.
        own_id: this broker.
        now: monotonic seconds.
    """
    members = {**(memory.members or {}), **view}
    missed: dict[int, float] = {}
    if own_id in view:
        missed = {each: memory.missed_since.get(each, now) for each in members if each not in view}
        for each, since in list(missed.items()):
            if now - since >= FORGET_SECONDS:
                del missed[each], members[each]
    left_out = tuple(attrs.evolve(each, address=view.get(each.broker_id, each.address)) for each in memory.left_out)
    return GroupMemory(dict(sorted(members.items())), memory.declining & members.keys(), missed, left_out)


# --- slaves that were left out ---------------------------------------------------------------------------------------


def without(memory: GroupMemory, left_out: Mapping[int, str], now: Mapping[str, Table]) -> GroupMemory:
    """Return what is remembered by a master that goes on without some slaves.

    One that was left out before keeps the offsets of then: what has moved since has moved at this master.

    Args:
        memory: what was remembered before.
        left_out: ids and addresses of all that it goes on without, whenever that began.
        now: by kind of table, the master's offsets as it begins to serve.
    """
    known = {each.broker_id: each for each in memory.left_out}
    older = [known[each] for each in known if each in left_out]
    kept = [attrs.evolve(each, address=left_out[each.broker_id]) for each in older]
    before = {kind: {key: dict(queues) for key, queues in table.items()} for kind, table in now.items()}
    kept += [LeftOut(each, address, before) for each, address in left_out.items() if each not in known]
    return attrs.evolve(memory, left_out=tuple(kept[-LEFT_OUT_MOST:]))


def _first(tables: Mapping[str, Table], most: int) -> dict[str, Table]:
    """Return whole keys of *tables* that have *most* offsets together."""
    found: dict[str, Table] = {}
    for kind, table in tables.items():
        kept = {}
        for key, queues in table.items():
            if len(queues) <= most:
                most -= len(queues)
                kept[key] = queues
        found[kind] = kept
    return found


def answered(memory: GroupMemory, broker_id: int, moved: Mapping[str, Table]) -> GroupMemory:
    """Return what is remembered after a slave that was left out has answered.

    Args:
        memory: what was remembered before.
        broker_id: the slave.
        moved: by kind of table, the offsets that the master took over from it. It was not the group that moved there.
    """
    return attrs.evolve(
        memory,
        left_out=tuple(
            attrs.evolve(each, before={kind: _moved(table, moved.get(kind, {})) for kind, table in each.before.items()})
            for each in memory.left_out
            if each.broker_id != broker_id
        ),
    )


def _moved(before: Table, moved: Table) -> Table:
    return {**before, **{key: {**before.get(key, {}), **queues} for key, queues in moved.items()}}
