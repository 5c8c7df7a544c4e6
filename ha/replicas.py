"""Which replicas count, and when a message is replicated: functions of offsets, nothing else.

The rules:

* A replica is *known* from its first report. Before it, it counts for nothing.
* A report above the master's own log is a claim about bytes that do not exist here: the replica is **ahead**. It never
  counts, moves nothing forward, and its connection ends (differs because the reference counts it as in sync).
* A replica is *in sync* for an offset when less than ``max_gap_bytes`` of the log is missing to it.
* A message is replicated when enough replicas have reported its end. What was reported is never taken back by a
  replica that goes away: it has the bytes.
"""

from __future__ import annotations

from collections.abc import Hashable

import attrs


@attrs.frozen
class Replica:
    """What the master knows of one connected slave.

    Attributes:
        acknowledged: end of its log in bytes as it last reported; -1 before the first report.
        requested: its first report, where the transfer began; -1 before.
    """

    acknowledged: int = -1
    requested: int = -1

    @property
    def known(self) -> bool:
        """Whether it has reported at all."""
        return self.acknowledged >= 0


class AheadError(Exception):
    """A slave's log is longer than its master's; the message says by how much and what to do."""


def reported(replica: Replica, offset: int, master_max_offset: int) -> Replica:
    """Return *replica* after it reported *offset*.

    Args:
        replica: what was known before.
        offset: the end of the slave's log in bytes.
        master_max_offset: the end of the master's log in bytes.

    Raises:
        AheadError: the slave has bytes that the master never had.
    """
    if offset > master_max_offset:
        raise AheadError(
            f"the slave's log reaches {offset}, {offset - master_max_offset} bytes after the master's end "
            f"({master_max_offset}): one of them lost data or belongs to another group. Compare both logs; to follow "
            "this master, move the slave's store away and let it copy the log again"
        )
    first = offset if replica.requested < 0 else replica.requested
    return Replica(max(replica.acknowledged, offset), first)


def transfer_start(requested: int, min_offset: int, max_offset: int, file_bytes: int, *, whole_log: bool) -> int:
    """Return where the transfer to a slave begins.

    Args:
        requested: the slave's first report in bytes; 0 from an empty slave.
        min_offset: first byte the master still has; -1 for an empty log.
        max_offset: end of the master's log.
        file_bytes: size of one commit log file.
        whole_log: give an empty slave everything; otherwise only the last file, as the reference does.

    Returns:
        A physical offset. Below ``min_offset`` it is what the slave asked for and the master no longer has; never so
        for an empty slave.
    """
    if requested:
        return requested
    first = max(min_offset, 0)
    return first if whole_log else max(max_offset - max_offset % file_bytes, first)


def in_sync_count(replicas: dict[Hashable, Replica], offset: int, max_gap_bytes: int) -> int:
    """Return how many replicas, the master included, are close enough to *offset* to count as in sync."""
    return 1 + sum(replica.known and offset - replica.acknowledged < max_gap_bytes for replica in replicas.values())


def copies_of(replicas: dict[Hashable, Replica], end_offset: int) -> int:
    """Return how many replicas, the master included, have every byte before *end_offset*."""
    return 1 + sum(replica.acknowledged >= end_offset for replica in replicas.values())


def copied_up_to(replicas: dict[Hashable, Replica], copies: int, master_max_offset: int) -> int:
    """Return the offset before which at least *copies* replicas, the master included, have every byte; 0 for none."""
    if copies <= 1:
        return master_max_offset
    known = sorted((replica.acknowledged for replica in replicas.values() if replica.known), reverse=True)
    return known[copies - 2] if len(known) >= copies - 1 else 0


def acks_needed(
    *,
    in_sync: int,
    alive: int,
    in_sync_replicas: int,
    min_in_sync_replicas: int,
    auto: bool,
) -> int | None:
    """Return how many copies a synchronous send needs in acting-master mode, or ``None`` when it must be refused before
    it is written. Outside that mode ``inSyncReplicas`` are wanted and sends are never refused beforehand.

    Args:
        in_sync: replicas in sync now, the master included.
        alive: replicas alive in the name server's view, the master included.
        in_sync_replicas: ``inSyncReplicas``, the copies wanted.
        min_in_sync_replicas: ``minInSyncReplicas``, the copies without which nothing is accepted.
        auto: ``enableAutoInSyncReplicas``: take fewer copies while fewer replicas are in sync.
    """
    reachable = min(alive, in_sync)
    needed = max(min(in_sync_replicas, reachable), min_in_sync_replicas) if auto else in_sync_replicas
    return needed if needed <= reachable else None
