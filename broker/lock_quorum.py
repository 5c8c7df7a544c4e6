"""Locks that a majority of the replicas must grant: which queues a client gets, and which grants are taken back.

Pure. Source: AdminBrokerProcessor.java, which leaves the grants of a failed attempt where they are, so that nobody gets
the queue until they run out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from understudy.broker.locks import Queue


def quorum_of(total_replicas: int) -> int:
    """Return how many replicas of a group must grant a lock."""
    return total_replicas // 2 + 1


@attrs.frozen
class LockResult:
    """What came of one request.

    Attributes:
        granted: the queues the client holds now, in the order asked for.
        refused: the queues that too few replicas granted.
        returned: those of them that are given back everywhere.
        unclear: those of the refused queues that the client held before, and that silent replicas may have granted. It
            must not be told that it has lost them: it would give up what nobody else can have.
        open: the queues of which that depends on replicas that have not answered yet.
    """

    granted: tuple[Queue, ...]
    refused: tuple[Queue, ...]
    returned: tuple[Queue, ...]
    unclear: tuple[Queue, ...] = ()
    open: tuple[Queue, ...] = ()


def decide(
    asked: Sequence[Queue],
    grants: Mapping[str, Iterable[Queue]],
    quorum: int,
    held: Collection[Queue] = (),
    waiting: int = 0,
    silent: int = 0,
) -> LockResult:
    """Count the grants.

    Args:
        asked: what the client wants.
        grants: replica to the queues it granted; a replica that did not answer is missing.
        quorum: how many replicas must grant a queue.
        held: queues that the client held before. It may go on for a while without learning that they were refused, so
            nobody else gets them before its lock has run out.
        waiting: how many replicas may still answer.
        silent: how many were asked and will not.
    """
    sets = [frozenset(granted) for granted in grants.values()]
    votes = {queue: sum(queue in granted for granted in sets) for queue in asked}
    return LockResult(
        tuple(queue for queue in asked if votes[queue] >= quorum),
        tuple(queue for queue in asked if votes[queue] + waiting < quorum),
        tuple(queue for queue in asked if 0 < votes[queue] < quorum - waiting and queue not in held),
        tuple(q for q in asked if votes[q] + waiting < quorum <= votes[q] + waiting + silent and q in held),
        tuple(queue for queue in asked if votes[queue] < quorum <= votes[queue] + waiting),
    )
