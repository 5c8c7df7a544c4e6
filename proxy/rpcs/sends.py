"""SendMessage and RecallMessage."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import trio

from understudy.format.recall_handle import decode_handle
from understudy.mqclient.broker_health import BrokerHealth, QueueChooser
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.route import BrokerAddresses, TopicRoute
from understudy.proxy.brokers import CALL_MS, BrokerGoneError
from understudy.proxy.core import validation
from understudy.proxy.core.callers import Caller
from understudy.proxy.core.message_types import TopicType
from understudy.proxy.core.queue_choice import queue_of_group
from understudy.proxy.core.request_parts import check_parts
from understudy.proxy.core.sending import Outgoing, outgoing, send_answer, topic_of_messages
from understudy.proxy.core.statuses import ProxyError, ok
from understudy.proxy.grpc.call import Method
from understudy.proxy.holders import (
    LOOK_SECONDS,
    PERHAPS_REPLACED,
    SUCCESSOR_SECONDS,
    call_holder,
    changed,
    is_overload,
)
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.proxy.posts import Outcome
from understudy.proxy.rpcs.parts import MOST_BYTES, SERVICE, Begun, Parts, method
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command
from understudy.remoting.command import request as remoting_request

_ATTEMPTS = 3
"""Brokers that are tried while none of them can be reached, or those that are asked are no masters any more."""
_MOST_TOPICS = 20_000
_MOST_BODIES = 4
"""Bodies of the largest size in a request; brokers take no batch that is larger than one message may be."""


class Sends:
    """Takes messages to brokers."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._health = BrokerHealth()
        self._choosers: dict[str, QueueChooser] = {}

    def methods(self) -> dict[str, Method]:
        """Return the methods by path."""
        return {
            SERVICE + "SendMessage": method(
                self._parts,
                v2.SendMessageRequest,
                v2.SendMessageResponse,
                self.send,
                _MOST_BODIES * self._parts.config.max_message_size + MOST_BYTES,
                check_parts,
                self.begin,
            ),
            SERVICE + "RecallMessage": method(
                self._parts, v2.RecallMessageRequest, v2.RecallMessageResponse, self.recall
            ),
        }

    async def send(self, caller: Caller, request: v2.SendMessageRequest) -> v2.SendMessageResponse:
        """Send one message, or a batch of one topic."""
        topic, config = topic_of_messages(request.messages), self._parts.config
        expected = await self._parts.brokers.topic_type(topic) if config.enable_topic_message_type_check else None
        out = outgoing(topic, request.messages, expected, config.send_rules, caller, self._parts.clock.wall_ms())
        return await self._send(out, await self._writable(topic))

    def begin(self, begun: Begun[v2.SendMessageResponse], request: v2.SendMessageRequest) -> bool:
        """Do the same without a task, where all is at hand that it takes and the broker has no objection."""
        parts = self._parts
        topic, config, brokers = topic_of_messages(request.messages), parts.config, parts.brokers
        route, checks = brokers.route_at_hand(topic), config.enable_topic_message_type_check
        expected = brokers.topic_type_at_hand(topic) if checks else None
        if route is None or (checks and expected is None):
            return False
        out = outgoing(topic, request.messages, expected, config.send_rules, begun.caller, parts.clock.wall_ms())
        queue = self._queue(route, out, "")
        address = route.brokers[queue.broker_name].master
        command = remoting_request(out.code, out.fields(queue.broker_name, queue.queue_id), out.body)
        at = parts.clock.monotonic()

        def answered(outcome: Outcome) -> None:
            if isinstance(outcome, Command):
                now = parts.clock.monotonic()
                self._health.sent(queue.broker_name, (now - at) * 1000, now)
                if outcome.code not in PERHAPS_REPLACED:
                    begun.answer(partial(send_answer, out, outcome, queue.broker_name))
                    return
            elif begun.is_hurried and not isinstance(outcome, BrokerGoneError):
                begun.go_on(partial(_fail, outcome))  # that its client waits for less says nothing of the broker
                return
            begun.go_on(partial(self._send, out, route, (queue, outcome)))

        if address is None or not parts.posts.post(address, command, begun.until, answered):
            begun.go_on(partial(self._send, out, route, (queue, None)))  # the next queue is another message's
        return True

    async def _send(
        self, out: Outgoing, route: TopicRoute, first: tuple[MessageQueue, Outcome | None] | None = None
    ) -> v2.SendMessageResponse:
        """Send to one broker after the other until one takes it.

        Args:
            out: what is sent.
            route: of its topic.
            first: the queue that was chosen first, and what came of the attempt, if there was one.

        Raises:
            ProxyError: none did.
        """
        topic, tried = out.topic, ""
        for attempt in range(1, _ATTEMPTS + 1):
            queue, outcome = first or (self._queue(route, out, tried), None)
            first = None
            try:
                if isinstance(outcome, ProxyError):
                    raise outcome
                answer = outcome or await self._send_to(queue, route, out)
                may_follow = answer.code in PERHAPS_REPLACED and attempt < _ATTEMPTS
                if may_follow and await self._has_successor(queue.broker_name, route, answer):
                    route = await self._parts.brokers.route(topic)
                    continue  # it has stored nothing, and another one is master by now
                return send_answer(out, answer, queue.broker_name)
            except ProxyError as error:
                repeats = isinstance(error, BrokerGoneError) and not error.sent
                if isinstance(error, BrokerGoneError) or error.code == v2.PROXY_TIMEOUT:
                    tried = queue.broker_name
                    self._health.failed(tried, self._parts.clock.monotonic())
                    route = await self._parts.brokers.route(topic, fresh=True)
                if not repeats or attempt == _ATTEMPTS:  # what may be stored is not sent again from here
                    raise
                route = await self._writable(topic)
        raise AssertionError("the last attempt has returned or raised")

    async def _writable(self, topic: str) -> TopicRoute:
        """Return the route of *topic*; waits a moment for a master where none is there that takes messages of it."""
        clock, route = self._parts.clock, await self._parts.brokers.route(topic)
        until = clock.monotonic() + SUCCESSOR_SECONDS
        while not self._queues(route) and any(each.master is None for each in route.brokers.values()):
            route = await self._parts.brokers.route(topic, fresh=True)
            if clock.monotonic() >= until:
                break
            await clock.sleep(LOOK_SECONDS)
        return route

    async def _has_successor(self, broker_name: str, route: TopicRoute, answer: Command) -> bool:
        """Return whether another broker is master in place of one that has refused a send."""
        former, wait = route.brokers[broker_name].master, 0.0 if is_overload(answer) else SUCCESSOR_SECONDS

        def other(found: BrokerAddresses) -> bool:
            return found.master not in (None, former)

        parts = self._parts
        return await changed(parts.brokers, parts.clock, broker_name, route.topic, other, wait) is not None

    def _queues(self, route: TopicRoute) -> Sequence[MessageQueue]:
        if self._parts.own_brokers is None:
            return route.write_queues
        return [queue for queue in route.write_queues if self._parts.serves(queue.broker_name)]

    def _queue(self, route: TopicRoute, out: Outgoing, tried: str) -> MessageQueue:
        queues = self._queues(route)
        if not queues:
            raise ProxyError(v2.FORBIDDEN, f"no writable queue: no master takes messages of topic {out.topic} now")
        if out.message_group is not None:
            return sorted(queues)[queue_of_group(out.message_group, len(queues))]
        chooser = self._choosers.get(out.topic)
        if chooser is None:
            if len(self._choosers) >= _MOST_TOPICS:
                self._choosers.clear()
            chooser = QueueChooser(self._parts.brokers.random.randrange(len(queues)))
            self._choosers[out.topic] = chooser
        return chooser.choose(queues, self._health, self._parts.clock.monotonic(), tried or None)

    async def _send_to(self, queue: MessageQueue, route: TopicRoute, out: Outgoing) -> Command:
        address = route.brokers[queue.broker_name].master
        if address is None:
            raise BrokerGoneError(f"broker {queue.broker_name} has no master at the moment", sent=False)
        command = remoting_request(out.code, out.fields(queue.broker_name, queue.queue_id), out.body)
        begin = self._parts.clock.monotonic()
        answer = await self._parts.brokers.ask(address, command, CALL_MS)
        now = self._parts.clock.monotonic()
        self._health.sent(queue.broker_name, (now - begin) * 1000, now)
        return answer

    async def recall(self, caller: Caller, request: v2.RecallMessageRequest) -> v2.RecallMessageResponse:
        """Take back a delayed message before its time has come."""
        topic = validation.topic_of(request.topic)
        if self._parts.config.enable_topic_message_type_check:
            expected = await self._parts.brokers.topic_type(topic)
            if expected not in (TopicType.DELAY, TopicType.MIXED):
                raise ProxyError(
                    v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                    f"topic {topic} takes messages of type {expected}: only those of type DELAY can be recalled",
                )
        try:
            broker_name = decode_handle(request.recall_handle, topic).broker_name
        except ValueError as error:
            raise ProxyError(v2.INTERNAL_SERVER_ERROR, f"recall handle is invalid: {error}") from None
        ext = {
            "producerGroup": topic, "topic": topic, "recallHandle": request.recall_handle, "bname": broker_name,
        }  # fmt: skip
        parts, code = self._parts, RequestCode.RECALL_MESSAGE
        answer = await call_holder(parts.brokers, parts.clock, broker_name, topic, code, ext, again=True)
        return v2.RecallMessageResponse(status=ok(), message_id=(answer.ext or {}).get("msgId") or "")


async def _fail(error: ProxyError) -> v2.SendMessageResponse:
    await trio.lowlevel.checkpoint()  # a call whose time is over ends here
    raise error
