"""What another replica's table of topics would change in ours: found out step by step, by reading alone."""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from understudy.broker.topics import TopicConfig

T = TypeVar("T")

_ROWS_IN_A_STEP = 1_000


def rows_to_take(
    own: Mapping[str, TopicConfig], theirs: Mapping[str, TopicConfig], *, overwrite: bool
) -> Generator[None, None, list[TopicConfig]]:
    """Return which of *theirs* are not in our table.

    Args:
        own: our rows by name.
        theirs: theirs by name; those that say what ours say are ours.
        overwrite: theirs win over those of the same name here.
    """
    found: list[TopicConfig] = []
    for some in _some(theirs.values()):
        found += [row for row in some if (own.get(row.name) is not row if overwrite else row.name not in own)]
        yield
    return found


def names_to_drop(own: Iterable[str], theirs: Container[str], stay: Container[str]) -> Generator[None, None, list[str]]:
    """Return which of our names are not among *theirs*, nor among those that *stay*."""
    found = list[str]()
    for some in _some(own):
        found += [name for name in some if name not in theirs and name not in stay]
        yield
    return found


def _some(values: Iterable[T]) -> Iterator[list[T]]:
    """Return *values* as they are now, some at a time."""
    left = iter(list(values))
    while some := list(islice(left, _ROWS_IN_A_STEP)):
        yield some
