"""What a read of a physical queue means for the logical queue of which it is a piece: pure.

The rules:

* A piece that is no longer led is read to its end, then the next piece goes on. It is at its end when the mapping says
  so, or when its own group has no more: that is what its master says, a slave may only lag behind.
* Nobody is sent on to a piece that is not decided.
* Below the first message of the oldest piece a reader has missed something and is told so; below that of a later piece
  it has not, for what lies before it is read there.

Source: PullMessageProcessor.java (rewriteResponseForStaticTopic).
"""

from __future__ import annotations

import attrs

from understudy.format.static_topics import Items, MappingItem, TopicMapping, item_after, item_of
from understudy.remoting.codes import ResponseCode
from understudy.remoting.fields import CommandError

READ_CODES = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
"""Answers to a pull that say something about the queue."""


@attrs.frozen
class Found:
    """The answer to a pull of one queue.

    Attributes:
        code: a response code of :data:`READ_CODES`.
        next_offset: where to go on.
        min_offset, max_offset: the first message of the queue, and behind its last one.
        shift: of a logical queue's answer, what offsets inside of the messages must be raised by.
    """

    code: int
    next_offset: int
    min_offset: int
    max_offset: int
    shift: int = 0


@attrs.frozen
class Piece:
    """The part of a logical queue that one pull reads.

    Attributes:
        items: the whole chain.
        item: the part.
        offset: where the pull begins in it.
        may_lag: who answers may have less of it than its group has.
    """

    items: Items
    item: MappingItem
    offset: int
    may_lag: bool = False

    @property
    def leads(self) -> bool:
        """Whether messages are stored in this part."""
        return self.item.generation == self.items[-1].generation

    @property
    def following(self) -> MappingItem | None:
        """The next part, as far as it can be read."""
        return item_after(self.items, self.item)

    @property
    def is_oldest(self) -> bool:
        """Whether nothing lies before it."""
        return item_of(self.items, 0) == self.item

    @property
    def may_wait(self) -> bool:
        """Whether a pull that finds nothing may wait for messages here, rather than go on at once."""
        if self.following is None:
            return True
        return self.may_lag and not (self.item.ended and self.offset >= self.item.end_offset)

    def most(self, wanted: int) -> int:
        """Return how many of *wanted* messages may be read before the end of the part."""
        return min(wanted, self.item.end_offset - self.offset) if self.item.ended else wanted


def leader_chain(mapping: TopicMapping, global_id: int) -> Items:
    """Return the chain of a logical queue that *mapping*'s group leads.

    Raises:
        CommandError: it does not, or does not know the queue; clients look for the leader then.
    """
    items = mapping.queues.get(global_id, ())
    if not items or items[-1].broker_name != mapping.broker_name:
        raise CommandError(
            ResponseCode.NOT_LEADER_FOR_QUEUE,
            f"{mapping.topic}-{global_id} cannot find mapping item in request process of current broker "
            f"{mapping.broker_name}",
            {},
        )
    return items


def item_at(mapping: TopicMapping, global_id: int, offset: int) -> MappingItem:
    """Return the item that holds *offset* of a logical queue. Raises :class:`CommandError`."""
    item = item_of(leader_chain(mapping, global_id), offset)
    if item is None:
        raise undecided(mapping, global_id)
    return item


def undecided(mapping: TopicMapping, global_id: int) -> CommandError:
    """Return the refusal of a request for a logical queue that begins nowhere yet."""
    remark = f"it is not decided yet where queue {global_id} of static topic {mapping.topic} begins; ask again"
    return CommandError(ResponseCode.SYSTEM_BUSY, remark, {})


def read_logically(piece: Piece, found: Found) -> Found:
    """Return what *found* in a piece means in the logical queue."""
    item, code, next_offset = piece.item, found.code, found.next_offset
    if code != ResponseCode.SUCCESS:
        low, high, following = found.min_offset, found.max_offset, piece.following
        if piece.offset < low:
            code = ResponseCode.PULL_OFFSET_MOVED if piece.is_oldest else ResponseCode.PULL_RETRY_IMMEDIATELY
            next_offset = low
        elif not piece.leads and (piece.offset >= high or _at_end(piece, found)):
            if following is not None and _at_end(piece, found):
                begin = following.to_logic(following.start_offset)
                return Found(ResponseCode.PULL_RETRY_IMMEDIATELY, begin, begin, begin, following.shift)
            code, next_offset = ResponseCode.PULL_NOT_FOUND, piece.offset
        elif piece.leads and piece.offset > high and code == ResponseCode.PULL_OFFSET_MOVED:
            next_offset = high
    if item.ended:
        next_offset = min(next_offset, item.end_offset)
    decided = [each for each in piece.items if each.decided]
    return Found(
        code,
        item.to_logic(next_offset),
        item.to_logic(found.min_offset),
        max(item.to_logic(found.max_offset), decided[-1].last_logic_offset),
        item.shift,
    )


def _at_end(piece: Piece, found: Found) -> bool:
    """Return whether the piece, which is not led any more, has nothing at or behind the offset of the pull."""
    if piece.item.ended and piece.offset >= piece.item.end_offset:
        return True
    return not piece.may_lag and piece.offset >= found.max_offset
