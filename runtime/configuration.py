"""One setting: from the text of a property to the value of its type and back, in the reference's spelling.

Every configuration here is an attrs class whose fields give types and defaults; this module is what lies between them
and a file. Its errors are one line each: where, which key, which text, and what is allowed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import attrs

from understudy.runtime.properties import ConfigError

INT = (-(1 << 31), (1 << 31) - 1)
LONG = (-(1 << 63), (1 << 63) - 1)
COUNT = (0, (1 << 31) - 1)
PORT = (0, 65535)

_SHOWN_CHARACTERS = 64
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")

Settings = TypeVar("Settings", bound=attrs.AttrsInstance)


def bad_value(source: str, key: str, text: str, allowed: str) -> ConfigError:
    """Return the error that says that *text* is nothing for *key*, and what is."""
    return ConfigError(f"{source}: {key}={text[:_SHOWN_CHARACTERS]}: expected {allowed}")


def read_value(source: str, key: str, text: str, kind: str, bounds: tuple[int, int] = INT) -> bool | int | float | str:
    """Return the value of a setting.

    Args:
        source: the file, for messages.
        key: its name, for messages.
        text: the property's text; blanks around it do not count.
        kind: ``bool``, ``int``, ``float``; any other is text.
        bounds: least and greatest ``int``.

    Raises:
        ConfigError: the text is no such value.
    """
    text = text.strip()
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise bad_value(source, key, text, "true or false")
        return text.lower() == "true"
    if kind == "int":
        low, high = bounds
        if not _INTEGER.fullmatch(text) or not low <= int(text) <= high:
            raise bad_value(source, key, text, f"a whole number from {low} to {high}")
        return int(text)
    if kind == "float":
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise bad_value(source, key, text, "a number")
        return number
    return text


def value_text(value: object) -> str:
    """Return how a value stands in a property file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def key_of(field: attrs.Attribute[Any]) -> str:
    """Return the key of a field: ``kv_config_path`` is ``kvConfigPath``, unless its metadata names another ``key``."""
    head, *rest = field.name.split("_")
    return str(field.metadata.get("key") or head + "".join(word.capitalize() for word in rest))


def with_values(
    settings: Settings,
    fields: Mapping[str, attrs.Attribute[Any]],
    values: Mapping[str, str],
    source: str,
    bounds: Mapping[str, tuple[int, int]],
) -> Settings:
    """Return *settings* with the known keys of *values*; unknown ones are left out.

    Args:
        settings: what keeps every other value.
        fields: field by key; the type of its default is the type of its values.
        values: text by key.
        source: the file, for messages.
        bounds: least and greatest value by key; 0 and above where not given.

    Raises:
        ConfigError: a text is no value of its key; nothing was changed.
    """
    changes = {
        fields[key].name: read_value(source, key, text, type(fields[key].default).__name__, bounds.get(key, COUNT))
        for key, text in values.items()
        if key in fields
    }
    return attrs.evolve(settings, **changes)  # type: ignore[misc]  # the plugin cannot see through a type variable


def shown(settings: attrs.AttrsInstance, fields: Mapping[str, attrs.Attribute[Any]]) -> dict[str, str]:
    """Return the text of every setting by key."""
    return {key: value_text(getattr(settings, field.name)) for key, field in fields.items()}
