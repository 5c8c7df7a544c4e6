"""Settings: attrs classes whose fields give keys, types and defaults; cattrs reads and writes the text of their values.

A field's type says what its text may be: ``bool``, ``int`` (64 bits), ``float``, ``str``, or one of them with a rule,
as :data:`Port`. Errors are one line: where, which key, which text, and what is expected.

Values are read one by one: a function for all keys of a broker takes longer to make than a broker to start.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin

import attrs

from understudy.runtime.properties import ConfigError, Properties, located, nearest_name, printable

if TYPE_CHECKING:
    from cattrs import BaseConverter

INT = (-(1 << 31), (1 << 31) - 1)
LONG = (-(1 << 63), (1 << 63) - 1)

_SHOWN_ERRORS = 3
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")

Settings = TypeVar("Settings", bound=attrs.AttrsInstance)


class UnfitError(ValueError):
    """A text that is no value of its field; the message is what is expected there."""


@attrs.frozen
class Between:
    """Rule of a whole number: its least and greatest value, and how a user is told of them."""

    low: int
    high: int
    told: str = ""

    def read(self, text: str) -> int:
        """Return the number in *text*. Raises :class:`UnfitError`."""
        if not _INTEGER.fullmatch(text) or not self.low <= int(text) <= self.high:
            raise UnfitError(self.told or f"a whole number from {self.low} to {self.high}")
        return int(text)


@attrs.frozen
class Form:
    """Rule of a text: ``refusal`` returns what is expected instead of it, or ``None`` when it will do."""

    refusal: Callable[[str], str | None]

    def read(self, text: str) -> str:
        """Return *text*. Raises :class:`UnfitError`."""
        expected = self.refusal(text)
        if expected is not None:
            raise UnfitError(expected)
        return text


Int = Annotated[int, Between(*INT)]
Count = Annotated[int, Between(0, INT[1])]
Port = Annotated[int, Between(0, 65535, "a port from 0 to 65535")]


UNKEYED: Mapping[str, None] = {"key": None}
"""Metadata of a field that stands beside the settings of its class and has no key."""


def keyed(key: str, default: Any) -> Any:
    """Return a field of that default whose *key* is not its name in camel case, as ``brokerIP1`` or ``useTLS``."""
    return attrs.field(default=default, metadata={"key": key})


def key_of(field: attrs.Attribute[Any]) -> str:
    """Return the key of a field: ``kv_config_path`` is ``kvConfigPath``, unless it was made by :func:`keyed`."""
    head, *rest = field.name.split("_")
    return str(field.metadata.get("key") or head + "".join(word.capitalize() for word in rest))


@functools.cache
def fields_of(section: type[attrs.AttrsInstance]) -> dict[str, attrs.Attribute[Any]]:
    """Return the fields of a class of settings by key, their types resolved."""
    if any(isinstance(field.type, str) for field in attrs.fields(section)):
        attrs.resolve_types(section)
    return {key_of(field): field for field in attrs.fields(section) if field.metadata.get("key", "") is not None}


@attrs.frozen
class Change:
    """Values that were read and checked and are not in force yet.

    Attributes:
        texts: text by key, as it is to stand in a file.
        values: for each class of settings the new values by field.
        others: unknown keys that are kept with their text.
    """

    texts: dict[str, str]
    values: list[dict[str, Any]]
    others: dict[str, str] = attrs.Factory(dict)

    def put_into(self, *sections: attrs.AttrsInstance) -> None:
        """Have the values in force: *sections* are of the classes they were read for, in the same order."""
        for section, changed in zip(sections, self.values, strict=True):
            for name, value in changed.items():
                setattr(section, name, value)


def structure(values: Properties, *sections: type[attrs.AttrsInstance]) -> list[dict[str, Any]]:
    """Read the values of known keys; unknown ones are left out, a key may belong to several classes.

    Args:
        values: text by key, and where it stands; blanks around it do not count.
        sections: classes of settings, each with a default for every field.

    Returns:
        For each class the values that were given, by the name of their field.

    Raises:
        ConfigError: texts that are no values of their keys, all in one line.
    """
    found: list[dict[str, Any]] = []
    unfit: dict[str, str] = {}
    for section in sections:
        known = fields_of(section)
        read: dict[str, Any] = {}
        for key, text in values.items():
            if key not in known:
                continue
            field = known[key]
            kind: Any = field.type
            try:
                read[field.name] = _converter().structure(text, kind)
            except UnfitError as error:
                unfit[key] = str(error)
        found.append(read)
    if unfit:
        raise _bad_values(values, unfit)
    return found


def read_change(values: Properties, *sections: type[attrs.AttrsInstance]) -> Change:
    """Read new values for settings in force; unknown keys are left out.

    Args:
        values: text by key, and where it stands.
        sections: classes of settings; a key may belong to several.

    Raises:
        ConfigError: texts that are no values of their keys, all in one line.
    """
    read = structure(values, *sections)
    texts = {
        key: value_text(changed[field.name])
        for section, changed in zip(sections, read, strict=True)
        for key, field in fields_of(section).items()
        if field.name in changed
    }
    return Change(texts, read)


def with_values(settings: Settings, values: Mapping[str, str], source: str) -> Settings:
    """Return *settings* with the known keys of *values*; unknown ones are left out.

    Args:
        settings: what keeps every other value.
        values: text by key.
        source: name of the file, for messages about values that do not know their place.

    Raises:
        ConfigError: a text is no value of its key; nothing was changed.
    """
    (changes,) = structure(located(values, source), type(settings))
    return attrs.evolve(settings, **changes)  # type: ignore[misc]  # the plugin cannot see through a type variable


def value_text(value: object) -> str:
    """Return how a value stands in a property file."""
    return str(_converter().unstructure(value))


def shown(settings: attrs.AttrsInstance) -> dict[str, str]:
    """Return the text of every setting that has a value, by key."""
    values = {key: getattr(settings, field.name) for key, field in fields_of(type(settings)).items()}
    return {key: value_text(value) for key, value in values.items() if value is not None}


def unknown_key_line(values: Properties, key: str, known: Iterable[str]) -> str:
    """Return the warning about *key* of *values*, which is none of the *known* ones."""
    nearest = nearest_name(key, known)
    hint = f", the nearest known key is {nearest}" if nearest else ""
    return f"{values.where(key)}: unknown key {printable(key)} is ignored{hint}"


def _bad_values(values: Properties, unfit: Mapping[str, str]) -> ConfigError:
    lines = [
        f"{values.where(key)}: {printable(key)}={printable(values[key].strip())}: expected {unfit[key]}"
        for key in values
        if key in unfit
    ]
    more = len(lines) - _SHOWN_ERRORS
    return ConfigError("; ".join(lines[:_SHOWN_ERRORS]) + (f"; and {more} more" if more > 0 else ""))


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise UnfitError("true or false")
    return text.lower() == "true"


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UnfitError("a number")
    return number


def _is_ruled(kind: Any) -> bool:
    return get_origin(kind) is Annotated


def _ruled(kind: Any) -> Callable[[str, Any], Any]:
    rule = next(each for each in get_args(kind)[1:] if isinstance(each, Between | Form))
    return lambda text, _: rule.read(text.strip())


@functools.cache
def _converter() -> BaseConverter:
    from cattrs import BaseConverter  # here: a program without settings starts without it

    converter = BaseConverter()
    converter.register_structure_hook(bool, lambda text, _: _truth(text.strip()))
    converter.register_structure_hook(int, lambda text, _: Between(*LONG).read(text.strip()))
    converter.register_structure_hook(float, lambda text, _: _number(text.strip()))
    converter.register_structure_hook(str, lambda text, _: text.strip())
    converter.register_structure_hook_factory(_is_ruled, _ruled)
    converter.register_unstructure_hook(bool, lambda value: "true" if value else "false")
    converter.register_unstructure_hook(int, str)
    converter.register_unstructure_hook(float, str)
    return converter
