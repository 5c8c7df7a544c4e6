"""The keys of offsets, ``topic@group``: whose they are. There may be hundreds of thousands of them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Set

BROADCAST_SUFFIX = "@broadcast"
"""Behind a group's name: the slowest offset of its broadcasting members. No group can be named so."""


def is_of(key: str, topics: Container[str], groups: Container[str]) -> bool:
    """Tell whether *key* belongs to one of *topics* or *groups*, the broadcasting members of a group included."""
    topic, _, group = key.partition("@")
    return topic in topics or group.removesuffix(BROADCAST_SUFFIX) in groups


def of_topic(keys: Iterable[str], topic: str) -> list[str]:
    """Return those of *keys* that belong to *topic*."""
    prefix = f"{topic}@"
    return [key for key in keys if key.startswith(prefix)]


def of_any(keys: Iterable[str], topics: Set[str], groups: Set[str]) -> list[str]:
    """Return those of *keys* that belong to one of *topics* or *groups*; what costs least for each is asked first."""
    if not groups:
        return of_topic(keys, *topics) if len(topics) == 1 else [key for key in keys if key.partition("@")[0] in topics]
    if len(groups) == 1 and not topics:
        (group,) = groups
        ends = f"@{group}", f"@{group}{BROADCAST_SUFFIX}"
        keys = [key for key in keys if key.endswith(ends)]
    return [key for key in keys if is_of(key, topics, groups)]
