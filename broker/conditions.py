"""Subscriptions that are no set of tags: what the broker makes of them, or why it refuses.

To compile a long text takes some milliseconds: one that is not known yet is compiled in a thread, and the request that
needs it waits in a lane. What a parked pull looked for when it was parked is not compiled again when it is answered.

Source: PullMessageProcessor.java, ClientManageProcessor.java.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from understudy.broker.filters import SQL92
from understudy.broker.property_filter import PropertyFilter
from understudy.broker.sql_filter.expression import ExpressionCache, compiled
from understudy.broker.sql_filter.lexer import SqlError
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer, Dispatcher, Handler
from understudy.runtime.threads import Threads

T = TypeVar("T")

LANE = "conditions"
SHORT = 256
"""Characters of a condition that is compiled at once, in some tenths of a millisecond."""


class UnsupportedFilterError(ValueError):
    """A kind of subscription that this broker does not serve; its messages are never sent unfiltered."""


class NotCompiledError(Exception):
    """A long condition is not known yet and must be compiled first; see :meth:`Conditions.beside`.

    Args:
        text: of the condition.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class Conditions:
    """The conditions that clients of one broker name.

    Args:
        enabled: whether this broker looks at properties at all (``enablePropertyFilter``).
    """

    def __init__(self, enabled: Callable[[], bool]) -> None:
        self._enabled = enabled
        self._cache = ExpressionCache()
        self._may_compile = False

    def get(self, kind: str, text: str, known: object = None) -> PropertyFilter:
        """Return the condition in *text* of expression type *kind*.

        Args:
            kind: the expression type.
            text: what a client wrote.
            known: what the same client looked for before; taken again if it is the same.

        Raises:
            UnsupportedFilterError: another kind, or conditions are switched off.
            SqlError: the text is no condition.
            NotCompiledError: it must be compiled first.
        """
        if kind != SQL92 or not self._enabled():
            raise UnsupportedFilterError(f"The broker does not support consumer to filter message by {kind}")
        if isinstance(known, PropertyFilter) and known.text == text:
            return known
        if len(text) > SHORT and not self._may_compile and text not in self._cache:
            raise NotCompiledError(text)
        return PropertyFilter(self._cache.get(text))

    def beside(self, server: Dispatcher, threads: Threads, handler: Handler) -> Handler:
        """Return *handler* of requests that name conditions: long ones are compiled beside the loop first.

        Args:
            server: whose lane such requests wait in.
            threads: where they are compiled.
            handler: calls :meth:`get` before it changes anything.
        """
        lane = server.lane(LANE)

        def handle(connection: Connection, command: Command) -> Answer:
            try:
                return handler(connection, command)
            except NotCompiledError as error:
                text = error.text

            async def later(connection: Connection, command: Command) -> Answer:
                self._cache.keep(text, await threads.run(partial(compiled, text)))
                return self.compiling(lambda: handler(connection, command))

            return lane.submit(connection, command, later)

        return handle

    def compiling(self, work: Callable[[], T]) -> T:
        """Return what *work* returns, which may compile now."""
        self._may_compile = True
        try:
            return work()
        finally:
            self._may_compile = False

    def compiles(self, kind: str, text: str) -> bool:
        """Tell whether *text* is a condition, served or not."""
        if kind != SQL92:
            return False
        try:
            self._cache.get(text)
        except SqlError:
            return False
        return True
