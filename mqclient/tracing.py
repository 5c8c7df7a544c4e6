"""What a client did with its messages, written into the trace topic as the clients of the reference do.

Steps are collected where something is sent or consumed and written by a task of their own, several at a time. A trace
is a help and no promise: each is tried once, what cannot be written is left out, and a message never waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs
import trio

from understudy.format import message_traces as traces
from understudy.format.message_traces import ConsumeCode, MessageKind
from understudy.format.unique_id import UniqueIds
from understudy.mqclient.delivery import Delivery
from understudy.mqclient.errors import ClientError
from understudy.mqclient.listener import ConsumeResult
from understudy.mqclient.message import (
    DELAY,
    MSG_REGION,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRACE_ON,
    UNIQUE_KEY,
    Message,
    ReceivedMessage,
    message,
)
from understudy.mqclient.outgoing import Outgoing
from understudy.mqclient.sending import ProducerOptions, SendResult, SendStatus
from understudy.mqclient.session import Session
from understudy.remoting.codes import RequestCode
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal

log = get_logger("mqclient.tracing")

GROUP = "_INNER_TRACE_PRODUCER"
MOST_STEPS, MOST_CHARACTERS = 100, 100_000
"""Of one trace message; its body ends with the step that reaches the second."""
MOST_KEY_BYTES = 30_000
"""Of the keys of one trace message. Its properties have 32,767 bytes at most, and brokers add their own to them."""
LINGER_S = 0.05
"""How long steps wait for further ones, unless there are enough for a trace message."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""After a trace message that was not written, twice as long each time."""
CLOSE_S = 1.0
"""How long closing writes what still waits."""
MOST_WAITING = 2_048
"""Steps that wait to be written; further ones are left out."""
_DELAYED = (DELAY, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS)


@attrs.define(eq=False)
class Consuming:
    """Messages that a listener has.

    Attributes:
        result: what it says of them; ``None`` when it was cancelled.
    """

    result: ConsumeResult | None = None


class Tracer:
    """The trace of one client.

    Args:
        session: the client.
        group: its group.
        topic: where to write.

    Attributes:
        left_out: steps that were not written.
    """

    def __init__(self, session: Session, group: str, topic: str) -> None:
        self._session = session
        self._group = group
        self._topic = topic
        self._clock = session.world.clock
        self._ids = UniqueIds.of_producer(session.world.random)
        options = ProducerOptions(attempts=1)
        self._outgoing = Outgoing(GROUP, options, self._ids)
        self._delivery = Delivery(session, options)
        self._waiting: deque[tuple[str, str]] = deque()
        self._told = Signal()
        self._full = Signal()  # there is enough for a trace message
        self._writing = trio.Lock()  # who closes waits for what is on its way
        self._failing = False
        self._reported = 0  # of those left out, how many the log knows of
        self.left_out = 0

    # --- producers ---------------------------------------------------------------------------------------------

    def sent(self, messages: Sequence[Message], result: SendResult, began_ms: int, *, half: bool = False) -> None:
        """Tell that *messages* were sent, unless their broker does not want it.

        Args:
            messages: one, or those of a batch.
            result: what the broker said.
            began_ms: wall time of the call.
            half: they are half messages.
        """
        if not result.trace_on or messages[0].topic == self._topic:
            return
        cost_ms = (self._clock.wall_ms() - began_ms) // len(messages)
        places = result.offset_message_id.split(",")
        for number, each in enumerate(messages):
            kind = MessageKind.DELAYED if any(name in each.properties for name in _DELAYED) else MessageKind.NORMAL
            step = traces.published(
                time_ms=began_ms,
                region=result.region_id or "",
                group=self._group,
                topic=each.topic,
                message_id=each.properties[UNIQUE_KEY],
                tags=each.tags or "",
                keys=each.keys or "",
                store_host=self._address(result.queue.broker_name),
                body_bytes=len(each.body),
                cost_ms=cost_ms,
                kind=MessageKind.HALF if half else kind,
                offset_message_id=places[number] if number < len(places) else "",
                success=result.status is SendStatus.OK,
            )
            self._tell(each.properties[UNIQUE_KEY], each.keys, step)

    def decided(
        self, about: Message | ReceivedMessage, broker_name: str, transaction_id: str, state: str, *, checked: bool
    ) -> None:
        """Tell that a half message was decided about.

        Args:
            about: the half message.
            broker_name: where it is.
            transaction_id: its name there.
            state: ``COMMIT``, ``ROLLBACK`` or ``UNKNOWN``.
            checked: because the broker has asked.
        """
        unique = about.properties.get(UNIQUE_KEY, "")
        step = traces.decided(
            time_ms=self._clock.wall_ms(),
            region="",
            group=self._group,
            topic=about.topic,
            message_id=unique,
            tags=about.tags or "",
            keys=about.keys or "",
            store_host=self._address(broker_name),
            transaction_id=transaction_id,
            state="UNKNOW" if state == "UNKNOWN" else f"{state}_MESSAGE",
            checked=checked,
        )
        self._tell(unique, about.keys, step)

    def recalled(self, topic: str, message_id: str, region: str, *, success: bool) -> None:
        """Tell that a message was called back.

        Args:
            topic: where it would be delivered.
            message_id: its unique id.
            region: of the broker.
            success: whether the broker has taken it.
        """
        step = traces.recalled(
            time_ms=self._clock.wall_ms(), region=region, group=self._group, topic=topic, message_id=message_id,
            success=success,
        )  # fmt: skip
        self._tell(message_id, None, step)

    # --- consumers ---------------------------------------------------------------------------------------------

    @contextmanager
    def consuming(self, messages: Sequence[ReceivedMessage]) -> Iterator[Consuming]:
        """Tell that a listener has *messages* as long as the block lasts, and what it says of them in the end."""
        traced = [each for each in messages if each.properties.get(TRACE_ON) != "false"]
        began_ms = self._clock.wall_ms()
        request_id = self._ids.next(began_ms)
        for each in traced:
            before = traces.consuming(
                time_ms=began_ms, region=each.properties.get(MSG_REGION, ""), group=self._group, request_id=request_id,
                message_id=each.message_id, retries=each.reconsume_times, keys=each.keys or "",
            )  # fmt: skip
            self._tell(each.message_id, each.keys, before)
        asked = Consuming()
        try:
            yield asked
        finally:
            now_ms = self._clock.wall_ms()
            success = asked.result is ConsumeResult.SUCCESS
            code = ConsumeCode.TIME_OUT if asked.result is None else ConsumeCode.FAILED
            for each in traced:
                after = traces.consumed(
                    request_id=request_id, message_id=each.message_id, cost_ms=(now_ms - began_ms) // len(messages),
                    success=success, keys=each.keys or "", code=ConsumeCode.SUCCESS if success else code,
                    time_ms=now_ms, group=self._group,
                )  # fmt: skip
                self._tell(each.message_id, each.keys, after)

    # --- writing -----------------------------------------------------------------------------------------------

    def _address(self, broker_name: str) -> str:
        group = self._session.broker(broker_name)
        return (group.any_address() if group else None) or ""

    def _tell(self, message_id: str, keys: str | None, step: str) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self.left_out += 1
            return
        self._waiting.append((f"{message_id} {keys}" if keys else message_id, step))
        self._told.set()
        if len(self._waiting) >= MOST_STEPS:
            self._full.set()

    async def run(self) -> None:
        """Write what is told, for ever: many steps at a time, and less often while it fails."""
        pause_s = FIRST_PAUSE_S
        while True:
            while not self._waiting:
                await self._told.wait()
            with self._clock.move_on_after(LINGER_S):
                while len(self._waiting) < MOST_STEPS:
                    await self._full.wait()
            if await self._write_next():
                pause_s = FIRST_PAUSE_S
            else:
                await self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def close(self) -> None:
        """Write what waits, for a second at most and until something is refused; the rest is left out."""
        with self._clock.move_on_after(CLOSE_S):
            while self._waiting and await self._write_next():
                pass
        self.left_out += len(self._waiting)
        self._waiting.clear()
        self._report("steps of messages were not traced")

    def _next(self) -> tuple[str, list[str]]:
        """Take what one trace message may hold: its keys and the steps. A key that has no room is left out whole."""
        found: dict[str, None] = {}
        steps: list[str] = []
        room, key_room = MOST_CHARACTERS, MOST_KEY_BYTES
        while self._waiting and len(steps) < MOST_STEPS and room > 0:
            words, step = self._waiting[0]
            sizes = {word: len(word.encode(errors="replace")) + 1 for word in words.split() if word not in found}
            if steps and sum(sizes.values()) > key_room:
                break
            self._waiting.popleft()
            for word, size in sizes.items():
                if size <= key_room:
                    found[word] = None
                    key_room -= size
            steps.append(step)
            room -= len(step)
        return " ".join(found), steps

    async def _write_next(self) -> bool:
        """Write one trace message of what waits; return whether that went well."""
        async with self._writing:
            keys, steps = self._next()
            if not steps:  # somebody else wrote it meanwhile
                return True
            written = False
            try:
                trace = message(self._topic, "".join(steps).encode(errors="replace"), keys=keys)
                prepared = self._outgoing.prepare(trace, self._clock.wall_ms())
                await self._delivery.send(trace, RequestCode.SEND_MESSAGE_V2, prepared)
                written = True
            except Exception as error:  # whatever it is, it must not end the client whose messages are traced
                why = error if isinstance(error, ClientError) else repr(error)
            finally:
                if not written:
                    self.left_out += len(steps)
            if written and self._failing:
                self._report("messages are traced again, steps of some were not")
            elif not written and not self._failing:
                self._report("steps of messages not traced, tried less often from now on", why=why)
            self._failing = not written
            return written

    def _report(self, what: str, **about: object) -> None:
        lost, self._reported = self.left_out - self._reported, self.left_out
        if lost:
            log.warning(what, group=self._group, topic=self._topic, steps=lost, **about)
