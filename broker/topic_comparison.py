"""What another replica's table of topics would change in ours: found out step by step, by reading alone."""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from understudy.broker.topics import TopicConfig

T = TypeVar("T")

_ROWS_IN_A_STEP = 1_000


def compared(
    own: Mapping[str, TopicConfig], theirs: Mapping[str, TopicConfig], overwrite: bool, stay: Container[str] | None
) -> Generator[None, None, tuple[list[TopicConfig], list[str]]]:
    """Return which of *theirs* would be taken, and the names of ours that would go.

    Args:
        own: our rows by name.
        theirs: theirs by name; those that say what ours say are ours.
        overwrite: theirs win over those of the same name here.
        stay: names of ours that stay, though they do not have them; ``None``: all do.
    """
    changed, gone = list["TopicConfig"](), list[str]()
    for rows in _some(theirs.values()):
        changed += [row for row in rows if (own.get(row.name) is not row if overwrite else row.name not in own)]
        yield
    for names in _some(own if stay is not None else ()):
        gone += [name for name in names if name not in theirs and stay is not None and name not in stay]
        yield
    return changed, gone


def _some(values: Iterable[T]) -> Iterator[list[T]]:
    """Return *values* as they are now, some at a time."""
    left = iter(list(values))
    while some := list(islice(left, _ROWS_IN_A_STEP)):
        yield some
