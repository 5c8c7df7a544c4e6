"""Where each member of a broadcasting group reads, as its pulls tell.

A member that pulls by itself keeps its own progress. A proxy pulls for members that have none, and members change
between the two ways; then the broker says where to go on. The rules:

* Every pull of such a member notes where it reads. A member that just changed its way goes on where it was, in each of
  its queues (the reference hands over only the first queue that pulls).
* A member that never was here begins where the slowest one of its group was last seen, else at the young queue's first
  message, else at the end.
* The slowest offset of each queue is committed every few seconds under a name that no group can have.
* Members are forgotten after a silence, a longer one while they are connected.

Source: BroadcastOffsetManager.java.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from understudy.broker.offset_keys import BROADCAST_SUFFIX
from understudy.broker.offsets import OffsetTable
from understudy.runtime.clock import Clock
from understudy.runtime.signal import Signal

SWEEP_SECONDS = 5.0
MEMBERS_LIMIT = 100_000
"""Members per broker; those beyond it are served but not remembered."""


@attrs.define(eq=False)
class _Member:
    seen: float = 0.0
    queues: dict[int, tuple[int, bool]] = attrs.Factory(dict)
    """Queue id to offset, and whether a proxy pulled there last."""


Member = tuple[str, str, str]
"""Topic, group and client id."""


class BroadcastOffsets:
    """Every broadcasting member that pulls from one broker.

    Args:
        clock: for ages.
        committed: where the slowest offsets are kept.
        expiry_seconds: silence after which a member that is not connected is forgotten.
        connected_expiry_seconds: the same for one that is connected.
    """

    def __init__(
        self,
        clock: Clock,
        committed: OffsetTable,
        expiry_seconds: Callable[[], int],
        connected_expiry_seconds: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._committed = committed
        self._expiry_seconds = expiry_seconds
        self._connected_expiry_seconds = connected_expiry_seconds
        self._members: dict[Member, _Member] = {}
        self._joined = Signal()

    def __len__(self) -> int:
        """Return how many members are remembered."""
        return len(self._members)

    def note(self, member: Member, queue_id: int, offset: int, proxied: bool) -> None:
        """Remember that *member* reads *queue_id* at *offset*, by itself or *proxied*."""
        if offset < 0:
            return
        known = self._members.get(member)
        if known is None:
            if len(self._members) >= MEMBERS_LIMIT:
                return
            known = self._members[member] = _Member()
            self._joined.set()
        known.seen = self._clock.monotonic()
        known.queues[queue_id] = (offset, proxied)

    def start(self, member: Member, queue_id: int, asked: int, proxied: bool, otherwise: Callable[[], int]) -> int:
        """Return where *member* must go on, or -1 when it may read where it asked.

        Args:
            member: who pulls.
            queue_id: the queue.
            asked: the offset it asked for; a proxy that knows none sends a negative one.
            proxied: a proxy pulls for it.
            otherwise: the beginning for a group of which nothing is known.
        """
        known = self._members.get(member)
        known_offset = None if known is None else known.queues.get(queue_id)
        wants_start = proxied and asked < 0
        if known_offset is not None:
            return known_offset[0] if wants_start or known_offset[1] != proxied else -1
        if not wants_start:
            return -1
        topic, group, _ = member
        committed = self._committed.query(group + BROADCAST_SUFFIX, topic, queue_id)
        return committed if committed >= 0 else otherwise()

    def sweep(self, connected: Callable[[str, str], bool]) -> None:
        """Forget silent members and commit the slowest offset of each queue.

        Args:
            connected: whether a group has a client of that id on some connection.
        """
        now = self._clock.monotonic()
        slowest: dict[tuple[str, str, int], int] = {}
        for key, member in list(self._members.items()):
            topic, group, client_id = key
            is_connected = connected(group, client_id)
            silent = now - member.seen
            if is_connected or silent < self._expiry_seconds():
                for queue_id, (offset, _) in member.queues.items():
                    known_offset = (group, topic, queue_id)
                    slowest[known_offset] = min(slowest.get(known_offset, offset), offset)
            if silent >= (self._connected_expiry_seconds() if is_connected else self._expiry_seconds()):
                del self._members[key]
        for (group, topic, queue_id), offset in slowest.items():
            name = group + BROADCAST_SUFFIX
            if self._committed.query(name, topic, queue_id) != offset:
                self._committed.commit(name, topic, queue_id, offset)

    async def run(self, connected: Callable[[str, str], bool]) -> None:
        """Sweep every :data:`SWEEP_SECONDS` while there is somebody, until cancelled."""
        while True:
            if not self._members:
                await self._joined.wait()
            await self._clock.sleep(SWEEP_SECONDS)
            self.sweep(connected)
