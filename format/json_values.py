"""Values in the JSON of peers: taken with the tolerance of the reference, refused when they are of another kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TEXT_LIMIT = 32 * 1024
"""Longest text that a row of a table may hold, in characters; rows go into headers, files and answers again."""


def truth_of(value: object, what: str, default: bool) -> bool:
    """Return a truth value or its word in any case; *default* when there is none. Raises ``ValueError``."""
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError(f"{what} must be true or false, not {shown(value)}")


def name_of(value: object, what: str, limit: int = TEXT_LIMIT) -> str:
    """Return a text of at most *limit* characters. Raises ``ValueError``."""
    if not isinstance(value, str):
        raise ValueError(f"{what} must be a text, not {shown(value)}")
    if len(value) > limit:
        raise ValueError(f"{what} has {len(value)} characters, the limit is {limit}")
    return value


def list_of(value: object, what: str) -> list[Any]:
    """Return a list; an absent one is empty. Raises ``ValueError``."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{what} must be a list, not {shown(value)}")
    return value


def attributes_of(value: object, what: str) -> dict[str, str]:
    """Return attributes without the sign that some peers leave before their names. Raises ``ValueError``."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} must be an object, not {shown(value)}")
    found = {}
    for key, text in value.items():
        if isinstance(text, (bool, int, float)):
            text = str(text).lower()
        name = key.removeprefix("+")
        found[name_of(name, f"{what}: a name")] = name_of(text, f"{what}: {name[:64]}")
    return found


def shown(value: object) -> str:
    """Return *value* as it stands in a message, cut when it is long."""
    text = repr(value)
    return text if len(text) <= 64 else f"{text[:61]}..."
