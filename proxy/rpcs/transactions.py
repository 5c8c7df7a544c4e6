"""EndTransaction, and the way of a broker's question to a client that can answer it."""

from __future__ import annotations

import trio

from understudy.format.json_dialect import dumps
from understudy.mqclient.errors import ClientError, RecordDamagedError
from understudy.mqclient.heartbeat import heartbeat_body
from understudy.mqclient.session import Session
from understudy.proxy.core import validation
from understudy.proxy.core.callers import Caller
from understudy.proxy.core.message_types import TopicType
from understudy.proxy.core.statuses import ProxyError, ok
from understudy.proxy.core.transaction_ids import read_transaction_id
from understudy.proxy.core.transactions import decision_fields, question
from understudy.proxy.grpc.call import Call, Method
from understudy.proxy.holders import call_holder
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.proxy.rpcs.parts import SERVICE, Parts, method
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer
from understudy.runtime.log import get_logger

log = get_logger("proxy.transactions")

HEARTBEAT_SECONDS = 20.0
_GROUPS_AT_ONCE = 100
_PAUSE_SECONDS = 0.1


class Transactions:
    """Takes decisions to brokers and questions to clients.

    Args:
        parts: of the proxy.
        session: on whose connections brokers ask.
    """

    def __init__(self, parts: Parts, session: Session) -> None:
        self._parts = parts
        self._session = session
        self._turn = 0
        self._nursery: trio.Nursery | None = None
        session.remoting.register(RequestCode.CHECK_TRANSACTION_STATE, self.asked)

    def methods(self) -> dict[str, Method]:
        """Return the methods by path."""
        return {
            SERVICE + "EndTransaction": method(
                self._parts, v2.EndTransactionRequest, v2.EndTransactionResponse, self.end
            )
        }

    async def end(self, caller: Caller, request: v2.EndTransactionRequest) -> v2.EndTransactionResponse:
        """Tell the broker what a client has decided; answered when the broker has taken it."""
        topic = validation.topic_of(request.topic)
        place = read_transaction_id(request.transaction_id)
        fields = decision_fields(topic, place, request.resolution, request.source)
        if fields is not None:
            parts, code = self._parts, RequestCode.END_TRANSACTION
            await call_holder(parts.brokers, parts.clock, place.broker_name, topic, code, fields, again=True)
        return v2.EndTransactionResponse(status=ok())

    # --- questions ---------------------------------------------------------------------------------------------

    def asked(self, connection: Connection, command: Command) -> Answer:
        """Hand a broker's question to one client that sends to the topic; its decision comes as a call."""
        try:
            topic, asked = question(command, self._parts.clock.wall_ms())
        except RecordDamagedError as error:
            log.warning("a question about a transaction that cannot be read", broker=connection.address, why=error)
            return None
        senders = [client.streams[-1] for client in self._parts.clients.senders(topic) if client.streams]
        streams = [stream for stream in senders if not stream.sends]
        if not streams or self._nursery is None:
            log.info("no client to ask about a half message; the broker asks again", topic=topic)
            return None
        self._turn += 1
        self._nursery.start_soon(_send, streams[self._turn % len(streams)], asked.SerializeToString())
        return None

    async def run(self) -> None:
        """Tell brokers again and again that this proxy knows whom to ask about half messages of its clients' topics."""
        clock = self._parts.clock
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            while True:
                changes = self._parts.clients.changes.count
                for address, groups in (await self._groups()).items():
                    nursery.start_soon(self._tell, address, sorted(groups))
                with clock.move_on_after(HEARTBEAT_SECONDS):
                    await self._parts.clients.changes.wait(changes)
                    await clock.sleep(_PAUSE_SECONDS)  # clients come in swarms

    async def _groups(self) -> dict[str, set[str]]:
        """Return the groups, which are topics here, that each broker is to know."""
        found: dict[str, set[str]] = {}
        for topic in self._parts.clients.sent_topics:
            await trio.lowlevel.checkpoint()  # what is asked next may be known, for very many topics
            try:
                if await self._parts.brokers.topic_type(topic) not in (TopicType.TRANSACTION, TopicType.MIXED):
                    continue
                route = await self._parts.brokers.route(topic)
            except ProxyError as error:
                log.info("brokers not told of a topic's senders", topic=topic, why=error)
                continue
            for broker in route.brokers.values():
                address = broker.any_address()
                if address is not None:
                    found.setdefault(address, set()).add(topic)
        return found

    async def _tell(self, address: str, groups: list[str]) -> None:
        for first in range(0, len(groups), _GROUPS_AT_ONCE):
            body = heartbeat_body(self._session.client_id, groups[first : first + _GROUPS_AT_ONCE], ())
            try:
                await self._session.call(address, RequestCode.HEART_BEAT, {}, dumps(body))
            except ClientError as error:
                log.info("broker not told of senders", broker=address, why=error)


async def _send(stream: Call, command: bytes) -> None:
    try:
        await stream.send(command)
    except trio.BrokenResourceError:
        log.debug("the client to ask is gone; the broker asks again")
