"""A condition that is ready to be asked of messages.

    found = compile_expression("a > 5 AND TAGS IN ('x', 'y')")
    found.matches({"a": "7", "TAGS": "x"})  # True

Bounded: the length of a text, the depth of its tree, and what a cache of them holds. What a message costs grows with
the length of the text only.

Source: SqlFilter.java, and the files that the other modules name.
"""

from __future__ import annotations

from collections import OrderedDict

import attrs

from understudy.broker.sql_filter.lexer import SqlError
from understudy.broker.sql_filter.operands import Evaluate, Properties
from understudy.broker.sql_filter.parser import parse
from understudy.broker.sql_filter.values import EvaluationError

PREFIX = "Invalid MessageSelector. "
"""What the reference's message begins with."""


@attrs.frozen(eq=False)
class Expression:
    """A compiled condition.

    Attributes:
        text: as it was written.
        names: properties it looks at.
        evaluate: True, False or None (unknown) for the properties of a message. Raises
            :class:`~understudy.broker.sql_filter.values.EvaluationError`: a value that cannot be compared.
    """

    text: str
    names: frozenset[str]
    evaluate: Evaluate

    def matches(self, properties: Properties) -> bool:
        """Tell whether a message with *properties* is wanted: neither unknown nor an error is."""
        try:
            return self.evaluate(properties) is True
        except EvaluationError:
            return False


def compile_expression(text: str) -> Expression:
    """Return the condition in *text*.

    Raises:
        SqlError: it is none; the message says what is wrong, with line and column.
    """
    try:
        whole, names = parse(text)
    except SqlError as error:
        raise SqlError(f"{PREFIX}{error}") from None
    return Expression(text, names, whole.evaluate)


def compiled(text: str) -> Expression | SqlError:
    """Return what :func:`compile_expression` returns or raises."""
    try:
        return compile_expression(text)
    except SqlError as error:
        return error


class ExpressionCache:
    """Conditions, and texts that are none, that were compiled lately.

    Args:
        most: how many are kept.
        most_characters: of all their texts together, which bounds what they take.
    """

    def __init__(self, most: int = 1000, most_characters: int = 1 << 18) -> None:
        self._most, self._most_characters = most, most_characters
        self._kept: OrderedDict[str, Expression | SqlError] = OrderedDict()
        self._characters = 0

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, text: str) -> bool:
        """Tell whether *text* was compiled lately."""
        return text in self._kept

    def get(self, text: str) -> Expression:
        """Return the condition in *text*. Raises :class:`SqlError`, the same again for the same text."""
        found = self._kept.get(text)
        if found is None:
            found = compiled(text)
            self.keep(text, found)
        else:
            self._kept.move_to_end(text)
        if isinstance(found, SqlError):
            raise SqlError(str(found))
        return found

    def keep(self, text: str, found: Expression | SqlError) -> None:
        """Keep what :func:`compiled` has made of *text*."""
        if text in self._kept or len(text) > self._most_characters:
            return
        self._kept[text] = found
        self._characters += len(text)
        while len(self._kept) > self._most or self._characters > self._most_characters:
            oldest, _ = self._kept.popitem(last=False)
            self._characters -= len(oldest)
