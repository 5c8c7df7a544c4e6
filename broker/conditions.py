"""Subscriptions that are no set of tags: what the broker makes of them, or why it refuses.

Source: PullMessageProcessor.java, ClientManageProcessor.java.
"""

from __future__ import annotations

from collections.abc import Callable

from understudy.broker.filters import SQL92
from understudy.broker.sql_filter.expression import Expression, ExpressionCache
from understudy.broker.sql_filter.lexer import SqlError


class UnsupportedFilterError(ValueError):
    """A kind of subscription that this broker does not serve; its messages are never sent unfiltered."""


class Conditions:
    """The conditions that clients of one broker name.

    Args:
        enabled: whether this broker looks at properties at all (``enablePropertyFilter``).
    """

    def __init__(self, enabled: Callable[[], bool]) -> None:
        self._enabled = enabled
        self._cache = ExpressionCache()

    def get(self, kind: str, text: str) -> Expression:
        """Return the condition in *text* of expression type *kind*.

        Raises:
            UnsupportedFilterError: another kind, or conditions are switched off.
            SqlError: the text is no condition.
        """
        if kind != SQL92 or not self._enabled():
            raise UnsupportedFilterError(f"The broker does not support consumer to filter message by {kind}")
        return self._cache.get(text)

    def compiles(self, kind: str, text: str) -> bool:
        """Tell whether *text* is a condition, served or not."""
        if kind != SQL92:
            return False
        try:
            self._cache.get(text)
        except SqlError:
            return False
        return True
