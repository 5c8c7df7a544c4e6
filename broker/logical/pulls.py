"""Pulls of logical queues: each reads one piece, here or at the group that has it.

A pull that waits is parked as it came, so that it sees the mapping of the moment when it is answered.

Source: PullMessageProcessor.java (rewriteRequestForStaticTopic).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs

from understudy.broker.logical.forwards import Forwards
from understudy.broker.logical.reading import READ_CODES, Found, Piece, leader_chain, read_logically, undecided
from understudy.broker.node import Node
from understudy.broker.queue_mappings import QueueMappings
from understudy.format.pull_flags import COMMIT_OFFSET, SUSPEND
from understudy.format.static_topics import item_of
from understudy.remoting import json_header
from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Lane
from understudy.remoting.fields import optional_int, required_int
from understudy.remoting.frame import Buffer, buffers_of, framed
from understudy.runtime.signal import Signal

AT_END_SECONDS = 1.0
"""How long a pull waits at the end of another group's piece until it is decided where the next one begins."""
_FRAME_HEAD_BYTES = 8

Plain = Callable[[Command], list[Buffer] | None]
"""Answers a pull of a physical queue of this broker; ``None``: the pull waits."""


class LogicalPulls:
    """Answers the pulls of one broker's logical queues.

    Args:
        node: who it is.
        mappings: the table.
        ask: asks other groups.
        lane: returns where those that need others run.
    """

    def __init__(self, node: Node, mappings: QueueMappings, ask: Forwards, lane: Callable[[], Lane]) -> None:
        self._node = node
        self._mappings = mappings
        self._ask = ask
        self._lane = lane
        self._changed = Signal()
        mappings.on_change.append(self._changed.set)

    def pull(self, connection: Connection, command: Command, plain: Plain) -> list[Buffer] | None:
        """Answer a pull of a logical queue; ``None``: later.

        Args:
            connection: that waits for the answer.
            command: the pull; its header has been read.
            plain: answers it for a queue of this broker.

        Raises:
            CommandError: this group does not lead the queue.
        """
        piece = self._piece(command)
        ext = _ext_of(command, piece)
        if piece.item.broker_name == self._node.identity.name:
            answer = plain(_for_queue(command, ext))
            if answer is None:
                return None
            header, body = _read_back(answer)
            return _told(command, _found(piece, header), header, body)
        started = self._lane().submit(connection, command, partial(self._elsewhere, piece, ext))
        return buffers_of(started) if isinstance(started, Command) else None

    def _piece(self, command: Command) -> Piece:
        topic, global_id = (command.ext or {})["topic"], required_int(command, "queueId")
        mapping = self._mappings.table[topic]
        items, offset = leader_chain(mapping, global_id), required_int(command, "queueOffset")
        item = item_of(items, offset)
        if item is None:
            raise undecided(mapping, global_id)
        here = item.broker_name == self._node.identity.name
        return Piece(items, item, item.to_physical(offset), not here or self._node.identity.role.is_slave)

    async def _elsewhere(
        self, piece: Piece, ext: dict[str, str], connection: Connection, command: Command
    ) -> list[Buffer] | Command:
        handled = self._changed.count
        answer = await self._ask.ask(piece.item, ext["topic"], command, ext)
        if answer.code not in READ_CODES:
            return response(command, answer.code, answer.remark, answer.ext)
        answer.ext = {**(answer.ext or {}), "suggestWhichBrokerId": "0"}  # a slave of that group is none of this one
        found = _found(piece, answer)
        waits = found.code == ResponseCode.PULL_NOT_FOUND and piece.following is not None
        # A slave that acts may lag behind. A master does not: what it lacks is lost, and nobody waits for it.
        if waits and await self._ask.is_master(piece.item, ext["topic"]):
            found = _found(attrs.evolve(piece, may_lag=False), answer)
        if found.code == ResponseCode.PULL_NOT_FOUND:
            with self._node.world.clock.move_on_after(AT_END_SECONDS):
                await self._changed.wait(handled)
        return _told(command, found, answer, [answer.body] if answer.body else [])


def _ext_of(command: Command, piece: Piece) -> dict[str, str]:
    """Return the header of the pull of the physical queue that has *piece*."""
    ext = dict(command.ext or {})
    sys_flag = required_int(command, "sysFlag")
    here = piece.item.broker_name == piece.items[-1].broker_name
    commits = optional_int(command, "commitOffset")
    if sys_flag & COMMIT_OFFSET and here and commits is not None and item_of(piece.items, commits) == piece.item:
        ext["commitOffset"] = str(piece.item.to_physical(commits))
    else:
        sys_flag &= ~COMMIT_OFFSET  # it belongs to another queue; the group commits by itself, too
    if not here or not piece.may_wait:
        sys_flag &= ~SUSPEND
    wanted = required_int(command, "maxMsgNums")
    return ext | {
        "queueId": str(piece.item.queue_id),
        "queueOffset": str(piece.offset),
        "maxMsgNums": str(max(piece.most(wanted), 1) if wanted > 0 else wanted),
        "sysFlag": str(sys_flag),
        "lo": "false",
    }


def _for_queue(command: Command, ext: dict[str, str]) -> Command:
    return Command(command.code, command.language, command.version, command.opaque, command.flag, ext=ext)


def _read_back(answer: list[Buffer]) -> tuple[Command, list[Buffer]]:
    """Return header and body of an answer that is ready to be written."""
    return json_header.decode(bytes(answer[0][_FRAME_HEAD_BYTES:])), answer[1:]


def _found(piece: Piece, answer: Command) -> Found:
    """Return what *answer*, about a physical queue, means in the logical one."""
    numbers = [required_int(answer, name) for name in ("nextBeginOffset", "minOffset", "maxOffset")]
    return read_logically(piece, Found(answer.code, *numbers))


def _told(command: Command, found: Found, answer: Command, body: list[Buffer]) -> list[Buffer]:
    """Return *answer* with what was *found*; *body* is not looked into."""
    ext = (answer.ext or {}) | {
        "nextBeginOffset": str(found.next_offset),
        "minOffset": str(found.min_offset),
        "maxOffset": str(found.max_offset),
        "offsetDelta": str(found.shift),
    }
    header = json_header.encode(response(command, found.code, answer.remark, ext))
    return [framed(header, sum(map(len, body))), *body]
