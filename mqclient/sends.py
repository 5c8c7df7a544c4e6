"""Sends whose answers wait as rows: for callers in other threads, to whom a task for each message would cost the most.

What such callers asked for together is written together, and each is told where the answer arrives. Whatever is not
usual (no route yet, no connection, a refusal, no answer in time) is left to the task that would have sent it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import trio

from understudy.mqclient.delivery import Course, command_for
from understudy.mqclient.errors import ClientError, NotConnectedError
from understudy.mqclient.message import Message
from understudy.mqclient.producer import Producer, SendResult
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.runtime.portal_jobs import Told
from understudy.runtime.signal import Signal


class Sends:
    """The sends of one producer that are asked for by other threads.

    Args:
        producer: whose messages these are.
        afterwards: calls a function once all that was asked for together has begun.
    """

    def __init__(self, producer: Producer, afterwards: Callable[[Callable[[], None]], None]) -> None:
        self._producer = producer
        self._afterwards = afterwards
        self._lines: dict[Connection, _Line] = {}

    def begin(self, message: Message, told: Told) -> Callable[[], None] | None:
        """Send *message* without a task if nothing unusual is met.

        Args:
            message: see :meth:`Producer.send <understudy.mqclient.producer.Producer.send>`.
            told: see :class:`~understudy.runtime.portal.Told`; not before this has returned.

        Returns:
            What forgets whom to tell; ``None`` when nothing was sent, and the producer itself is to be asked.
        """
        session, delivery = self._producer.session, self._producer.delivery
        target = delivery.known_target(message.topic)
        if target is None:
            return None
        try:
            connection = session.remoting.current(session.master_address(target.broker_name))
            if connection is None or connection.choked:
                return None
            began_ms = session.world.clock.wall_ms()
            prepared = self._producer.outgoing.prepare(message, began_ms)
        except ClientError:
            return None  # the producer says why
        course = delivery.course(message, RequestCode.SEND_MESSAGE_V2, prepared)
        until = delivery.attempt(course, target) / 1000 + course.started
        line = self._lines.get(connection)
        if line is None:
            line = self._lines[connection] = _Line(connection, self._producer, self._ended)
        if connection.hold():
            self._afterwards(connection.release)
        return line.ask(_Row(course, target, began_ms, until, told))

    def _ended(self, line: _Line) -> None:
        self._lines.pop(line.connection, None)


class _Row:
    """One send that waits for its answer."""

    __slots__ = ("began_ms", "course", "target", "told", "until")

    def __init__(self, course: Course, target: MessageQueue, began_ms: int, until: float, told: Told) -> None:
        self.course = course
        self.target = target
        self.began_ms = began_ms
        self.until = until
        self.told = told


class _Line:
    """What waits for answers of one connection, and the one task that looks whether they are late."""

    def __init__(self, connection: Connection, producer: Producer, ended: Callable[[_Line], None]) -> None:
        self.connection = connection
        self._producer = producer
        self._ended = ended
        self._clock = producer.session.world.clock
        self._rows: dict[_Row, Callable[[], None]] = {}
        self._looks_at = math.inf
        self._sooner = Signal()

    def ask(self, row: _Row) -> Callable[[], None] | None:
        if math.isinf(self._looks_at) and not self.connection.start_soon(self._watch):
            return None  # it is not served yet, or no more: nobody would look whether the answer is late
        command = command_for(row.target, row.course.code, row.course.prepared)
        self._rows[row] = self.connection.ask(command, partial(self._answered, row))
        if row.until < self._looks_at:
            self._looks_at = row.until
            self._sooner.set()
        return partial(self._forget, row)

    def _forget(self, row: _Row) -> None:
        withdraw = self._rows.pop(row, None)
        if withdraw is not None:
            withdraw()

    def _answered(self, row: _Row, answer: Command | None) -> None:
        if self._rows.pop(row, None) is None:
            return
        if answer is None:
            why = f"connection to {self.connection.address} ended before the answer: {self.connection.close_reason}"
            self._failed(row, why)
            return
        try:
            if self._producer.delivery.answered(row.course, row.target, answer, self.connection.address):
                row.told(self._producer.sent(row.course.message, row.course.end(), row.began_ms))
                return
        except Exception as error:  # whoever asked is told whatever it is
            row.told(error=error)
            return
        row.told(rest=partial(self._rest, row))

    def _failed(self, row: _Row, why: str) -> None:
        self._producer.delivery.unanswered(row.course, NotConnectedError(why))
        row.told(rest=partial(self._rest, row))

    async def _rest(self, row: _Row) -> SendResult:
        return self._producer.sent(row.course.message, await self._producer.delivery.go_on(row.course), row.began_ms)

    @trio.lowlevel.enable_ki_protection
    async def _watch(self) -> None:
        try:
            while self._rows:
                self._looks_at = min(row.until for row in self._rows)
                with self._clock.move_on_after(max(self._looks_at - self._clock.monotonic(), 0)):
                    await self._sooner.wait()
                now = self._clock.monotonic()
                for row in [each for each in self._rows if each.until <= now]:
                    self._forget(row)
                    took_ms = (row.until - row.course.started) * 1000
                    code, address = int(row.course.code), self.connection.address
                    self._failed(row, f"no answer from {address} to request {code} within {took_ms:g} ms")
        finally:
            self._looks_at = math.inf
            self._ended(self)
