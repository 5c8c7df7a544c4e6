"""Who consumes which queue: every member of a group computes the same answer from the same lists.

A strategy is a function of (own id, sorted queues, sorted ids of all members) that returns the member's own queues. The
results equal those of the reference's strategies of the same name, so that groups may mix clients.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Mapping, Sequence

import attrs

from understudy.mqclient.queue import MessageQueue

Allocate = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]


@attrs.frozen
class Strategy:
    """A named allocation.

    Attributes:
        name: as the reference calls it; shown in tools.
        allocate: the function.
    """

    name: str
    allocate: Allocate


def _averagely(client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
    if client_id not in clients:
        return []
    index = clients.index(client_id)
    share, left_over = divmod(len(queues), len(clients))
    start = index * share + min(index, left_over)
    return list(queues[start : start + share + (1 if index < left_over else 0)])


def _by_circle(client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
    if client_id not in clients:
        return []
    return list(queues[clients.index(client_id) :: len(clients)])


def _ring_position(key: str) -> int:
    # ConsistentHashRouter.java folds the first four bytes of the MD5 digest.
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4], "big")


def consistent_hash(virtual_nodes: int = 10) -> Strategy:
    """Return the strategy that moves few queues when members come and go.

    Args:
        virtual_nodes: positions of each member on the ring.
    """

    def allocate(client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        ring: dict[int, str] = {}
        for client in clients:
            for number in range(virtual_nodes):
                ring[_ring_position(f"{client}-{number}")] = client
        positions = sorted(ring)

        def owner(queue: MessageQueue) -> str:
            at = bisect.bisect_left(positions, _ring_position(str(queue)))
            return ring[positions[at % len(positions)]]

        return [queue for queue in queues if owner(queue) == client_id] if ring else []

    return Strategy("CONSISTENT_HASH", allocate)


def by_config(queues_of_topic: Mapping[str, Sequence[MessageQueue]]) -> Strategy:
    """Return the strategy that takes exactly the configured queues, whoever else is in the group.

    Args:
        queues_of_topic: own queues by topic; queues that the route does not have are left out.
    """

    def allocate(client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        existing = set(queues)
        topics = {queue.topic for queue in queues}
        return [queue for topic in sorted(topics) for queue in queues_of_topic.get(topic, ()) if queue in existing]

    return Strategy("CONFIG", allocate)


def nearby(
    within: Strategy, room_of_queue: Callable[[MessageQueue], str], room_of_member: Callable[[str], str]
) -> Strategy:
    """Return the strategy that keeps queues in their machine room as long as a member is there.

    Args:
        within: how the members of a room share its queues, and how all members share those of rooms without one.
        room_of_queue: the machine room of a queue's broker.
        room_of_member: the machine room of a member, by its client id.
    """

    def allocate(client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        if client_id not in clients:
            return []
        rooms = {client: room_of_member(client) for client in clients}
        queues_of: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_of.setdefault(room_of_queue(queue), []).append(queue)
        own = rooms[client_id]
        members = [client for client in clients if rooms[client] == own]
        found = within.allocate(client_id, queues_of.pop(own, []), members)
        for room in sorted(queues_of):
            if room not in rooms.values():
                found += within.allocate(client_id, queues_of[room], clients)
        return found

    return Strategy(f"MACHINE_ROOM_NEARBY-{within.name}", allocate)


AVERAGELY = Strategy("AVG", _averagely)
BY_CIRCLE = Strategy("AVG_BY_CIRCLE", _by_circle)
CONSISTENT_HASH = consistent_hash()


@attrs.frozen
class Change:
    """What a rebalance asks for: queues to give back and queues to take."""

    revoked: tuple[MessageQueue, ...]
    taken: tuple[MessageQueue, ...]


def change(held: Sequence[MessageQueue] | set[MessageQueue], allotted: Sequence[MessageQueue]) -> Change:
    """Compare the queues *held* with those *allotted* and return the difference, in stable order."""
    wanted = set(allotted)
    holding = set(held)
    return Change(tuple(sorted(holding - wanted)), tuple(queue for queue in allotted if queue not in holding))
