"""Moving a consumer group: what it would do, queue by queue, doing it, and taking it back.

A preview asks and changes nothing. What is moved is what the preview showed; the offsets that it replaces are read
right before, and kept for the undo as each queue moves. Afterwards it is read back, and a queue that stands elsewhere
is told. A broker that leaves moves to the group's members is not asked: told of one queue, it moves all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from understudy.console.model.memory import Memory
from understudy.console.questions import progress_of
from understudy.mqclient.admin import cluster, groups, topics
from understudy.mqclient.errors import ClientError
from understudy.mqclient.pull import offset_at
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import Session

MOST_QUEUES = 2_000
MOST_UNDONE = 100
BEGIN, END = "begin", "end"
_OWN_RESET = "useServerSideResetOffset"


class ResetError(Exception):
    """A move is not done; the message is one sentence for whoever asked."""


@attrs.frozen
class Move:
    """One queue: from which offset to which."""

    broker: str
    queue_id: int
    before: int
    after: int

    def to_json(self) -> dict[str, Any]:
        """Return it as a page has it."""
        return {"broker": self.broker, "id": self.queue_id, "before": self.before, "after": self.after}


@attrs.define
class Done:
    """One move, filled as it is made, so that it can be taken back.

    Attributes:
        group, topic: what is moved.
        wanted: the queues to move.
        moves: those that have moved, with the offsets that were replaced.
        failed: what went wrong, one sentence each.
        ended: nothing more is moved.
    """

    group: str
    topic: str
    wanted: tuple[Move, ...]
    moves: list[Move] = attrs.field(factory=list)
    failed: list[str] = attrs.field(factory=list)
    ended: bool = False


def moves_of(rows: object) -> tuple[Move, ...]:
    """Return the moves in what a page sent. Raises :class:`ResetError`."""
    if not isinstance(rows, list) or not 0 < len(rows) <= MOST_QUEUES:
        raise ResetError(f"name one to {MOST_QUEUES} queues with the offset of each")
    found = []
    for row in rows:
        try:
            move = Move(str(row["broker"]), int(row["id"]), int(row["before"]), int(row["after"]))
        except (KeyError, TypeError, ValueError):
            raise ResetError("a queue has a broker, an id, and the offsets before and after") from None
        if move.queue_id < 0 or move.after < 0:
            raise ResetError(f"queue {move.queue_id} of {move.broker} cannot go to offset {move.after}")
        found.append(move)
    if len({(move.broker, move.queue_id) for move in found}) < len(found):
        raise ResetError("a queue is named twice")
    return tuple(found)


def target_ms(wanted: str) -> int | None:
    """Return the wall time in milliseconds to go to, ``None`` for an end. Raises :class:`ResetError`."""
    if wanted in (BEGIN, END):
        return None
    if not (wanted.isascii() and wanted.isdigit() and len(wanted) <= 15):
        raise ResetError("say where to: begin, end, or a time in milliseconds since 1970")
    return int(wanted)


async def preview(session: Session, known: Memory, group: str, topic: str, wanted: str) -> dict[str, Any]:
    """Return where each queue of *topic* would go for *group*; nothing is changed.

    Args:
        session: connections to servers.
        known: who leads which broker group.
        group: consumer group.
        topic: one that it consumes.
        wanted: ``begin``, ``end``, or a wall time in milliseconds.

    Raises:
        ResetError: it cannot be done now.
        ClientError: a broker does not answer.
    """
    at_ms = target_ms(wanted)
    # Brokers say 0 of a group that was never there, too.
    if group not in await topics.consuming_groups(session, topic):
        raise ResetError(f"{group} has no progress on {topic}")
    moves: list[Move] = []
    for name, address in _leaders(known).items():
        at = await progress_of(session, address, group, topic)
        if not at:
            continue
        await _need_own_reset(session, name, address)
        held = (await topics.topic_stats(session, topic, [address])).queues
        for queue_id, before in sorted(at.items()):
            queue = MessageQueue(topic, name, queue_id)
            if at_ms is not None:
                after = await offset_at(session, queue, at_ms)
            elif queue not in held:
                continue
            else:
                after = held[queue].min_offset if wanted == BEGIN else held[queue].max_offset
            moves.append(Move(name, queue_id, before, after))
            if len(moves) > MOST_QUEUES:
                raise ResetError(f"{topic} has more than {MOST_QUEUES} queues; use mqadmin resetOffsetByTime")
    if not moves:
        raise ResetError(f"{group} has no progress on {topic}")
    return {"group": group, "topic": topic, "rows": [move.to_json() for move in moves]}


async def carry_out(session: Session, known: Memory, done: Done) -> None:
    """Move what *done* wants, and note in it each queue that has moved, and what went wrong."""
    leaders = _leaders(known)
    for name in sorted({move.broker for move in done.wanted}):
        at = name
        try:
            address = leaders.get(name)
            if address is None:
                raise ClientError("nobody leads it, or it is not of this cluster")
            await _need_own_reset(session, name, address)
            before = await progress_of(session, address, done.group, done.topic)
            for move in done.wanted:
                if move.broker != name:
                    continue
                old = before.get(move.queue_id, 0)
                at = f"{name} {move.queue_id}, which stood at {old}"
                await groups.reset_offset(
                    session, address, done.group, done.topic, timestamp_ms=-1, queue_id=move.queue_id, offset=move.after
                )
                done.moves.append(attrs.evolve(move, before=old))
        except (ClientError, ResetError) as error:
            done.failed.append(f"{at}: {error}")


async def elsewhere(session: Session, known: Memory, done: Done) -> list[str]:
    """Return the queues that do not stand where they were moved, each with where it stands: read back from brokers."""
    leaders = _leaders(known)
    found = []
    for name in sorted({move.broker for move in done.moves}):
        try:
            if name not in leaders:
                raise ClientError("nobody leads it")
            now: Mapping[int, int] = await progress_of(session, leaders[name], done.group, done.topic)
        except ClientError as error:
            found.append(f"{name} was not read back: {error}")
            continue
        found += [
            f"{name} {move.queue_id} is at {now.get(move.queue_id, 'no offset')}"
            for move in done.moves
            if move.broker == name and now.get(move.queue_id) != move.after
        ]
    return found


def back(done: Done) -> tuple[Move, ...]:
    """Return the moves that take *done* back."""
    return tuple(Move(each.broker, each.queue_id, each.after, each.before) for each in done.moves)


async def _need_own_reset(session: Session, name: str, address: str) -> None:
    """Raise :class:`ResetError` unless the broker moves groups itself: pushed moves know a time and no queue (222)."""
    if (await cluster.broker_config(session, address)).get(_OWN_RESET) != "true":
        raise ResetError(
            f"{name} leaves moves to the group's members, which would move every queue; it needs {_OWN_RESET}=true"
        )


def _leaders(known: Memory) -> dict[str, str]:
    return {name: group.leader for name, group in sorted(known.groups.items()) if group.leader}
