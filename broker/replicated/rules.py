"""A master's tables as a slave reads them, and what a slave does with them: no I/O.

The rules:

* A slave's topics and groups carry the version of its master. While the slave follows, own changes do not move it.
* At the first look at a master an older table takes nothing away and overwrites nothing: it only adds what is missing
  here. (It is older when the slave acted, or when the master lost its disk.)
* Afterwards every change of the master counts, but only a table that is not older than ours deletes rows, and only once
  the log of this master was seen to continue ours: a master that lost its disk is never obeyed when it forgets things.
* Offsets are never taken back by an older value: at the first look the larger offset of each queue wins, unless a newer
  reset stands behind the other one. Afterwards every queue that changed at the master counts, smaller ones as well.
* Offsets of a topic that was deleted go with it, also when a topic of that name was made again before anybody looked.
  So do those of a group that was deleted with them.

Source: SlaveSynchronize.java, which lets whole tables win.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from understudy.broker.offset_content import (
    LOG_ENDS,
    PENDING_RESETS,
    REMOVED_GROUPS,
    REMOVED_TOPICS,
    RESET_STAMPS,
    offset_table,
    queue_table,
    removed_table,
)
from understudy.broker.offset_keys import is_of
from understudy.broker.offsets import OffsetTable
from understudy.format.data_version import DataVersion
from understudy.format.json_dialect import JsonError, loads, loads_in_steps
from understudy.runtime.log import get_logger
from understudy.store.deletions import Deletion, from_json

if TYPE_CHECKING:
    from understudy.broker.replicated.table import Source

log = get_logger("broker.slave_sync")

Queues = dict[str, dict[int, int]]


class ReplicaTableError(ValueError):
    """A master's answer that is no table; nothing was taken."""


@attrs.frozen
class Takeover:
    """How a whole table is taken.

    Attributes:
        take: whether there is anything to take.
        delete: rows the master does not have go.
        overwrite: the master's rows win.
        adopt: the master's version becomes ours.
    """

    take: bool
    delete: bool = False
    overwrite: bool = False
    adopt: bool = False


def takeover(own: DataVersion, former: DataVersion | None, theirs: DataVersion, leads: bool = True) -> Takeover:
    """Decide how to take topics or groups.

    Args:
        own: our version.
        former: the source's version at the last look; ``None`` at the first look at it.
        theirs: its version now.
        leads: it is the master; a slave that acts takes nothing away, and overwrites only when its table is newer.
    """
    if theirs == former:
        return Takeover(False)
    if not leads:
        newer = theirs > own or own.is_first
        return Takeover(True, overwrite=newer, adopt=newer)
    if theirs >= own or own.is_first:
        return Takeover(True, delete=True, overwrite=True, adopt=True)
    return Takeover(True, overwrite=former is not None)


def tell_older(what: str, source: Source, own: DataVersion, theirs: DataVersion) -> None:
    """Say in the log that a master's table is older than ours.

    Args:
        what: the table is.
        source: the master that was asked.
        own: version of our table.
        theirs: version of the master's.
    """
    log.warning(
        f"the master's {what} are older than ours, nothing is deleted", master=source.address, own=own, its=theirs
    )


@attrs.frozen
class OffsetsAnswer:
    """Another replica's consumer offsets.

    Attributes:
        table: offsets by key and queue.
        stamps: when queues were reset.
        version: of the table.
        pending: resets that no consumer has learnt yet.
        removed_topics, removed_groups: when it removed the offsets of whole topics and groups.
        log_ends: where pops moved a queue, what of its log belongs to that.
    """

    table: Queues
    stamps: Queues
    version: DataVersion
    pending: Queues = attrs.Factory(dict)
    removed_topics: Mapping[str, int] = attrs.Factory(dict)
    removed_groups: Mapping[str, int] = attrs.Factory(dict)
    log_ends: Queues = attrs.Factory(dict)

    def within_log(self, end: int) -> OffsetsAnswer:
        """Return the answer without offsets whose log goes beyond byte *end*: nothing brings back what was popped."""
        if not any(beyond > end for ends in self.log_ends.values() for beyond in ends.values()):
            return self
        table: Queues = {}
        for key, queues in self.table.items():
            ends = self.log_ends.get(key, {})
            kept = {queue_id: offset for queue_id, offset in queues.items() if ends.get(queue_id, 0) <= end}
            if kept:
                table[key] = kept
        return attrs.evolve(self, table=table)

    def without(self, topics: Container[str], groups: Container[str]) -> OffsetsAnswer:
        """Return the answer without the offsets of *topics* and *groups*."""
        table, stamps, pending = (
            {key: queues for key, queues in rows.items() if not is_of(key, topics, groups)}
            for rows in (self.table, self.stamps, self.pending)
        )
        return attrs.evolve(self, table=table, stamps=stamps, pending=pending)


def read_object(body: bytes, *, in_steps: bool = False) -> Mapping[str, Any]:
    """Return the JSON object of an answer, read *in_steps* in a thread. Raises :class:`ReplicaTableError`."""
    try:
        value = loads_in_steps(body, None) if in_steps else loads(body)
    except JsonError as error:
        raise ReplicaTableError(f"no JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise ReplicaTableError("no JSON object")
    return value


def read_offsets(body: bytes) -> OffsetsAnswer:
    """Read the body of GET_ALL_CONSUMER_OFFSET, ours or the reference's. Raises :class:`ReplicaTableError`."""
    value = read_object(body)
    try:
        table, stamps = offset_table(value), queue_table(value, RESET_STAMPS)
        pending = queue_table(value, PENDING_RESETS)
        topics, groups = removed_table(value, REMOVED_TOPICS), removed_table(value, REMOVED_GROUPS)
        ends = queue_table(value, LOG_ENDS)
    except ValueError as error:
        raise ReplicaTableError(str(error)) from None
    return OffsetsAnswer(table, stamps, DataVersion.from_json(value.get("dataVersion")), pending, topics, groups, ends)


def read_levels(body: bytes) -> tuple[dict[int, int], DataVersion]:
    """Read the body of GET_ALL_DELAY_OFFSET: next offset per level. Raises :class:`ReplicaTableError`."""
    value = read_object(body)
    table = value.get("offsetTable") or {}
    try:
        levels = {int(level): int(offset) for level, offset in table.items()}
    except (AttributeError, TypeError, ValueError):
        raise ReplicaTableError("offsetTable: levels and offsets must be whole numbers") from None
    return levels, DataVersion.from_json(value.get("dataVersion"))


def read_forbidden(table: object) -> dict[str, dict[str, int]]:
    """Read what is forbidden to groups: group, topic, bits. Raises :class:`ReplicaTableError`."""
    if table is None:
        return {}
    try:
        return {
            str(group): {str(topic): int(bits) for topic, bits in topics.items()}
            for group, topics in table.items()  # type: ignore[attr-defined]  # anything else is told below
        }
    except (AttributeError, TypeError, ValueError):
        raise ReplicaTableError("forbiddenTable: groups with topics and numbers are expected") from None


def of_present(own: OffsetTable, theirs: OffsetsAnswer) -> OffsetsAnswer:
    """Return a replica's offsets without those of topics and groups that were deleted here since it heard of it.

    Args:
        own: the table of the master that they were deleted at.
        theirs: the answer of a replica of ours; one of the reference never says what it heard of.
    """
    return theirs.without(
        own.removed_topics.newer_than(theirs.removed_topics), own.removed_groups.newer_than(theirs.removed_groups)
    )


def read_deletions(answer: Mapping[str, Any]) -> dict[str, Deletion]:
    """Read which topics a master of ours deleted, and where in its log. Raises :class:`ReplicaTableError`."""
    try:
        return from_json(answer.get("deletedTopicTable") or {})
    except ValueError as error:
        raise ReplicaTableError(f"deletedTopicTable: {error}") from None


def offsets_to_take(own: OffsetTable, former: OffsetsAnswer | None, theirs: OffsetsAnswer) -> Queues:
    """Return the queues whose offset must be taken from the master.

    Args:
        own: our offsets.
        former: the master's answer at the last look; ``None`` at the first look at this master.
        theirs: its answer now.
    """
    wanted: Queues = {}
    for key, queues in theirs.table.items():
        ours = own.committed.get(key, {})
        before = None if former is None else former.table.get(key, {})
        if before == queues and queues.keys() <= ours.keys():
            continue
        stamps, own_stamps = theirs.stamps.get(key, {}), own.stamps.get(key, {})
        for queue_id, offset in queues.items():
            if queue_id not in ours:
                take = True
            elif before is not None and queue_id in before:
                take = before[queue_id] != offset
            else:
                take = (stamps.get(queue_id, 0), offset) > (own_stamps.get(queue_id, 0), ours[queue_id])
            if take and ours.get(queue_id) != offset:
                wanted.setdefault(key, {})[queue_id] = offset
    return wanted
