"""Request and reply: who asks waits for a message that a consumer sends back to it through the broker.

A request is an ordinary message with three properties: who asked, by its client id; which request it was; how long a
reply is of use. The reply is sent to the reply topic of the request's cluster, and the broker hands it to the client
that asked (DefaultMQProducerImpl.java, MessageUtil.java, ClientRemotingProcessor.java).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import trio

from understudy.format.names import REPLY_TOPIC_SUFFIX
from understudy.format.properties import parse_properties
from understudy.format.record import FLAG_COMPRESSED
from understudy.mqclient.errors import ClientError, InvalidMessageError
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.records import decompress
from understudy.mqclient.session import Session
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional, optional_int, required, required_int
from understudy.runtime.log import get_logger

log = get_logger("mqclient.replies")

CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
ARRIVE_TIME = "ARRIVE_TIME"
MESSAGE_TYPE = "MSG_TYPE"
CLUSTER = "CLUSTER"


@attrs.define(eq=False)
class Expected:
    """A reply that is waited for."""

    _there: trio.Event = attrs.field(factory=trio.Event)
    _message: ReceivedMessage | None = None

    def came(self, message: ReceivedMessage) -> None:
        """Take the reply; only the first counts."""
        if self._message is None:
            self._message = message
            self._there.set()

    async def reply(self) -> ReceivedMessage:
        """Wait for it."""
        await self._there.wait()
        assert self._message is not None  # set before the event
        return self._message


class Replies:
    """The requests of one client that wait for their replies.

    Args:
        session: the client; what brokers push to it is handled here from now on.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._expected: dict[str, Expected] = {}
        session.remoting.register(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._pushed)

    @contextmanager
    def expected(self, message: Message, ttl_ms: float) -> Iterator[Expected]:
        """Mark *message* as a request, and expect its reply as long as the block lasts.

        Args:
            message: to be sent.
            ttl_ms: how long a reply is of use.
        """
        correlation = str(uuid.UUID(int=self._session.world.random.getrandbits(128), version=4))
        message.properties |= {
            CORRELATION_ID: correlation,
            REPLY_TO_CLIENT: self._session.client_id,
            TTL: str(int(ttl_ms)),
        }
        expected = self._expected[correlation] = Expected()
        try:
            yield expected
        finally:
            del self._expected[correlation]

    def _pushed(self, connection: Connection, command: Command) -> Command:
        """Take a reply that a broker passes on (326)."""
        try:
            message = pushed_message(command, self._session.world.clock.wall_ms())
        except (ClientError, ValueError) as error:
            log.warning("a reply that cannot be read", peer=connection.address, why=error)
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"the reply cannot be read: {error}") from None
        expected = self._expected.get(message.properties.get(CORRELATION_ID, ""))
        if expected is None:
            log.info("a reply that nobody waits for any more", peer=connection.address, id=message.message_id)
        else:
            expected.came(message)
        return response(command)


def reply_message(request: ReceivedMessage, body: bytes) -> Message:
    """Return the reply to *request*.

    Args:
        request: as it was received.
        body: of the reply.

    Raises:
        InvalidMessageError: it asks for no reply, or does not say which cluster it came from.
    """
    properties = request.properties
    missing = [name for name in (CORRELATION_ID, REPLY_TO_CLIENT, CLUSTER) if not properties.get(name)]
    if missing:
        raise InvalidMessageError(
            f"message {request.message_id} of {request.topic} asks for no reply: it has no property {missing[0]}"
        )
    own = {name: properties[name] for name in (CORRELATION_ID, REPLY_TO_CLIENT, TTL) if name in properties}
    return Message(properties[CLUSTER] + REPLY_TOPIC_SUFFIX, body, {MESSAGE_TYPE: "reply", **own})


def pushed_message(command: Command, now_ms: int) -> ReceivedMessage:
    """Return the reply in a broker's request.

    Args:
        command: of code 326.
        now_ms: wall time in milliseconds.

    Raises:
        CommandError: a field is missing, or no number.
        ClientError: the body cannot be inflated.
    """
    sys_flag, topic = required_int(command, "sysFlag"), required(command, "topic")
    body = bytes(command.body)
    if sys_flag & FLAG_COMPRESSED:
        body = decompress(body, sys_flag)
    properties = {**parse_properties(optional(command, "properties") or ""), ARRIVE_TIME: str(now_ms)}
    return ReceivedMessage(
        topic=topic,
        body=body,
        properties=properties,
        flag=required_int(command, "flag"),
        broker_name="",
        queue_id=required_int(command, "queueId"),
        queue_offset=0,
        commit_log_offset=0,
        sys_flag=sys_flag,
        born_timestamp_ms=required_int(command, "bornTimestamp"),
        born_host=required(command, "bornHost").lstrip("/"),
        store_timestamp_ms=required_int(command, "storeTimestamp"),
        store_host=required(command, "storeHost").lstrip("/"),
        reconsume_times=optional_int(command, "reconsumeTimes") or 0,
        prepared_transaction_offset=0,
        body_crc=0,
        stored_bytes=0,
        stored_topic=topic,
    )
