"""Where a message goes that a slave may not store itself, and where one is read: decisions without I/O.

* A master of the same container comes first, in the order of the container's table; one that is not online yet, or
  belongs to the slave's own group, is none.
* Otherwise a live master elsewhere, when ``enableRemoteEscape`` allows it: the queues of the topic's route that can be
  written and whose group has a master, in turn; never one of the own group.
* Messages that belong together (``specific``) always find the same queue while the route stays as it is.

Source: EscapeBridge.java.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from understudy.format.java_hash import java_hash
from understudy.remoting.codes import ResponseCode
from understudy.store.status import PutStatus


@attrs.frozen(order=True)
class Queue:
    """One queue that can be written."""

    broker_name: str
    queue_id: int


@attrs.frozen
class Remote:
    """A queue of a live master elsewhere."""

    broker_name: str
    address: str
    queue_id: int


@attrs.frozen
class NoTarget:
    """There is none now; *status* is the reference's name for it, *why* is for people."""

    status: PutStatus
    why: str


def local_queue(queues: int, queue_id: int) -> int:
    """Return the queue at a master with *queues* queues for a message that was meant for *queue_id* of its group."""
    return queue_id % queues


def remote(
    own_group: str,
    queues: Sequence[Queue],
    masters: Mapping[str, str],
    turn: int,
    *,
    allowed: bool = True,
    specific: str | None = None,
) -> Remote | NoTarget:
    """Choose a queue of another group.

    Args:
        own_group: never chosen.
        queues: what the route offers for writing.
        masters: broker name to the address of its master.
        turn: grows with every message; the queues take turns.
        allowed: ``enableRemoteEscape``.
        specific: what messages that must find the same queue have in common; ``None`` to take turns.
    """
    if not allowed:
        return NoTarget(PutStatus.SERVICE_NOT_AVAILABLE, "no master in this container, and enableRemoteEscape=false")
    usable = [each for each in queues if each.broker_name != own_group and each.broker_name in masters]
    if not usable:
        return NoTarget(PutStatus.PUT_TO_REMOTE_BROKER_FAIL, "no other group with a live master has the topic")
    index = turn if specific is None else java_hash(specific)
    chosen = usable[index % len(usable)]
    return Remote(chosen.broker_name, masters[chosen.broker_name], chosen.queue_id)


_STORED = {
    ResponseCode.SUCCESS: PutStatus.PUT_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: PutStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: PutStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: PutStatus.SLAVE_NOT_AVAILABLE,
}

LATE = frozenset({PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE})
"""The message is in a log, but its disk or its copies are late."""


def put_status(code: int) -> PutStatus:
    """Return what the answer to a send means; of those in :data:`LATE` more is to be learnt."""
    return next((status for known, status in _STORED.items() if known == code), PutStatus.PUT_TO_REMOTE_BROKER_FAIL)


def read_result(code: int) -> tuple[str, bool]:
    """Return what a pull answer without a message means: a word for logs, and whether nothing was learnt by it."""
    missing = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)
    return ("no msg", False) if code in missing else ("other resp code", True)


def is_gone(ext: Mapping[str, str], offset: int) -> bool:
    """Return whether a pull answer without a message shows that there will never be one again: the queue begins later.

    Args:
        ext: its header.
        offset: queue offset that was asked for.
    """
    low = ext.get("minOffset", "")
    return low.isascii() and low.isdecimal() and len(low) < 20 and offset < int(low)
