"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue: what becomes of a received message."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

import trio

from understudy.mqclient.session import fields
from understudy.proxy.core import validation
from understudy.proxy.core.callers import Caller
from understudy.proxy.core.durations import to_ms
from understudy.proxy.core.handles import Handle, check_not_expired, read_handle
from understudy.proxy.core.receiving import check_invisible
from understudy.proxy.core.statuses import ProxyError, ok, status, summary
from understudy.proxy.grpc.call import Method
from understudy.proxy.holders import call_holder
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.proxy.posts import Outcome
from understudy.proxy.rpcs.parts import SERVICE, Begun, Parts, method, not_served
from understudy.proxy.rpcs.renewals import Renewals
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.command import request as remoting_request

_MOST_ENTRIES = 1024
_AT_ONCE = 32
"""Acknowledgements of one request that are under way at a time."""


class Receipts:
    """Tells brokers what became of messages.

    Args:
        parts: of the proxy.

    Attributes:
        renewals: messages that clients hold and want to keep.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.renewals = Renewals(parts, partial(self.hide, waits=False))

    def methods(self) -> dict[str, Method]:
        """Return the methods by path."""
        return {
            SERVICE + "AckMessage": method(
                self._parts, v2.AckMessageRequest, v2.AckMessageResponse, self.ack, begin=self.begin_ack
            ),
            SERVICE + "ChangeInvisibleDuration": method(
                self._parts, v2.ChangeInvisibleDurationRequest, v2.ChangeInvisibleDurationResponse, self.change
            ),
            SERVICE + "ForwardMessageToDeadLetterQueue": method(
                self._parts,
                v2.ForwardMessageToDeadLetterQueueRequest,
                v2.ForwardMessageToDeadLetterQueueResponse,
                self.forward,
            ),
        }

    # --- rpcs --------------------------------------------------------------------------------------------------

    async def ack(
        self, caller: Caller, request: v2.AckMessageRequest, first: Outcome | None = None
    ) -> v2.AckMessageResponse:
        """Acknowledge messages; each entry has a result of its own.

        Args:
            caller: who calls.
            request: of the client.
            first: what came of its only entry, if a broker was asked before.
        """
        group, topic = validation.group_of(request.group), validation.topic_of(request.topic)
        if len(request.entries) > _MOST_ENTRIES:
            raise ProxyError(v2.BAD_REQUEST, f"{len(request.entries)} entries, {_MOST_ENTRIES} are allowed")
        results = [
            v2.AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle)
            for entry in request.entries
        ]
        limiter = trio.CapacityLimiter(_AT_ONCE)

        async def acknowledge(result: v2.AckMessageResultEntry) -> None:
            async with limiter:
                try:
                    async with self._settling(caller, result.receipt_handle) as handle:
                        await self.acknowledge(group, topic, handle, first)
                except ProxyError as error:
                    result.status.CopyFrom(not_served("AckMessage", caller.client_id, caller.request_id, error))
                else:
                    result.status.CopyFrom(ok())

        if len(results) == 1:  # nearly always
            await acknowledge(results[0])
        else:
            async with trio.open_nursery() as nursery:
                for result in results:
                    nursery.start_soon(acknowledge, result)
        return v2.AckMessageResponse(status=summary([each.status for each in results]), entries=results)

    def begin_ack(self, begun: Begun[v2.AckMessageResponse], request: v2.AckMessageRequest) -> bool:
        """Acknowledge one message without a task, where its broker is at hand and has no objection."""
        parts, entries, client_id = self._parts, request.entries, begun.caller.client_id
        if len(entries) != 1:
            return False
        group, topic = validation.group_of(request.group), validation.topic_of(request.topic)
        known = read_handle(entries[0].receipt_handle)
        holders = parts.brokers.known(known.broker_name, topic)
        asked = None if holders is None else holders.first()
        taken = None if asked is None else self.renewals.take(client_id, known)
        if asked is None or taken is None:
            return False
        handle, held = taken

        def answered(outcome: Outcome) -> None:
            if isinstance(outcome, Command) and outcome.code == ResponseCode.SUCCESS:
                begun.answer(partial(_acknowledged, entries[0]))
            else:
                self.renewals.keep_on(client_id, known, held)
                begun.go_on(partial(self.ack, begun.caller, request, outcome))

        begins = False
        try:
            check_not_expired(handle, parts.clock.wall_ms())
            command = remoting_request(RequestCode.ACK_MESSAGE, fields(handle.fields(group, topic)))
            begins = parts.posts.post(asked[1], command, begun.until, answered)
        finally:
            if not begins:
                self.renewals.keep_on(client_id, known, held)
        return begins

    async def change(
        self, caller: Caller, request: v2.ChangeInvisibleDurationRequest
    ) -> v2.ChangeInvisibleDurationResponse:
        """Hide a message for another time from now on."""
        group, topic = validation.group_of(request.group), validation.topic_of(request.topic)
        longest_ms = self._parts.config.max_invisible_time_mills
        invisible_ms = check_invisible(to_ms(request.invisible_duration), 0, longest_ms)
        async with self._settling(caller, request.receipt_handle) as handle:
            changed = await self.hide(group, topic, handle, invisible_ms)
        return v2.ChangeInvisibleDurationResponse(status=ok(), receipt_handle=changed.text)

    async def forward(
        self, caller: Caller, request: v2.ForwardMessageToDeadLetterQueueRequest
    ) -> v2.ForwardMessageToDeadLetterQueueResponse:
        """Give a message up: it goes to the group's dead letters."""
        group, topic = validation.group_of(request.group), validation.topic_of(request.topic)
        async with self._settling(caller, request.receipt_handle) as handle:
            await self._check_place(group, topic, handle)
            await self.give_up(group, topic, handle, request.message_id)
        return v2.ForwardMessageToDeadLetterQueueResponse(status=status(v2.OK, "0"))

    @asynccontextmanager
    async def _settling(self, caller: Caller, text: str) -> AsyncIterator[Handle]:
        """Use the handle that counts now for the one that a client knows. Raises :class:`ProxyError` (40013)."""
        async with self.renewals.settling(caller.client_id, read_handle(text)) as handle:
            check_not_expired(handle, self._parts.clock.wall_ms())
            yield handle

    # --- what brokers are asked --------------------------------------------------------------------------------

    async def acknowledge(self, group: str, topic: str, handle: Handle, first: Outcome | None = None) -> None:
        """Acknowledge one message.

        Args:
            group: that received it.
            topic: of the message.
            handle: of its receipt.
            first: what came of it when the broker was asked before.

        Raises:
            ProxyError: it may come again.
        """
        await self._ask(handle, topic, RequestCode.ACK_MESSAGE, handle.fields(group, topic), first=first)

    async def hide(self, group: str, topic: str, handle: Handle, invisible_ms: int, *, waits: bool = True) -> Handle:
        """Hide a message for *invisible_ms* from now on.

        Args:
            group: that received it.
            topic: of the message.
            handle: of its receipt.
            invisible_ms: for how long.
            waits: see :func:`~understudy.proxy.holders.call_holder`.

        Returns:
            The handle that counts then.

        Raises:
            ProxyError: it belongs to its client for as long as before.
        """
        wanted = {**handle.fields(group, topic), "invisibleTime": invisible_ms}
        answer = await self._ask(handle, topic, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, wanted, waits=waits)
        ext = answer.ext or {}
        return handle.changed(int(ext["popTime"]), int(ext["invisibleTime"]), int(ext["reviveQid"]))

    async def _check_place(self, group: str, topic: str, handle: Handle) -> None:
        """Refuse a handle whose position in the log is that of another message. Raises :class:`ProxyError` (40013).

        Differs: the reference takes whatever stands there, of any topic, for the message.
        """
        place = handle.commit_log_offset
        if place is None:
            raise ProxyError(v2.INVALID_RECEIPT_HANDLE, "commit log offset is empty: send the handle that came with it")
        found = await self._ask(handle, topic, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": place})
        if not handle.is_of(bytes(found.body), group, topic):
            why = f"another message stands at {place} of the log: send the handle that came with it"
            raise ProxyError(v2.INVALID_RECEIPT_HANDLE, why)

    async def give_up(self, group: str, topic: str, handle: Handle, message_id: str) -> None:
        """Put a copy of a message to the dead letters and acknowledge it. Raises :class:`ProxyError`.

        Args:
            group: that received it.
            topic: of the message.
            handle: of its receipt, which says where it is.
            message_id: of the message.
        """
        fields: dict[str, object] = {
            "offset": handle.commit_log_offset,
            "group": group,
            "delayLevel": -1,
            "originMsgId": message_id,
            "originTopic": handle.fields(group, topic)["topic"],
            "unitMode": False,
            "maxReconsumeTimes": 0,
        }
        await self._ask(handle, topic, RequestCode.CONSUMER_SEND_MSG_BACK, fields)
        await self.acknowledge(group, topic, handle)

    async def _ask(
        self,
        handle: Handle,
        topic: str,
        code: RequestCode,
        ext: Mapping[str, object],
        *,
        waits: bool = True,
        first: Outcome | None = None,
    ) -> Command:
        """Ask the broker that a handle names, or its successor. Raises :class:`ProxyError`."""
        again = code != RequestCode.CONSUMER_SEND_MSG_BACK  # it would be a second dead letter
        parts, name = self._parts, handle.broker_name
        return await call_holder(
            parts.brokers, parts.clock, name, topic, code, ext, again=again, waits=waits, first=first
        )


def _acknowledged(entry: v2.AckMessageEntry) -> v2.AckMessageResponse:
    """Return the answer about one message that was acknowledged."""
    result = v2.AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=ok())
    return v2.AckMessageResponse(status=result.status, entries=[result])
