"""Messages a consumer wants again (36): a copy for the retry topic, delayed, or for the dead letters.

A slave takes no messages; it hands the copy to a master that runs beside it, as far as there is one.

Source: AbstractSendMessageProcessor.java.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from understudy.broker import inner
from understudy.broker.node import Node
from understudy.broker.processors.send_back_copies import GivenBack, RetryCopies
from understudy.broker.processors.stored_answer import StoredAnswers
from understudy.broker.session import RoleRules
from understudy.broker.statistics import BrokerStatistics
from understudy.broker.topics import TopicTable
from understudy.format import names
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import ONEWAY_BIT, Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer, Lane
from understudy.remoting.fields import CommandError, required
from understudy.remoting.frame import encode
from understudy.remoting.server import RemotingServer
from understudy.store.message_store import MessageStore
from understudy.store.status import PutRejected, PutStatus

LANE = "send back"
_PERM = names.PERM_READ | names.PERM_WRITE


@attrs.frozen
class SendBackParts:
    """What of a broker is needed to take messages back.

    Attributes:
        node: its role decides where copies go.
        topics: where copies wait.
        store: takes the copies of a master.
        stored: answers that wait until a copy is durable.
        stats: counts.
        rules: of the role in force; they have a master beside a slave take its copies.
    """

    node: Node
    topics: TopicTable
    store: MessageStore
    stored: StoredAnswers
    stats: BrokerStatistics
    rules: Callable[[], RoleRules]


class SendBackProcessor:
    """Handler of CONSUMER_SEND_MSG_BACK of one broker.

    Args:
        parts: of the broker.
        copies: makes what is to be put.
        lane: where requests to a slave wait for the master that runs beside it.
    """

    def __init__(self, parts: SendBackParts, copies: RetryCopies, lane: Lane) -> None:
        self._parts = parts
        self._lane = lane
        self._copies = copies

    def register(self, server: RemotingServer) -> None:
        """Answer the code at *server*."""
        server.register(RequestCode.CONSUMER_SEND_MSG_BACK, self.send_back)

    def send_back(self, connection: Connection, command: Command) -> Answer:
        """Store the copy; with synchronous flush the answer waits for the disk."""
        parts = self._parts
        if parts.node.identity.role.is_slave:
            return self._lane.submit(connection, command, self._send_back_beside)
        returned = self._copies.of(command, connection.source)
        if returned is None:
            return response(command)
        for row in returned.topics:
            target = parts.topics.ensure(row.name, row.write_queue_nums, _PERM, sys_flag=row.sys_flag)
            if target is None:
                raise CommandError(ResponseCode.SYSTEM_ERROR, f"topic[{row.name}] not exist")
            if not target.perm & names.PERM_WRITE:
                raise CommandError(ResponseCode.NO_PERMISSION, f"the topic[{row.name}] sending message is forbidden")
        try:
            put = inner.append(parts.store, returned.copy)
        except PutRejected as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"{error.status.value}: {error.remark}") from None
        self._count(command, returned)
        if parts.stored.flushes and not command.flag & ONEWAY_BIT:
            # Differs because the reference answers before the copy is on the disk, although the consumer will now
            # commit past the original.
            parts.stored.acknowledgements.add(
                put.physical_offset + put.size_bytes, connection, encode(response(command))
            )
            return None
        return response(command)

    async def _send_back_beside(self, connection: Connection, command: Command) -> Answer:
        """Have a master beside this slave store the copy."""
        returned = self._copies.of(command, connection.source)
        if returned is None:
            return response(command)
        status = await self._parts.rules().put_beside(returned.topics, returned.copy)
        if status is None:
            address = self._parts.node.options.broker.broker_ip1
            raise CommandError(ResponseCode.SYSTEM_ERROR, "no master available along with " + address)
        if status is not PutStatus.PUT_OK:
            raise CommandError(ResponseCode.SYSTEM_ERROR, status.value)
        self._count(command, returned)
        return response(command)

    def _count(self, command: Command, returned: GivenBack) -> None:
        group = required(command, "group")
        if returned.given_up:
            self._parts.stats.given_up(group, returned.topic)
        self._parts.stats.sent_back(group, returned.origin)
