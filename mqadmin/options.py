"""Options of commands and how an argument list is read; no I/O.

The forms of the reference's tool are understood: ``-t x``, ``-tx``, ``--topic x``, ``--topic=x`` and ``-topic x``.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import attrs


class UsageError(Exception):
    """The command line is wrong; the message says what and how to go on."""


@attrs.frozen
class Option:
    """One option.

    Attributes:
        key: its letters after one dash; the long name when it has none.
        long: its name after two dashes.
        summary: one line for help.
        takes_value: whether a value follows.
        required: whether it must be given.
    """

    key: str
    long: str
    summary: str
    takes_value: bool = True
    required: bool = False

    @property
    def shown(self) -> str:
        """Both forms, for help and errors."""
        return f"--{self.long}" if self.key == self.long else f"-{self.key},--{self.long}"


def value(key: str, long: str, summary: str) -> Option:
    """Return an option with a value."""
    return Option(key, long, summary)


def needed(key: str, long: str, summary: str) -> Option:
    """Return an option with a value that must be given."""
    return Option(key, long, summary, required=True)


def flag(key: str, long: str, summary: str) -> Option:
    """Return an option without a value."""
    return Option(key, long, summary, takes_value=False)


COMMON = (
    flag("h", "help", "show this help"),
    value("n", "namesrvAddr", "name servers, host:port separated by semicolons (default: $NAMESRV_ADDR)"),
    flag("json", "json", "print JSON instead of a table"),
    flag("tls", "tls", "speak TLS; certificates are not checked"),
)


class Values:
    """The options that were given, by key."""

    def __init__(self, given: dict[str, str]) -> None:
        self._given = given

    def __contains__(self, key: str) -> bool:
        return key in self._given

    def __getitem__(self, key: str) -> str:
        return self._given[key]

    def get(self, key: str, default: str | None = None) -> str | None:
        """Return the value of option *key*, or *default*."""
        return self._given.get(key, default)

    def text(self, key: str, default: str = "") -> str:
        """Return the value of option *key*, or *default*."""
        return self._given.get(key, default)

    def number(self, key: str, default: int) -> int:
        """Return option *key* as an integer, or *default*. Raises :class:`UsageError`."""
        text = self._given.get(key)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise UsageError(f"option -{key} needs a number, not {text!r}") from None

    def truth(self, key: str, default: bool) -> bool:
        """Return option *key* as true or false, or *default*. Raises :class:`UsageError`."""
        text = self._given.get(key)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise UsageError(f"option -{key} needs true or false, not {text!r}")
        return text.lower() == "true"


def parse(options: Sequence[Option], arguments: Sequence[str]) -> Values:
    """Read *arguments*.

    Args:
        options: those of the command and the common ones.
        arguments: what follows the command's name.

    Raises:
        UsageError: an unknown option, a missing value or a missing option.
    """
    by_key = {option.key: option for option in options}
    by_long = {option.long: option for option in options}
    given: dict[str, str] = {}
    waiting = list(reversed(arguments))
    while waiting:
        argument = waiting.pop()
        option, attached = _match(argument, by_key, by_long)
        if not option.takes_value:
            if attached is not None:
                raise UsageError(f"option {option.shown} takes no value")
            given[option.key] = "true"
            continue
        if attached is None:
            if not waiting or _is_option(waiting[-1], by_key, by_long):
                raise UsageError(f"option {option.shown} needs a value")
            attached = waiting.pop()
        given[option.key] = attached.strip()
    if "h" not in given:
        missing = [option.shown for option in options if option.required and option.key not in given]
        if missing:
            raise UsageError(f"missing option: {', '.join(missing)}")
    return Values(given)


def _match(argument: str, by_key: dict[str, Option], by_long: dict[str, Option]) -> tuple[Option, str | None]:
    if not argument.startswith("-") or argument in ("-", "--"):
        raise UsageError(f"{argument!r} is not an option; options start with a dash")
    name, separator, attached = argument.lstrip("-").partition("=")
    if argument.startswith("--"):
        if name in by_long:
            return by_long[name], attached if separator else None
        raise UsageError(_unknown(argument, by_key, by_long))
    whole = argument[1:]
    if whole in by_key:
        return by_key[whole], None
    if name in by_long:
        return by_long[name], attached if separator else None
    if whole[0] in by_key and by_key[whole[0]].takes_value:
        return by_key[whole[0]], whole[1:]
    raise UsageError(_unknown(argument, by_key, by_long))


def _is_option(argument: str, by_key: dict[str, Option], by_long: dict[str, Option]) -> bool:
    if not argument.startswith("-") or argument[1:].isdigit():
        return False
    return argument[1:] in by_key or argument.lstrip("-").partition("=")[0] in by_long


def _unknown(argument: str, by_key: dict[str, Option], by_long: dict[str, Option]) -> str:
    near = difflib.get_close_matches(argument.lstrip("-").partition("=")[0], by_long, 1)
    hint = f"; did you mean --{near[0]}?" if near else ""
    return f"unknown option {argument}{hint}"
