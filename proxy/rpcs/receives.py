"""ReceiveMessage: messages for a time, or a wait for some."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import trio

from understudy.mqclient.errors import RecordDamagedError
from understudy.mqclient.popped import NOTHING, PoppedMessage, PopRequest, pop_fields, popped_messages
from understudy.mqclient.route import READ, TopicRoute
from understudy.proxy.brokers import BrokerGoneError
from understudy.proxy.core.callers import caller_of
from understudy.proxy.core.durations import set_ms
from understudy.proxy.core.receiving import Receive, handle_of, read_receive, received_message
from understudy.proxy.core.settings import GroupConfig
from understudy.proxy.core.statuses import ProxyError, ok
from understudy.proxy.grpc.call import Call, Method
from understudy.proxy.grpc.status import RpcError
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.proxy.rpcs.parts import SERVICE, Parts, decoded, failed
from understudy.proxy.rpcs.receipts import Receipts
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.runtime.log import get_logger

log = get_logger("proxy.receives")

_HEADROOM_MS = 10_000
"""A broker may answer so much later than it was to wait."""
_GIVE_BACK_SECONDS = 5.0


class Receives:
    """Hands out messages.

    Args:
        parts: of the proxy.
        receipts: for messages that cannot be handed out.
    """

    def __init__(self, parts: Parts, receipts: Receipts) -> None:
        self._parts = parts
        self._receipts = receipts
        self._waiting: set[trio.CancelScope] = set()
        self._turn = 0

    def methods(self) -> dict[str, Method]:
        """Return the methods by path."""
        return {SERVICE + "ReceiveMessage": Method(self.receive, endless=True)}

    def stop(self) -> None:
        """Wait for brokers no longer."""
        for scope in list(self._waiting):
            scope.cancel()

    async def receive(self, call: Call) -> None:
        """Answer with a status, messages, and the time of their delivery."""
        data = await call.receive()
        handed: list[PoppedMessage] = []
        receive: Receive | None = None
        messages: list[v2.Message] = []
        try:
            caller = caller_of(call.metadata, call.connection.peer[0])
            request = decoded(v2.ReceiveMessageRequest, data or b"")
            client = await self._parts.clients.settled(caller)
            remaining = call.remaining_seconds()
            receive = read_receive(
                request,
                None if remaining is None else remaining * 1000,
                client.request_timeout_ms,
                self._parts.config.receive_rules,
            )
            handed = await self._pop(receive)
            now_ms = self._parts.clock.wall_ms()
            topic = request.message_queue.topic
            messages = [received_message(topic, each, handle_of(each), now_ms) for each in handed]
            status = ok()
        except ProxyError as error:
            status = error.status
        except RpcError:
            raise
        except Exception as error:
            status = failed(call, error).status
        sent = 0
        try:
            if receive is not None and receive.renewed:
                for each in handed:
                    self._hold(caller.client_id, receive, each)
            await call.send(v2.ReceiveMessageResponse(status=status).SerializeToString(), more=True)
            for message in messages:
                await call.send(v2.ReceiveMessageResponse(message=message).SerializeToString(), more=True)
                sent += 1
            delivered = v2.ReceiveMessageResponse()
            set_ms(delivered.delivery_timestamp, self._parts.clock.wall_ms())
            await call.send(delivered.SerializeToString(), more=True)
        finally:
            if receive is not None and sent < len(handed):
                await self._give_back(caller.client_id, receive, handed[sent:])

    def _hold(self, client_id: str, receive: Receive, popped: PoppedMessage) -> None:
        topic, times = receive.subscription.topic, popped.message.reconsume_times
        self._receipts.renewals.hold(client_id, receive.group, topic, handle_of(popped), times)

    async def _pop(self, receive: Receive) -> list[PoppedMessage]:
        """Ask a broker, and return what its client is to get. Raises :class:`ProxyError` when that is nothing."""
        if not receive.most:  # asks for nothing, and gets it as late as others do
            await self._parts.clock.sleep(receive.poll_ms / 1000)
            raise ProxyError(v2.MESSAGE_NOT_FOUND, "no new message: batch_size is 0")
        topic = receive.subscription.topic
        group = await self._parts.brokers.group(receive.group)
        broker_name, address = self._broker(await self._parts.brokers.route(topic), receive)
        try:
            found = await self._popped(receive.pop(broker_name, group), address)
        except BrokerGoneError:
            await self._parts.brokers.route(topic, fresh=True)
            raise
        except RecordDamagedError as error:
            raise ProxyError(v2.INTERNAL_SERVER_ERROR, str(error)) from None
        wanted = [each for each in found if not await self._is_settled(each, receive, group)]
        if not wanted:
            raise ProxyError(v2.MESSAGE_NOT_FOUND, "no match message")
        return wanted

    def _broker(self, route: TopicRoute, receive: Receive) -> tuple[str, str]:
        """Return name and address of the broker to ask. Raises :class:`ProxyError` (40300) when there is none."""
        readable = [
            group.broker_name
            for group in route.queue_groups
            if group.permission & READ and group.broker_name in route.brokers and self._parts.serves(group.broker_name)
        ]
        if receive.broker_name:
            readable = [name for name in readable if name == receive.broker_name]
        for _ in readable:
            self._turn += 1
            name = readable[self._turn % len(readable)]
            address = route.brokers[name].any_address()
            if address is not None:
                return name, address
        where = f"broker {receive.broker_name[:64]}" if receive.broker_name else "any broker"
        raise ProxyError(v2.FORBIDDEN, f"no readable queue of topic {receive.subscription.topic} at {where}")

    async def _popped(self, wanted: PopRequest, address: str) -> list[PoppedMessage]:
        """Ask the broker, to the end: what it hands out when the client is gone already must not wait for its time.

        Raises:
            ProxyError: it refused, or has nothing.
            RecordDamagedError: its answer makes no sense.
        """
        with trio.CancelScope(shield=True) as scope:
            self._waiting.add(scope)
            try:
                # Time 0 is the broker's own: its clock may be another.
                answer = await self._parts.brokers.call(
                    address,
                    RequestCode.POP_MESSAGE,
                    pop_fields(wanted, 0),
                    timeout_ms=wanted.hold_ms + _HEADROOM_MS,
                    accept=(ResponseCode.SUCCESS, *NOTHING),
                )
            finally:
                self._waiting.discard(scope)
        if scope.cancelled_caught:
            raise ProxyError(v2.INTERNAL_SERVER_ERROR, "this proxy stops; receive from another one")
        if answer.code == ResponseCode.POLLING_FULL:
            raise ProxyError(v2.TOO_MANY_REQUESTS, "polling full: too many receives wait at the broker")
        if answer.code in NOTHING:
            raise ProxyError(v2.MESSAGE_NOT_FOUND, "no new message")
        return popped_messages(wanted, answer, inflate=False)

    async def _is_settled(self, popped: PoppedMessage, receive: Receive, group: GroupConfig) -> bool:
        """Tell whether a message is not for the client, and see to it: one that was not meant, or was tried enough."""
        message, topic = popped.message, receive.subscription.topic
        try:
            if not message.damage and not receive.subscription.accepts(message.tags):
                await self._receipts.acknowledge(receive.group, topic, handle_of(popped))
                return True
            if message.reconsume_times >= group.max_attempts:
                await self._receipts.give_up(receive.group, topic, handle_of(popped), message.message_id)
                return True
        except ProxyError as error:
            log.warning("message not settled, it comes again", topic=topic, group=receive.group, why=error)
            return True
        return False

    async def _give_back(self, client_id: str, receive: Receive, messages: Sequence[PoppedMessage]) -> None:
        """Let others have messages that the client did not get."""
        soon_ms = self._parts.config.invisible_time_millis_when_clear
        with self._parts.clock.move_on_after(_GIVE_BACK_SECONDS) as scope:
            scope.shield = True
            for each in messages:
                with contextlib.suppress(ProxyError):  # its time passes
                    async with self._receipts.renewals.settling(client_id, handle_of(each)) as handle:
                        await self._receipts.hide(receive.group, receive.subscription.topic, handle, soon_ms)
