"""ReceiveMessage: messages for a time, or a wait for some."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable
from functools import partial

import attrs
import trio

from understudy.mqclient.errors import RecordDamagedError
from understudy.mqclient.popped import NOTHING, PoppedMessage, PopRequest, pop_fields, popped_messages
from understudy.mqclient.route import READ, TopicRoute
from understudy.mqclient.session import fields
from understudy.proxy.brokers import BrokerGoneError, Withdraw, refusal_of
from understudy.proxy.core.callers import REQUEST_ID, Caller, caller_of
from understudy.proxy.core.durations import set_ms
from understudy.proxy.core.receiving import Receive, handle_of, read_receive, received_message
from understudy.proxy.core.settings import GroupConfig
from understudy.proxy.core.statuses import ProxyError, ok
from understudy.proxy.grpc.call import Call, Method
from understudy.proxy.grpc.status import RpcError, StatusCode
from understudy.proxy.holders import PERHAPS_REPLACED
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.proxy.rpcs.parts import MOST_BYTES, SERVICE, Parts, decoded, failed, not_served, refused
from understudy.proxy.rpcs.receipts import Receipts
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal

log = get_logger("proxy.receives")

_RPC = "ReceiveMessage"
MOST_PARKED = 20_000
"""Receives that wait for brokers."""
_HEADROOM_SECONDS = 10.0
"""A broker may answer so much later than it was to wait."""
_GIVE_BACK_SECONDS = 5.0
_LOOK_SECONDS = 1.0
RESUMED_IN_A_TURN = 16
"""Receives that go on in one turn of the event loop; a broker may answer thousands at once."""


@attrs.define(eq=False)
class _Parked:
    """A receive that waits for a broker; a row, without a task.

    Attributes:
        call: of the client.
        caller: who it is.
        receive: what it wants.
        wanted: what the broker was asked.
        group: configuration of the consumer group.
        resource: topic, as the client named it.
        until: monotonic seconds at which the broker is waited for no longer.
        withdraw: has the question not be answered any more; ``None`` when nothing was asked for.
        outcome: what came of it: the broker's answer, or why there is none.
    """

    call: Call
    caller: Caller
    receive: Receive
    wanted: PopRequest
    group: GroupConfig
    resource: v2.Resource
    until: float
    withdraw: Withdraw | None = None
    outcome: Command | Exception | None = None


class Receives:
    """Hands out messages.

    Args:
        parts: of the proxy.
        receipts: for messages that cannot be handed out.
    """

    def __init__(self, parts: Parts, receipts: Receipts) -> None:
        self._parts = parts
        self._receipts = receipts
        self._parked: set[_Parked] = set()
        self._came = Signal()
        self._answers: deque[_Parked] = deque()
        self._answer_came = Signal()
        self._nursery: trio.Nursery | None = None
        self._turn = 0

    def __len__(self) -> int:
        """Return how many wait for a broker."""
        return len(self._parked)

    def methods(self) -> dict[str, Method]:
        """Return the methods by path."""
        return {SERVICE + _RPC: Method(self.receive, endless=True, most_bytes=MOST_BYTES)}

    def stop(self) -> None:
        """Wait for brokers no longer."""
        for row in self._parked:
            if row.withdraw is not None:
                row.withdraw()
        self._parked.clear()

    async def run(self) -> None:
        """Look after those that wait, for ever; sleeps while none does."""
        clock = self._parts.clock
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._resume)
            while True:
                if not self._parked:
                    await self._came.wait()
                await clock.sleep(_LOOK_SECONDS)
                now = clock.monotonic()
                for row in list(self._parked):
                    if row.until <= now:
                        self._gives_up(row)
                    elif row.call.deadline is not None and row.call.deadline <= now and row.outcome is None:
                        why = "no answer within the time that the client has set"
                        row.outcome = RpcError(StatusCode.DEADLINE_EXCEEDED, why)
                        row.call.resume()  # what the broker may still hand out is given back

    async def receive(self, call: Call) -> None:
        """Answer with a status, messages, and the time of their delivery."""
        data = await call.receive()
        try:
            caller = caller_of(call.metadata, call.connection.peer[0])
            asked = decoded(v2.ReceiveMessageRequest, data or b"")
            if self._parts.access.asks:
                user = await self._parts.access.check(call.metadata, call.connection.source, asked)
                caller = attrs.evolve(caller, user=user)
            client = await self._parts.clients.settled(caller)
            remaining = call.remaining_seconds()
            receive = read_receive(
                asked,
                None if remaining is None else remaining * 1000,
                client.request_timeout_ms,
                self._parts.config.receive_rules,
            )
            topic = asked.message_queue.topic
            # A part of a message keeps all of it in memory.
            named = v2.Resource(resource_namespace=topic.resource_namespace, name=topic.name)
            del asked, topic, data
            await self._park(call, caller, receive, named)
        except ProxyError as error:
            await self._tell(call, refused(_RPC, call, error))
        except RpcError:
            raise
        except Exception as error:
            await self._tell(call, failed(_RPC, call.metadata.get(REQUEST_ID, ""), error))

    async def _park(self, call: Call, caller: Caller, receive: Receive, resource: v2.Resource) -> None:
        """Ask a broker; the call goes on when it answers. Raises :class:`ProxyError`."""
        if len(self._parked) >= MOST_PARKED:
            raise ProxyError(v2.TOO_MANY_REQUESTS, f"{MOST_PARKED} receives wait at this proxy; use another one")
        clock, topic = self._parts.clock, receive.subscription.topic
        group = await self._parts.brokers.group(receive.group)
        if not call.keeps(receive.text_bytes):
            why = "receives that wait hold too much memory of this proxy; let some end, then receive"
            raise ProxyError(v2.TOO_MANY_REQUESTS, why)
        broker_name, address = self._broker(await self._parts.brokers.route(topic), receive)
        wanted = receive.pop(broker_name, group)
        row = _Parked(call, caller, receive, wanted, group, resource, clock.monotonic() + receive.poll_ms / 1000)
        if receive.most:
            row.until += _HEADROOM_SECONDS
            # Time 0 is the broker's own: its clock may be another.
            command = request(RequestCode.POP_MESSAGE, fields(pop_fields(wanted, 0)))
            try:
                row.withdraw = await self._parts.brokers.park(address, command, partial(self._answered, row))
            except BrokerGoneError:
                await self._parts.brokers.route(topic, fresh=True)
                raise
        self._parked.add(row)
        self._came.set()
        call.park(partial(self._finish, row))

    def _answered(self, row: _Parked, answer: Command | None) -> None:
        self._parked.discard(row)
        if row.outcome is None:
            row.outcome = answer or BrokerGoneError(f"broker {row.wanted.broker_name} went away", sent=True)
            self._answers.append(row)
            self._answer_came.set()
        elif answer is not None and self._nursery is not None:  # given up: its outcome stays what its client is told
            self._nursery.start_soon(self._give_all_back, row, answer)

    async def _resume(self) -> None:
        """Let those go on that were answered, some in a turn, for ever; what nobody waits for is given back."""
        async with trio.open_nursery() as nursery:
            while True:
                for _ in range(min(len(self._answers), RESUMED_IN_A_TURN)):
                    row = self._answers.popleft()
                    if not row.call.resume() and isinstance(row.outcome, Command):
                        nursery.start_soon(self._give_all_back, row, row.outcome)
                if self._answers:
                    await trio.lowlevel.checkpoint()
                else:
                    await self._answer_came.wait()

    def _gives_up(self, row: _Parked) -> None:
        self._parked.discard(row)
        if row.withdraw is None:  # asks for nothing, and gets it as late as others do
            row.outcome = ProxyError(v2.MESSAGE_NOT_FOUND, "no new message: batch_size is 0")
        else:
            row.withdraw()
            row.outcome = ProxyError(v2.PROXY_TIMEOUT, f"no answer from broker {row.wanted.broker_name} in time")
        row.call.resume()

    async def _finish(self, row: _Parked, call: Call) -> None:
        """Answer the client with what came of its receive."""
        left: deque[PoppedMessage] = deque()  # was handed out, and the client does not have it yet
        messages: list[v2.Message] = []
        try:
            try:
                left.extend(_found(row.wanted, row.outcome))
                if call.ended:
                    return
                if not call.keeps(sum(len(each.message.body) for each in left)):
                    await self._give_back(row, left)
                    left.clear()
                    why = "answers that nobody takes hold too much memory of this proxy; take them, then receive"
                    raise ProxyError(v2.TOO_MANY_REQUESTS, why)
                for each in list(left):
                    if await self._is_settled(each, row.receive, row.group):
                        left.remove(each)
                if not left:
                    raise ProxyError(v2.MESSAGE_NOT_FOUND, "no match message")
                now_ms = self._parts.clock.wall_ms()
                messages = [received_message(row.resource, each, handle_of(each), now_ms) for each in left]
                status = ok()
            except ProxyError as error:
                if _perhaps_elsewhere(row.outcome):
                    with contextlib.suppress(ProxyError):
                        await self._parts.brokers.route(row.receive.subscription.topic, fresh=True)
                status = not_served(_RPC, row.caller.client_id, row.caller.request_id, error)
            except RpcError:
                raise
            except Exception as error:
                status = failed(_RPC, row.caller.request_id, error)
            if row.receive.renewed:
                for each in left:
                    self._hold(row.caller.client_id, row.receive, each)
            await self._send_status(call, status)
            for message in messages:
                await call.send(v2.ReceiveMessageResponse(message=message).SerializeToString(), more=True)
                left.popleft()
            await self._send_end(call)
        finally:
            if left:
                await self._give_back(row, left)

    async def _tell(self, call: Call, status: v2.Status) -> None:
        """Answer that there is nothing, and why."""
        await self._send_status(call, status)
        await self._send_end(call)

    async def _send_status(self, call: Call, status: v2.Status) -> None:
        self._parts.ended[_RPC, status.code] += 1
        await call.send(v2.ReceiveMessageResponse(status=status).SerializeToString(), more=True)

    async def _send_end(self, call: Call) -> None:
        delivered = v2.ReceiveMessageResponse()
        set_ms(delivered.delivery_timestamp, self._parts.clock.wall_ms())
        await call.send(delivered.SerializeToString(), more=True)

    def _hold(self, client_id: str, receive: Receive, popped: PoppedMessage) -> None:
        topic, times = receive.subscription.topic, popped.message.reconsume_times
        self._receipts.renewals.hold(client_id, receive.group, topic, handle_of(popped), times)

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

    async def _give_all_back(self, row: _Parked, answer: Command) -> None:
        """Let others have what a broker handed out to a client that is gone."""
        with contextlib.suppress(ProxyError):
            await self._give_back(row, _found(row.wanted, answer))

    async def _give_back(self, row: _Parked, messages: Iterable[PoppedMessage]) -> None:
        """Let others have messages that the client did not get."""
        soon_ms, receive = self._parts.config.invisible_time_millis_when_clear, row.receive
        with self._parts.clock.move_on_after(_GIVE_BACK_SECONDS) as scope:
            scope.shield = True
            for each in messages:
                with contextlib.suppress(ProxyError):  # its time passes
                    async with self._receipts.renewals.settling(row.caller.client_id, handle_of(each)) as handle:
                        await self._receipts.hide(
                            receive.group, receive.subscription.topic, handle, soon_ms, waits=False
                        )


def _perhaps_elsewhere(outcome: Command | Exception | None) -> bool:
    """Tell whether another one may hand out messages in place of the broker that was asked."""
    if isinstance(outcome, Command):
        return outcome.code in PERHAPS_REPLACED
    return isinstance(outcome, BrokerGoneError) or (
        isinstance(outcome, ProxyError) and outcome.code == v2.PROXY_TIMEOUT
    )


def _found(wanted: PopRequest, answer: Command | Exception | None) -> list[PoppedMessage]:
    """Return what a broker has handed out. Raises what came instead, or :class:`ProxyError` for nothing."""
    if isinstance(answer, Exception):
        raise answer
    assert answer is not None
    if answer.code == ResponseCode.POLLING_FULL:
        raise ProxyError(v2.TOO_MANY_REQUESTS, "polling full: too many receives wait at the broker")
    if answer.code in NOTHING:
        raise ProxyError(v2.MESSAGE_NOT_FOUND, "no new message")
    if answer.code != ResponseCode.SUCCESS:
        raise refusal_of(answer)
    try:
        return popped_messages(wanted, answer, inflate=False)
    except RecordDamagedError as error:
        raise ProxyError(v2.INTERNAL_SERVER_ERROR, str(error)) from None
