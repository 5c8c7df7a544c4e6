"""Requests to brokers whose answers are waited for by rows, without a task for each.

What the calls of one turn ask a broker leaves together, in one write.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from understudy.mqclient.session import Session
from understudy.proxy.brokers import BrokerGoneError
from understudy.proxy.core.statuses import ProxyError
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.errors import ConnectionLostError
from understudy.runtime.signal import Signal

_AT_ONCE = 64
"""Rows that end in one turn of the event loop."""
_LOOK_SECONDS = 0.1
"""A row waits so much longer at most than it was to."""

Outcome = Command | ProxyError
"""What came of a request: the broker's answer, whatever it is, or why there is none."""
Answered = Callable[[Outcome], None]
"""Told what came of a request; must not raise."""


class _Row:
    """A request under way."""

    __slots__ = ("address", "answered", "code", "rows", "until", "withdraw")

    def __init__(self, rows: dict[_Row, None], address: str, code: int, until: float, answered: Answered) -> None:
        self.rows = rows
        self.address = address
        self.code = code
        self.until = until
        self.answered = answered
        self.withdraw: Callable[[], None]

    def came(self, answer: Command | None) -> None:
        """Take the broker's answer, ``None`` when its connection has ended."""
        del self.rows[self]
        self.answered(answer or BrokerGoneError(f"connection to {self.address} ended before the answer", sent=True))

    def expires(self) -> None:
        """Wait no longer."""
        del self.rows[self]
        self.withdraw()
        self.answered(ProxyError(v2.PROXY_TIMEOUT, f"no answer from {self.address} to request {self.code} in time"))


class Posts:
    """What was asked of brokers in this way.

    Args:
        session: connections.
    """

    def __init__(self, session: Session) -> None:
        self._remoting, self._clock = session.remoting, session.world.clock
        self._rows: dict[_Row, None] = {}
        self._came = Signal()
        self._unsent: list[Connection] = []

    def post(self, address: str, command: Command, until: float, answered: Answered) -> bool:
        """Ask the broker at *address*; the request leaves with :meth:`send`, before which nothing may be awaited.

        Args:
            address: of the broker.
            command: the request.
            until: monotonic seconds after which no answer is waited for.
            answered: called once.

        Returns:
            False, and nothing is asked, where there is no connection yet.
        """
        connection = self._remoting.current(address)
        if connection is None:
            return False
        row = _Row(self._rows, address, command.code, until, answered)
        if connection.hold():
            self._unsent.append(connection)
        try:
            row.withdraw = connection.ask(command, row.came)
        except ConnectionLostError:
            return False
        if not self._rows:
            self._came.set()
        self._rows[row] = None
        return True

    def send(self) -> None:
        """Send what was asked since the last time."""
        if self._unsent:
            for connection in self._unsent:
                connection.release()
            self._unsent.clear()

    async def run(self) -> None:
        """Look after those that wait too long, for ever; sleeps while none waits."""
        while True:
            if not self._rows:
                await self._came.wait()
            await self._clock.sleep(_LOOK_SECONDS)
            now = self._clock.monotonic()
            late = [each for each in self._rows if each.until <= now]
            for first in range(0, len(late), _AT_ONCE):
                for row in late[first : first + _AT_ONCE]:
                    if row in self._rows:  # to tell one may end others
                        row.expires()
                await trio.lowlevel.checkpoint()
