"""What is remembered of texts that peers write: few enough and short enough that nobody fills the memory with them.

A long text is looked at anew each time; whoever sends one pays for it by itself. So a table takes at most
:data:`LONGEST` times its number of entries in bytes of texts, and what is made of them grows with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Text = TypeVar("Text", bound="str | bytes")
V = TypeVar("V")

MOST = 1024
"""Texts of one table."""
LONGEST = 256
"""Characters, or bytes, of a text that is remembered."""


def remember(table: dict[Text, V], text: Text, value: V, most: int = MOST) -> V:
    """Put *value* under *text* into *table* if the text is short, and return it; a full table starts anew.

    Args:
        table: changed by nobody else.
        text: of a peer.
        value: what was made of it.
        most: entries of the table.
    """
    if len(text) <= LONGEST:
        if len(table) >= most:
            table.clear()
        table[text] = value
    return value


class Remembered(dict[Text, V]):
    """A table that makes what it does not remember: ``table[text]`` costs a look-up for what it does.

    Args:
        make: the value for a text; what it raises is not remembered.
    """

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[Text], V]) -> None:
        self._make = make

    def __missing__(self, text: Text) -> V:
        return remember(self, text, self._make(text))


def remembered(make: Callable[[Text], V]) -> Callable[[Text], V]:
    """Return *make* with a :class:`Remembered` before it; decorates functions of texts that have no side effects."""
    return Remembered(make).__getitem__
