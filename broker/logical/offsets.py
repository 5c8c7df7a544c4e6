"""Offsets of logical queues: of consumers (14, 15) and of the queues themselves (29 to 32).

A committed offset is kept by the group that has the message behind it, as an offset of the physical queue. The newest
piece in which a consumer group stands says where it is.

Source: ConsumerManageProcessor.java, AdminBrokerProcessor.java (rewriteRequestForStaticTopic).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from understudy.broker.logical.forwards import Forwards
from understudy.broker.logical.reading import item_at, leader_chain, undecided
from understudy.broker.node import Node
from understudy.broker.processors.queue_offsets import OffsetProcessor
from understudy.broker.queue_mappings import QueueMappings
from understudy.format.static_topics import Items, MappingItem
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer, Handler, Lane
from understudy.remoting.fields import CommandError, required_int
from understudy.remoting.server import RemotingServer

Async = Callable[[Items, Connection, Command], Awaitable[Answer]]


class LogicalOffsets:
    """Handlers of the offset codes of one broker: those of ordinary queues, and before them those of logical ones.

    Args:
        node: who it is.
        mappings: the table.
        ask: asks other groups.
        lane: returns where requests run that need others.
        plain: answers for ordinary queues.
    """

    def __init__(
        self, node: Node, mappings: QueueMappings, ask: Forwards, lane: Callable[[], Lane], plain: OffsetProcessor
    ) -> None:
        self._identity = node.identity
        self._table = mappings.table
        self._ask = ask
        self._lane = lane
        self._plain = plain

    def register(self, server: RemotingServer) -> None:
        """Answer the offset codes at *server*."""
        plain = self._plain
        for code, ordinary, logical in (
            (RequestCode.QUERY_CONSUMER_OFFSET, plain.query, self.query),
            (RequestCode.UPDATE_CONSUMER_OFFSET, plain.update, self.update),
            (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, plain.search, self._beside(self._search)),
            (RequestCode.GET_MAX_OFFSET, plain.maximum, self._beside(self._maximum)),
            (RequestCode.GET_MIN_OFFSET, plain.minimum, self._beside(self._minimum)),
            (RequestCode.GET_EARLIEST_MSG_STORETIME, plain.earliest, self._beside(self._earliest)),
        ):
            server.register(code, self._either(ordinary, logical))

    def _either(self, ordinary: Handler, logical: Handler) -> Handler:
        table = self._table

        def handle(connection: Connection, command: Command) -> Answer:
            if table and (ext := command.ext) and ext.get("topic") in table and ext.get("lo") != "false":
                return logical(connection, command)
            return ordinary(connection, command)

        return handle

    def _beside(self, answer: Async) -> Handler:
        """Return the handler that has *answer* run as a task, with the chain of the queue."""

        def handle(connection: Connection, command: Command) -> Answer:
            return self._lane().submit(connection, command, partial(answer, self._chain(command)))

        return handle

    def _chain(self, command: Command) -> Items:
        """Return the decided part of the chain that a request names. Raises :class:`CommandError`."""
        mapping, global_id = self._table[(command.ext or {})["topic"]], required_int(command, "queueId")
        chain = tuple(item for item in leader_chain(mapping, global_id) if item.decided)
        if not chain:
            raise undecided(mapping, global_id)
        return chain

    # --- consumers ---------------------------------------------------------------------------------------------

    def update(self, connection: Connection, command: Command) -> Answer:
        """Commit a group's offset in the piece to which it belongs."""
        mapping, offset = self._table[(command.ext or {})["topic"]], required_int(command, "commitOffset")
        item = item_at(mapping, required_int(command, "queueId"), offset)
        physical = _of_queue(command, item, commitOffset=str(item.to_physical(offset)))
        if self._is_here(item):
            return self._plain.update(connection, physical)
        return self._lane().submit(connection, command, partial(self._passed_on, item, physical))

    async def _passed_on(
        self, item: MappingItem, physical: Command, connection: Connection, command: Command
    ) -> Answer:
        answer = await self._asked(item, physical)
        return response(command, answer.code, answer.remark, answer.ext)

    def query(self, connection: Connection, command: Command) -> Answer:
        """Answer where a group goes on: in the newest piece in which it stands."""
        chain = self._chain(command)
        if len(chain) == 1 and chain[0].shift == 0:  # as an ordinary queue, with what that says to a new group
            return self._plain.query(connection, _of_queue(command, chain[0]))
        if not self._is_here(chain[-1]):
            return self._lane().submit(connection, command, partial(self._query, chain))
        # Nearly always it stands in the newest. In place, for the commit before this question was carried out so.
        newest = self._stands_here(connection, command, chain[-1])
        if newest is not None:
            return newest
        return self._lane().submit(connection, command, partial(self._query, chain[:-1]))

    def _stands_here(self, connection: Connection, command: Command, item: MappingItem) -> Command | None:
        try:
            answer = self._plain.query(connection, _of_queue(command, item, setZeroIfNotFound="false"))
        except CommandError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return None
        return _logical_answer(command, item, answer)

    async def _query(self, items: Items, connection: Connection, command: Command) -> Answer:
        for item in reversed(items):
            if self._is_here(item):
                found = self._stands_here(connection, command, item)
                if found is not None:
                    return found
                continue
            answer = await self._asked(item, _of_queue(command, item, setZeroIfNotFound="false"))
            if answer.code == ResponseCode.SUCCESS:
                return _logical_answer(command, item, answer)
            if answer.code != ResponseCode.QUERY_NOT_FOUND:
                return response(command, answer.code, answer.remark, answer.ext)
        remark = "Not found, maybe this group consumer boot first"
        raise CommandError(ResponseCode.QUERY_NOT_FOUND, remark, {})

    # --- queues ------------------------------------------------------------------------------------------------

    async def _maximum(self, chain: Items, connection: Connection, command: Command) -> Answer:
        return await self._offset_in(chain[-1], RequestCode.GET_MAX_OFFSET, connection, command)

    async def _minimum(self, chain: Items, connection: Connection, command: Command) -> Answer:
        return await self._offset_in(chain[0], RequestCode.GET_MIN_OFFSET, connection, command)

    async def _earliest(self, chain: Items, connection: Connection, command: Command) -> Answer:
        answer = await self._answer_of(chain[0], _of_queue(command, chain[0]), connection)
        return response(command, answer.code, answer.remark, answer.ext)

    async def _search(self, chain: Items, connection: Connection, command: Command) -> Answer:
        """Look through the pieces, oldest first: the first that has a message of that time or a later one has it."""
        for item in chain:
            answer = await self._offset_in(item, command.code, connection, command)
            if answer.code != ResponseCode.SUCCESS or item is chain[-1]:
                return answer
            end = await self._end_of(item, connection, command)
            if required_int(answer, "offset") < end:
                return answer
        raise AssertionError("the last piece has an answer")

    async def _end_of(self, item: MappingItem, connection: Connection, command: Command) -> int:
        if item.ended:
            return item.last_logic_offset
        answer = await self._offset_in(item, RequestCode.GET_MAX_OFFSET, connection, command)
        if answer.code != ResponseCode.SUCCESS:
            raise CommandError(answer.code, answer.remark or "", answer.ext)
        return required_int(answer, "offset")

    async def _offset_in(self, item: MappingItem, code: int, connection: Connection, command: Command) -> Command:
        """Return the answer of *item*'s group to *code*, its offset a logical one."""
        question = _of_queue(command, item)
        question.code = int(code)
        answer = await self._answer_of(item, question, connection)
        if answer.code != ResponseCode.SUCCESS:
            return response(command, answer.code, answer.remark, answer.ext)
        return _logical_answer(command, item, answer)

    async def _answer_of(self, item: MappingItem, question: Command, connection: Connection) -> Command:
        if not self._is_here(item):
            return await self._asked(item, question)
        plain = self._plain
        handlers = {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: plain.search,
            RequestCode.GET_MAX_OFFSET: plain.maximum,
            RequestCode.GET_MIN_OFFSET: plain.minimum,
            RequestCode.GET_EARLIEST_MSG_STORETIME: plain.earliest,
        }
        return handlers[RequestCode(question.code)](connection, question)

    def _is_here(self, item: MappingItem) -> bool:
        return item.broker_name == self._identity.name

    async def _asked(self, item: MappingItem, question: Command) -> Command:
        ext = question.ext or {}
        return await self._ask.ask(item, ext["topic"], question, ext)


def _of_queue(command: Command, item: MappingItem, **more: str) -> Command:
    """Return *command* for the physical queue of *item*, with *more* fields."""
    ext = {**(command.ext or {}), "queueId": str(item.queue_id), "lo": "false", **more}
    return Command(command.code, command.language, command.version, command.opaque, command.flag, ext=ext)


def _logical_answer(command: Command, item: MappingItem, answer: Command) -> Command:
    ext = {**(answer.ext or {}), "offset": str(item.to_logic(required_int(answer, "offset")))}
    return response(command, answer.code, answer.remark, ext)
